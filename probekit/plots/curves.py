"""Curves: the rows of each, its label and its style, the same in every panel of a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from probekit.display import shown
from probekit.errors import UsageError
from probekit.plots.look import COLOURS, GREYS, MARKERS, MOST, Look, control_title
from probekit.rows import as_rows, layer_labels, make_rows

if TYPE_CHECKING:
    import pandas as pd

CURVE = ("model", "run", "step", "representation", "method", "target", "split", "seed")
"""The columns of :func:`plot_rows` that distinguish curves of one task."""
REGIMES = {"fine-tune": "fine-tuned", "feature-extraction": "feature-extraction", "pretrain": "pretrained"}
NAMED = ("task", "model", "domain", "domain_a", "domain_b", "mostly", "corpus", "trained_on")
"""The columns of rows of domains that figures show in cells, on axes and at points."""
RANDOM, INFORMATION = "random weights", "mutual-information"


def plot_rows(given: Any) -> pd.DataFrame:
    """Rows as figures read them, with columns that describe the run and the method in words.

    Parameters
    ----------
    given : DataFrame, Result or path
        Rows.

    Returns
    -------
    DataFrame
        The rows with columns ``layer_name`` ("0" … "L", "final_norm", "" without a layer), ``run`` ("fine-tuned",
        "fine-tuned 1" for another seed, "random weights", the name of any other checkpoint, "" for a pretrained model),
        ``run_kind``, the same without the seed, and ``method``: the estimator, or regime and head of a trained model.
    """
    import pandas as pd

    if isinstance(given, pd.DataFrame) and "run_kind" in given:  # already done for a larger table
        return given
    rows = make_rows(printable(as_rows(given)))
    trained = rows["regime"] != ""
    head = (rows["regime"] + " " + rows["head"]).str.strip()
    rows["method"] = rows["estimator"].where((rows["estimator"] != "") | ~trained, head)
    random = _whole(rows, "random_weights")
    seeds = _whole(rows, "run_seed").fillna(rows["seed"].where(trained & (rows["estimator"] == ""))).fillna(random)
    elsewhere = trained & (rows["trained_on"] != "") & (rows["trained_on"] != rows["task"])
    kind = rows["regime"].map(REGIMES).fillna(rows["regime"])
    on = rows["trained_on"].map({name: shown_tasks(str(name)) for name in rows["trained_on"].unique()})
    kind = (rows["variant"] + " " + kind).str.strip() + (" on " + on).where(elsewhere, "")
    kind = kind.where(trained, rows["checkpoint"]).where(random.isna(), RANDOM)
    numbered = (trained | random.notna()) & (seeds.fillna(0) != 0)
    run = kind + (" " + seeds.astype("string")).where(numbered, "").fillna("")
    names = rows["checkpoint"].where(random.isna(), "")
    same = [rows[c] for c in ("task", "model", "trained_on")]
    if (names != "").any():
        several = (
            names.groupby([*same, rows["method"], run], sort=False).transform("nunique") > 1
        )  # of one kind, method and seed: names distinguish them
        several = several.groupby([*same, rows["method"], kind], sort=False).transform("any")
        run, kind = run.where(~several, names), kind.where(~several, names)
    rows["run"], rows["run_kind"] = run, kind
    rows["random"] = random.notna()
    rows["layer_name"] = layer_labels(rows)
    return rows


def shown_tasks(name: str) -> str:
    """The display name of the tasks a model was trained on; of more than two, their number."""
    from probekit.tasks.load import shown_task

    known = [shown_task(one) for one in name.split("+")]
    return f"{len(known)} tasks" if len(known) > 2 else " and ".join(known)


def printable(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with control characters written out, which no font draws: names may come from other people's files."""
    for name in rows.columns:
        if rows[name].dtype.kind not in "iufb":
            texts = {value for value in rows[name].dropna() if isinstance(value, str)}
            if written := {value: word for value in texts if (word := shown(value)) != value}:
                rows = rows.assign(**{name: rows[name].replace(written)})
    return rows


def with_names(rows: pd.DataFrame, look: Look | None) -> pd.DataFrame:
    """Rows of domains with the display names for axes, points and cells."""
    look = look or Look()
    names = {c: look.task if c == "task" else look.shown for c in NAMED if c in rows}
    return rows.assign(**{c: rows[c].map(name, na_action="ignore") for c, name in names.items()})


def _whole(rows: pd.DataFrame, column: str) -> pd.Series:
    import pandas as pd

    given = rows[column] if column in rows else pd.Series(pd.NA, index=rows.index)
    return pd.to_numeric(given).astype("Int64")


