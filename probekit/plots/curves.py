"""Curves: which rows are one, what it is called, and how it is drawn, the same in every panel of a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from probekit.errors import UsageError
from probekit.plots.palette import COLOURS, GREYS, MARKERS
from probekit.plots.titles import control_title
from probekit.rows import as_rows, layer_labels, make_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CURVE", "CurveStyles", "curves", "of_analyses", "plot_rows"]

CURVE = ("model", "run", "step", "representation", "method", "target", "split", "seed")
"""The columns of :func:`plot_rows` that tell curves of one task apart."""
REGIMES = {"fine-tune": "fine-tuned", "feature-extraction": "feature-extraction"}
RANDOM = "random weights"


def plot_rows(given: Any) -> pd.DataFrame:
    """Rows as figures read them, with what stands in several columns in words.

    Parameters
    ----------
    given : DataFrame, Result or path
        Rows.

    Returns
    -------
    DataFrame
        The rows with columns ``layer_name`` ("0" … "L", "final_norm", "" of no layer), ``run`` ("fine-tuned",
        "fine-tuned 1" of another seed, "random weights", the name of any other checkpoint, "" of a pretrained model),
        ``run_kind``, the same whatever the seed, and ``method``: the estimator, or regime and head of a trained model.
    """
    rows = as_rows(given)
    if "run_kind" in rows:  # done already, of a larger table
        return rows
    rows = make_rows(rows)
    trained = rows["regime"] != ""
    head = (rows["regime"] + " " + rows["head"]).str.strip()
    rows["method"] = rows["estimator"].where((rows["estimator"] != "") | ~trained, head)
    random = _whole(rows, "random_weights")
    seeds = _whole(rows, "run_seed").fillna(rows["seed"].where(trained & (rows["estimator"] == ""))).fillna(random)
    elsewhere = trained & (rows["trained_on"] != "") & (rows["trained_on"] != rows["task"])
    kind = rows["regime"].map(REGIMES).fillna(rows["regime"])
    kind = (rows["variant"] + " " + kind).str.strip() + (" on " + rows["trained_on"]).where(elsewhere, "")
    kind = kind.where(trained, rows["checkpoint"]).where(random.isna(), RANDOM)
    numbered = (trained | random.notna()) & (seeds.fillna(0) != 0)
    run = kind + (" " + seeds.astype("string")).where(numbered, "").fillna("")
    names = rows["checkpoint"].where(random.isna(), "")
    same = [rows[c] for c in ("task", "model", "trained_on")]
    several = names.groupby([*same, run], sort=False).transform("nunique") > 1  # of one kind and seed: names tell
    several = several.groupby([*same, kind], sort=False).transform("any")
    rows["run"], rows["run_kind"] = run.where(~several, names), kind.where(~several, names)
    rows["random"] = random.notna()
    rows["layer_name"] = layer_labels(rows)
    return rows


def _whole(rows: pd.DataFrame, column: str) -> pd.Series:
    import pandas as pd

    given = rows[column] if column in rows else pd.Series(pd.NA, index=rows.index)
    return pd.to_numeric(given).astype("Int64")


def of_analyses(rows: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The rows of some analyses; all where there are none of these, for which figures have words."""
    own = rows["analysis"].isin(names)
    return rows[own] if own.any() else rows


def curves(rows: pd.DataFrame, by: Sequence[str] = CURVE) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """The rows that differ in nothing but layer and metric, each with what tells them from others ("" for missing)."""
    for values, curve in rows.groupby(list(by), sort=False, dropna=False):
        yield dict(zip(by, ("" if str(v) in ("<NA>", "nan") else str(v) for v in values), strict=True)), curve


