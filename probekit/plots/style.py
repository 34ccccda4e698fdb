"""How figures look, and what things are called in them: the same in every figure and panel, readable in grey."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from probekit.errors import UsageError
from probekit.files import slug

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLOURS",
    "CURVE",
    "FAINT",
    "INK",
    "MARKERS",
    "Looks",
    "curves",
    "is_random",
    "lower_is_better",
    "metric_title",
    "plain",
    "run_kind",
]

# Okabe & Ito's palette without its yellow, told apart with every kind of colour vision; markers for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")  # not as many, so that no look comes back before the 64th curve
GREYS = ("#7F7F7F", "#B0B0B0", "#4D4D4D")
INK, FAINT = "#222222", "#DDDDDD"
TITLES = {
    "f1": "F1",
    "macro-f1": "Macro F1",
    "span-f1": "Span F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "rmse": "Root mean squared error",
    "log-loss": "Log loss in nats",
    "brier": "Brier score",
    "codelength-bits": "Code length in bits",
    "v-information": "V-information in bits",
    "mutual-information": "Mutual information (bits)",
}
LOWER_IS_BETTER = (
    "rmse",
    "log-loss",
    "brier",
    "calibration-error",
    "codelength-bits",
    "bits-per-example",
    "conditional-v-entropy",
)
DIFFERENCES = {
    "above-shuffled": "{}\nabove shuffled labels",
    "selectivity": "Selectivity\n({})",
    "difference": "{}\ngained by fine-tuning",
    "lost": "{}\nlost by training elsewhere",
}
SEEDED = re.compile(r"(^random(?=-)|^fine-tuned(?= )|(?:fine-tune|feature-extraction)(?=\.))[-. ]\d+$")
"""Names of runs that are one of several seeds."""
CURVE = ("model", "checkpoint", "step", "representation", "estimator", "target", "split", "seed")


def lower_is_better(metric: str) -> bool:
    """Whether small values of a metric, or of a difference in it, are good."""
    return metric.rpartition("(")[2].startswith(LOWER_IS_BETTER)


def metric_title(metric: str) -> str:
    """A metric in the words of an axis: ``selectivity(accuracy)`` is "Selectivity", and under it "(accuracy)"."""
    outer, _, inner = metric.removesuffix(")").rpartition("(")
    title = TITLES.get(inner, inner.replace("-", " ").capitalize())
    if outer == "selectivity" and inner not in ("f1", "matthews", "pearson", "spearman"):  # names keep their capital
        title = title[0].lower() + title[1:]
    title = DIFFERENCES.get(outer, "{}").format(title)
    return f"{title}\n(lower is better)" if lower_is_better(metric) else title


def curves(rows: pd.DataFrame, by: Sequence[str] = CURVE) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """The rows that differ in nothing but layer and metric, each with what tells them from others ("" for missing).

    Checkpoints go by their :func:`run_kind`.
    """
    for values, curve in rows.groupby(list(by), sort=False, dropna=False):
        key = dict(zip(by, ("" if str(v) in ("<NA>", "nan") else str(v) for v in values), strict=True))
        if key.get("checkpoint"):
            key["checkpoint"] = run_kind(key["checkpoint"], str(curve["task"].iloc[0]))
        yield key, curve


def run_kind(checkpoint: str, task: str) -> str:
    """A run's name without the task, so that runs of one kind look alike in the panels of all tasks: "cola.fine-tune.0"
    is "fine-tuned", with its seed where that is not 0, and "cola-ft" is "ft"."""
    either = "|".join(re.escape(name) for name in (task, slug(task)))
    checkpoint = re.sub(rf"^({either})[-_.](?=.)", "", checkpoint)
    if match := re.fullmatch(r"fine-tune(?:\.(\d+))?", checkpoint):
        return "fine-tuned" + (f" {match[1]}" if match[1] not in (None, "0") else "")
    return checkpoint


@dataclass(frozen=True, slots=True)
class Looks:
    """What the curves of a figure are called and how they look, the same in every panel.

    tell : the columns that tell curves of one task apart; look : of each label, as ``Axes.plot`` wants it
    trained : models that have trained checkpoints beside the pretrained one
    seeds : by label of a curve that differs from others in its seed alone, what all of them are called
    """

    tell: tuple[str, ...]
    look: Mapping[str, Mapping[str, Any]]
    trained: frozenset[str] = frozenset()
    seeds: Mapping[str, str] = field(default_factory=dict)

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
        """rows : of the curves alone, of all panels; panel : the columns that tell panels apart; tell : worked out for
        None, where a step is told only of runs that have several; alike : whether seeds have one look and name"""
        if tell is None:
            within = {c: [*panel, *(("model", "checkpoint") if c == "step" else ())] for c in by}
            apart = [c for c in by[1:] if (rows.groupby(within[c], dropna=False)[c].nunique(dropna=False) > 1).any()]
            tell = (by[0], *apart)
        known = rows["checkpoint"].fillna("")
        trained = rows.loc[(known != "") & ~known.str.startswith("random"), "model"]
        self = cls(tuple(tell), {}, frozenset(map(str, trained)) & set(rows.loc[known == "", "model"].map(str)))
        if self.trained:  # the pretrained model has the first look, in whatever order files were given
            rows = rows.iloc[np.argsort(known != "", kind="stable")]
        if "step" in tell:
            rows = rows.sort_values("step", na_position="first", kind="stable")
        known_by = {self.label(key): key for key, _ in curves(rows, by)}
        seeds = self._seeds(known_by) if alike else {}
        known_by = {seeds.get(label, label): key for label, key in known_by.items()}
        colours, greys, shapes = zip(cycle(COLOURS), cycle(MARKERS), strict=False), cycle(GREYS), dict[Any, str]()
        look: dict[str, Mapping[str, Any]] = {}
        for label, key in sorted(known_by.items(), key=lambda one: is_random(one[1])):
            shape = tuple(key[c] for c in by if c not in ("checkpoint", "step", "seed"))
            if is_random(key):  # in the shape of its trained counterpart
                own = {"color": next(greys), "linestyle": (0, (4, 2)), "linewidth": 1.1, "markersize": 3}
                own["marker"] = shapes.get(shape, MARKERS[0])
            else:
                own = dict(zip(("color", "marker"), next(colours), strict=True), linestyle="-", linewidth=1.6)
                shapes.setdefault(shape, str(own["marker"]))
            thin = {"linewidth": 0.7, "markersize": 2.5, "markeredgewidth": 0.6} if label in seeds.values() else {}
            look[label] = {"markersize": 4.5, "markeredgewidth": 0.9, **own, **thin}
        return cls(self.tell, look, self.trained, seeds)

    def _seeds(self, known_by: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """By label of each of several seeds of one kind, the label of all."""
        kinds: dict[str, list[str]] = {}
        for label, key in known_by.items():
            seedless = {"checkpoint": SEEDED.sub(r"\1", key.get("checkpoint", "")), "seed": ""}
            kinds.setdefault(self.label({**key, **seedless}), []).append(label)
        return {x: f"{kind}, {len(labels)} seeds" for kind, labels in kinds.items() if len(labels) > 1 for x in labels}

    def label(self, key: Mapping[str, str]) -> str:
        """The curve in words: its model, and what tells it from other curves of the figure."""
        words = {c: key[c] for c in self.tell if key[c]}
        if "checkpoint" in self.tell and not key["checkpoint"] and key["model"] in self.trained:
            words = {"model": "", "checkpoint": "pretrained"} | words
        words["model"] = words.get("model", "").rsplit("/", 1)[-1]
        if random := re.fullmatch(r"random(?:-(.+))?", words.get("checkpoint", "")):
            words["checkpoint"] = "random weights" + (f" {random[1]}" if random[1] not in (None, "0") else "")
        if "against" in words:
            words["against"] = f"minus {plain(words['against'])}"
        return ", ".join(f"{c} {word}" if c in ("step", "seed") else word for c, word in words.items())

    def rank(self, key: Mapping[str, str]) -> tuple[bool, int]:
        """Where a curve stands among others in the legend: random weights last."""
        return is_random(key), list(self.look).index(self.known(key)[0])

    def known(self, key: Mapping[str, str]) -> tuple[str, Mapping[str, Any]]:
        """Label and look of a curve; raises UsageError where the figure has no such curve."""
        label = self.label(key)
        if (label := self.seeds.get(label, label)) not in self.look:
            raise UsageError(f"there is no curve of {label or 'that name'} here, only of {', '.join(self.look)}.")
        return label, self.look[label]


def plain(against: str) -> str:
    """What a difference is held against, in words."""
    against = {"shuffled": "shuffled labels"}.get(against, against.rsplit("/", 1)[-1])
    return re.sub(r"\brandom-\S+", "random weights", against).replace("control-task", "control task")


def is_random(key: Mapping[str, str]) -> bool:
    """Whether a curve is of a model with random weights."""
    return key.get("checkpoint", "").startswith("random")