def of_analyses(rows: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The rows of some analyses; all rows if there are none, so that the figure reports the error."""
    matching = rows["analysis"].isin(names)
    return rows[matching] if matching.any() else rows


def _named_by_models(rows: pd.DataFrame, panel: Sequence[str]) -> bool:
    """Whether the names of models say all: encoders that were pretrained here, each once."""
    pretrained = rows["regime"].isin(["pretrain", ""]) & ~rows["random"] & (rows["variant"] == "")
    return bool(pretrained.all()) and int(rows.groupby([*panel, "model"])["run"].nunique().max()) == 1


def last_parts(models: pd.Series) -> pd.Series:
    """The names of models without their owner or folder, if these do not distinguish them."""
    short = models.astype(str).str.rstrip("/").str.rsplit("/", n=1).str[-1]
    return short if short.nunique() == models.nunique() else models.astype(str)


def of_one(rows: Any, analysis: str, otherwise: str) -> pd.DataFrame:
    """The rows of one analysis; raises UsageError with the message ``otherwise`` if there are none."""
    rows = plot_rows(rows)
    rows = rows[rows["analysis"] == analysis]
    if rows.empty:
        raise UsageError(otherwise)
    return rows


def check_metric(metric: str | None, known: Iterable[str]) -> None:
    """Raise UsageError for a metric that the rows lack."""
    if metric is not None and metric not in (known := list(known)):
        raise UsageError(f"the rows have no {metric!r}; they have {', '.join(known)}.")


def curves(rows: pd.DataFrame, by: Sequence[str] = CURVE) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """Groups of rows that differ only in layer and metric, each with the values that identify it ("" if missing)."""
    for values, curve in rows.groupby(list(by), sort=False, dropna=False):
        yield dict(zip(by, ("" if str(v) in ("<NA>", "nan") else str(v) for v in values), strict=True)), curve


@dataclass(frozen=True, slots=True)
class CurveStyles:
    """Labels and styles of the curves of a figure.

    Attributes
    ----------
    labelled_by : tuple of str
        The columns that distinguish curves of one task.
    style : mapping
        Keyword arguments of ``Axes.plot``, by label.
    trained : frozenset of str
        Models with trained checkpoints in addition to the pretrained one.
    seeds : mapping
        Common label of curves that differ only in their seed, by the label of each.
    random : frozenset of str
        Runs, and kinds of runs, that are models with random weights.
    most : int
        The largest number of curves in a panel, without up to three models with random weights.
    """

    labelled_by: tuple[str, ...]
    style: Mapping[str, Mapping[str, Any]]
    trained: frozenset[str] = frozenset()
    seeds: Mapping[str, str] = field(default_factory=dict)
    random: frozenset[str] = frozenset()
    most: int = 0

    @property
    def crowd(self) -> bool:
        """Whether a panel has more curves than it can show."""
        return self.most > MOST

    @classmethod
    def of(
        cls,
        rows: pd.DataFrame,
        by: Sequence[str] = CURVE,
        panel: Sequence[str] = ("task",),
        labelled_by: Sequence[str] | None = None,
        *,
        alike: bool = False,
    ) -> Self:
        """The styles of all curves of a figure.

        Parameters
        ----------
        rows : DataFrame
            Rows of :func:`plot_rows`, only those of curves, for all panels.
        by : sequence of str
            The columns that identify a curve.
        panel : sequence of str
            The columns that identify a panel.
        labelled_by : sequence of str, optional
            The columns shown in labels. By default those that differ; the step only for runs with several steps.
        alike : bool
            Whether seeds share one style and label.
        """
        if labelled_by is None:
            within = {c: [*panel, *(("model", "run") if c == "step" else ())] for c in by}
            apart = [c for c in by[1:] if (rows.groupby(within[c], dropna=False)[c].nunique(dropna=False) > 1).any()]
            if "run" in apart and _named_by_models(rows, panel):
                apart.remove("run")
            if "against" in by and (rows["run"] != "").any():  # a difference names the run and its reference
                apart = list(dict.fromkeys(("run", *apart)))
            states = [c for c in ("run", "step") if c in by and "reference" in rows]  # the reference may be one model's
            labelled_by = tuple(dict.fromkeys((by[0], *states, *apart)))
        known = rows["run"]
        trained = rows.loc[(known != "") & ~rows["random"], "model"]
        both = frozenset(map(str, trained)) & set(rows.loc[known == "", "model"].map(str))
        weights = frozenset(str(run) for c in ("run", "run_kind") for run in rows.loc[rows["random"], c].unique())
        self = cls(tuple(labelled_by), {}, both, random=weights)
        if both:  # the pretrained model has the first style, whatever the order of the files
            rows = rows.iloc[np.argsort(known != "", kind="stable")]
        if "step" in labelled_by:
            rows = rows.sort_values("step", na_position="first", kind="stable")
        keys = [key for key, _ in curves(rows, by)]
        seeds = self._of_seeds(keys, dict(zip(rows["run"], rows["run_kind"], strict=True))) if alike else {}
        labels = {seeds.get(label, label): key for key in keys for label in (self.label(key),)}
        panels: dict[str, set[Any]] = {}
        for key, part in curves(rows, by):
            label = seeds.get(self.label(key), self.label(key))
            panels.setdefault(label, set()).update(map(tuple, part[list(panel)].drop_duplicates().to_numpy().tolist()))
        random = {label for label, key in labels.items() if self.is_random(key)}
        counted = [own for label, own in panels.items() if label not in random or len(random) > len(GREYS)]
        most = max(Counter(one for own in counted for one in own).values(), default=0)
        styles = self._styles(labels, by, seeds, panels)
        return cls(self.labelled_by, styles, both, seeds, self.random, most)

    def _of_seeds(self, keys: Sequence[Mapping[str, str]], kinds: Mapping[str, str]) -> dict[str, str]:
        """The common label of several seeds of one kind, by the label of each."""
        alike: dict[str, dict[str, None]] = {}
        for key in keys:
            run = key.get("run", "")
            alike.setdefault(self.label({**key, "run": kinds.get(run, run), "seed": ""}), {})[self.label(key)] = None
        return {x: f"{kind}, {len(labels)} seeds" for kind, labels in alike.items() if len(labels) > 1 for x in labels}

    def _styles(
        self,
        labels: Mapping[str, Mapping[str, str]],
        by: Sequence[str],
        seeds: Mapping[str, str],
        panels: Mapping[str, set[Any]],
    ) -> dict[str, Mapping[str, Any]]:
        greys, shapes, taken = cycle(GREYS), dict[Any, str](), dict[str, int]()
        in_order = self._by_step(labels)
        found: dict[str, Mapping[str, Any]] = {}
        for label, key in sorted(labels.items(), key=lambda one: self.is_random(one[1])):
            shape = tuple(key[c] for c in by if c not in ("run", "step", "seed"))
            if self.is_random(key):  # in the shape of its trained counterpart
                style = {"color": next(greys), "linestyle": (0, (4, 2)), "linewidth": 1.1, "markersize": 3}
                style["marker"] = shapes.get(shape, MARKERS[0])
            else:
                near = {i % MOST for other, i in taken.items() if panels[other] & panels[label]}
                marker, free = len(taken), (i for i in (len(taken), *range(MOST)) if i % MOST not in near)
                taken[label] = next(free, marker)
                style = {"color": COLOURS[taken[label] % MOST], "marker": MARKERS[marker % len(MARKERS)]}
                style |= {"linestyle": "-", "linewidth": 1.6, **in_order.get(label, {})}
                shapes.setdefault(shape, str(style["marker"]))
            thin = {"linewidth": 0.7, "markersize": 2.5, "markeredgewidth": 0.6} if label in seeds.values() else {}
            found[label] = {"markersize": 4.5, "markeredgewidth": 0.9, **style, **thin}
        return found

    def _by_step(self, labels: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
        """The colours of the steps of one run, from dark to light, if there are more than two."""
        import matplotlib as mpl
        from matplotlib.colors import to_hex

        steps = {label: int(float(key["step"])) for label, key in labels.items() if key.get("step")}
        runs = {tuple(labels[label][c] for c in labels[label] if c not in ("step", "seed")) for label in steps}
        if "step" not in self.labelled_by or len(runs) != 1 or len(steps) < 3:
            return {}
        order, ramp = sorted(steps, key=lambda label: steps[label]), mpl.colormaps["viridis"]
        return {label: {"color": to_hex(ramp(0.82 * i / (len(order) - 1)))} for i, label in enumerate(order)}

    def unfilled(self, points: pd.DataFrame, hollow: pd.Series) -> Self:
        """The styles with hollow markers for curves all of whose points are hollow, as in the legend.

        Parameters
        ----------
        points : DataFrame
            The points of the whole figure, with their label and value.
        hollow : Series
            Which of them are hollow.
        """
        filled = set(points["label"][points["value"].notna() & ~hollow])
        empty = set(points["label"][points["value"].notna()]) - filled
        white = {label: {**self.style[label], "markerfacecolor": "white"} for label in empty if label in self.style}
        return replace(self, style={**self.style, **white})

    def is_random(self, key: Mapping[str, str]) -> bool:
        """Whether a curve belongs to a model with random weights."""
        return key.get("run", "") in self.random

    def label(self, key: Mapping[str, str]) -> str:
        """The label of one curve: its model, random weights, and what distinguishes it from other curves."""
        columns = dict.fromkeys((self.labelled_by[0], *(("run",) * self.is_random(key)), *self.labelled_by))
        words = {c: key[c] for c in columns if key[c]}
        if "run" in self.labelled_by and not key["run"] and key["model"] in self.trained:
            words = {"model": "", "run": "pretrained"} | words
        if "model" in words:
            words["model"] = words["model"].rsplit("/", 1)[-1]
        if "against" in words:
            words["against"] = f"minus {control_title(words['against'])}"
        return ", ".join(f"{c} {word}" if c in ("step", "seed") else word for c, word in words.items())

    def rank(self, key: Mapping[str, str]) -> tuple[bool, int]:
        """The sorting key of a curve in the legend: random weights last."""
        return self.is_random(key), list(self.style).index(self.called(key))

    def called(self, key: Mapping[str, str]) -> str:
        """The label of a curve, the same for all its seeds; raises UsageError if the figure has no such curve."""
        label = self.label(key)
        if (label := self.seeds.get(label, label)) not in self.style:
            raise UsageError(f"this figure has no curve {label or 'with that name'}, only {', '.join(self.style)}.")
        return label