@dataclass(frozen=True, slots=True)
class CurveStyles:
    """What the curves of a figure are called and how they are drawn.

    Attributes
    ----------
    tell : tuple of str
        The columns that tell curves of one task apart.
    style : mapping
        Of each label, as ``Axes.plot`` wants it.
    trained : frozenset of str
        Models that have trained checkpoints beside the pretrained one.
    seeds : mapping
        By label of a curve that differs from others in its seed alone, what all of them are called.
    random : frozenset of str
        Runs that are models with random weights.
    """

    tell: tuple[str, ...]
    style: Mapping[str, Mapping[str, Any]]
    trained: frozenset[str] = frozenset()
    seeds: Mapping[str, str] = field(default_factory=dict)
    random: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        rows: pd.DataFrame,
        by: Sequence[str] = CURVE,
        panel: Sequence[str] = ("task",),
        tell: Sequence[str] | None = None,
        *,
        alike: bool = False,
    ) -> Self:
        """Those of all curves of a figure.

        Parameters
        ----------
        rows : DataFrame
            Of :func:`plot_rows`, of the curves alone, of all panels.
        by : sequence of str
            The columns that tell curves apart.
        panel : sequence of str
            The columns that tell panels apart.
        tell : sequence of str, optional
            Worked out for None, where a step is told only of runs that have several.
        alike : bool
            Whether seeds have one style and name.
        """
        if tell is None:
            within = {c: [*panel, *(("model", "run") if c == "step" else ())] for c in by}
            apart = [c for c in by[1:] if (rows.groupby(within[c], dropna=False)[c].nunique(dropna=False) > 1).any()]
            tell = (by[0], *apart)
        known = rows["run"]
        trained = rows.loc[(known != "") & ~rows["random"], "model"]
        both = frozenset(map(str, trained)) & set(rows.loc[known == "", "model"].map(str))
        self = cls(tuple(tell), {}, both, random=frozenset(map(str, known[rows["random"]].unique())))
        if both:  # the pretrained model has the first style, in whatever order files were given
            rows = rows.iloc[np.argsort(known != "", kind="stable")]
        if "step" in tell:
            rows = rows.sort_values("step", na_position="first", kind="stable")
        keys = [key for key, _ in curves(rows, by)]
        seeds = self._of_seeds(keys, dict(zip(rows["run"], rows["run_kind"], strict=True))) if alike else {}
        labels = {seeds.get(label, label): key for key in keys for label in (self.label(key),)}
        return cls(self.tell, self._styles(labels, by, seeds), both, seeds, self.random)

    def _of_seeds(self, keys: Sequence[Mapping[str, str]], kinds: Mapping[str, str]) -> dict[str, str]:
        """By label of each of several seeds of one kind, the label of all."""
        alike: dict[str, dict[str, None]] = {}
        for key in keys:
            run = key.get("run", "")
            alike.setdefault(self.label({**key, "run": kinds.get(run, run), "seed": ""}), {})[self.label(key)] = None
        return {x: f"{kind}, {len(labels)} seeds" for kind, labels in alike.items() if len(labels) > 1 for x in labels}

    def _styles(
        self, labels: Mapping[str, Mapping[str, str]], by: Sequence[str], seeds: Mapping[str, str]
    ) -> dict[str, Mapping[str, Any]]:
        colours, greys, shapes = zip(cycle(COLOURS), cycle(MARKERS), strict=False), cycle(GREYS), dict[Any, str]()
        found: dict[str, Mapping[str, Any]] = {}
        for label, key in sorted(labels.items(), key=lambda one: self.is_random(one[1])):
            shape = tuple(key[c] for c in by if c not in ("run", "step", "seed"))
            if self.is_random(key):  # in the shape of its trained counterpart
                own = {"color": next(greys), "linestyle": (0, (4, 2)), "linewidth": 1.1, "markersize": 3}
                own["marker"] = shapes.get(shape, MARKERS[0])
            else:
                own = dict(zip(("color", "marker"), next(colours), strict=True), linestyle="-", linewidth=1.6)
                shapes.setdefault(shape, str(own["marker"]))
            thin = {"linewidth": 0.7, "markersize": 2.5, "markeredgewidth": 0.6} if label in seeds.values() else {}
            found[label] = {"markersize": 4.5, "markeredgewidth": 0.9, **own, **thin}
        return found

    def is_random(self, key: Mapping[str, str]) -> bool:
        """Whether a curve is of a model with random weights."""
        return key.get("run", "") in self.random

    def label(self, key: Mapping[str, str]) -> str:
        """The curve in words: its model, and what tells it from other curves of the figure."""
        words = {c: key[c] for c in self.tell if key[c]}
        if "run" in self.tell and not key["run"] and key["model"] in self.trained:
            words = {"model": "", "run": "pretrained"} | words
        words["model"] = words.get("model", "").rsplit("/", 1)[-1]
        if "against" in words:
            words["against"] = f"minus {control_title(words['against'])}"
        return ", ".join(f"{c} {word}" if c in ("step", "seed") else word for c, word in words.items())

    def rank(self, key: Mapping[str, str]) -> tuple[bool, int]:
        """Where a curve stands among others in the legend: random weights last."""
        return self.is_random(key), list(self.style).index(self.called(key))

    def called(self, key: Mapping[str, str]) -> str:
        """The label of a curve, seeds under one name; raises UsageError where the figure has no such curve."""
        label = self.label(key)
        if (label := self.seeds.get(label, label)) not in self.style:
            raise UsageError(f"there is no curve of {label or 'that name'} here, only of {', '.join(self.style)}.")
        return label
