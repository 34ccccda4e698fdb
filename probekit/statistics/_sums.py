"""Metrics as functions of sums over the evaluated examples, for many fits and many resamples at once.

Accuracy, F1, Matthews' and Pearson's coefficients and the like are functions of a few sums over the examples. A
resample only weights the examples, so all sums of all fits in all resamples are one matrix product:
(sums × fits, units) @ (units, resamples). A unit is drawn as a whole: an example, or a group of examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np

from probekit.errors import UsageError
from probekit.statistics._additive import (
    ABOVE_CHANCE,
    ADDITIVE,
    COUNTED,
    Additive,
    by_class_planes,
    correlation,
    span_planes,
)

Score = Callable[[np.ndarray, np.ndarray], float]
Side = Literal["both", "low", "high", "none"]
"""The end of an interval for which pseudo-examples are added; "none" adds none."""
EXACT = 1 << 24  # float32 counts up to here without rounding
WEIGHT = 1 << 20  # approximate sum of the weights of a resample
APART = 0.75  # pseudo-examples on which one fit is right and the other is wrong
CELLS = 512  # pseudo-examples for many classes
BLOCK = 1 << 24  # numbers held at once
FEWEST = 5  # with fewer groups, no interval has its nominal coverage


class Statistic(Protocol):
    """A metric of F fits on the same examples, as a function of the weights of units."""

    def at(self, weights: np.ndarray) -> np.ndarray:
        """The metric in each resample, float64 (F, R), for weights (R, units): how often each unit is drawn."""


@dataclass(frozen=True, slots=True)
class Units:
    """Rows that are drawn together: ``of`` (n,) int, the unit of each row; None if each row is a unit.

    ``names`` (units,): the groups that the units were made from.
    """

    rows: int
    of: np.ndarray | None = None
    names: np.ndarray | None = None

    @classmethod
    def of_groups(cls, groups: np.ndarray | None, rows: int) -> Units:
        """Each group (of any dtype) is a unit. Raises UsageError if the shape is not (n,)."""
        if groups is None:
            return cls(rows)
        if np.shape(groups) != (rows,):
            raise UsageError(f"groups have the shape {np.shape(groups)}; expected one for each of the {rows} rows.")
        names, of = np.unique(np.asarray(groups), return_inverse=True)
        return cls(rows, of.astype(np.int64), names)

    @property
    def count(self) -> int:
        return self.rows if self.of is None else int(self.of.max()) + 1

    def total(self, plane: np.ndarray) -> np.ndarray:
        """Sums of ``plane`` (F, n) by unit: float32 of what is counted, float64 of numbers, (F, units)."""
        dtype = np.float32 if plane.dtype.kind == "b" else np.float64
        if self.of is None:
            return plane.astype(dtype)
        if (np.diff(self.of) < 0).any():
            order = np.argsort(self.of, kind="stable")
            plane, of = plane[:, order], self.of[order]
        else:
            of = self.of
        return np.add.reduceat(plane, np.flatnonzero(np.diff(of, prepend=-1)), axis=1, dtype=dtype)

    def spread(self, weights: np.ndarray) -> np.ndarray:
        """Weights of units (R, units) as weights of rows (R, n)."""
        return weights if self.of is None else weights[:, self.of]


@dataclass(frozen=True, slots=True)
class Pseudo:
    """Pseudo-examples for a table of counts: one per cell, weighted by a prior (Jeffreys' ½ per cell for two classes).

    Attributes
    ----------
    planes : np.ndarray
        (planes + 1, cells), the contribution of each to the sums; the last row is 1.
    mass : np.ndarray
        (cells,), the shape of each weight's gamma distribution.
    right : np.ndarray
        Bool (cells,), whether the prediction is right.
    partner : np.ndarray
        Int (cells,), the cell of a right prediction for the same example; -1 if the metric does not count it.
    held : np.ndarray
        Bool (F, cells), whether an example is in the cell.
    known : np.ndarray
        Bool (F, cells), whether both classes of the cell occur for the fit.
    size : np.ndarray
        (F,), the design effect of groups: the number of examples that contain as much information as one independent
        one.
    degrees : np.ndarray
        (F,), degrees of freedom of the spread between groups; less than their number if few of them, such as long
        sentences, carry most of it.
    """

    planes: np.ndarray
    mass: np.ndarray
    right: np.ndarray
    partner: np.ndarray
    held: np.ndarray
    known: np.ndarray
    size: np.ndarray
    degrees: np.ndarray

    def used(self, side: Side) -> np.ndarray:
        """The weight of each cell, (F, cells).

        An empty cell of right answers does not raise the lower end, and one of wrong answers does not lower the upper
        end: without right answers the lower end may be 0, without wrong ones the upper end may be 1.
        """
        left_out = ~self.held & {"both": self.right & ~self.right, "low": self.right, "high": ~self.right}[side]
        return (self.known & ~left_out) * self.size[:, None]

    def silent(self, metric: str) -> np.ndarray:
        """Why the examples do not determine the metric, str (F,); "" if they do."""
        why = np.full(len(self.known), "", dtype=object)
        if metric in ("matthews", "macro-f1", "balanced-accuracy"):
            why[(self.known & self.right).sum(1) < 2] = "all examples and predictions are of one class"
        if metric in ("f1", "span-f1"):
            what = "a span" if metric == "span-f1" else "of class 1"
            why[~self.held.any(1)] = f"no example is, or is called, {what}"
        return why

    def of_pairs(self, draw: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Weights of the pseudo-examples of two fits, (R, cells) each; ``draw`` draws gamma variables.

        In each cell, ½ is for both right and ½ for both wrong. In addition ¾ is for the first right and the second
        wrong, and ¾ for the reverse, so the two differ even if no example distinguishes them. Jeffreys' ½ gives too
        little coverage if few examples do, and 1 (Bonett & Price 2012) draws ratios of few positives too close
        together.
        """
        wrong, counted = ~self.right, self.partner >= 0
        same, one, other = (draw(self.mass * share) for share in (0.5 + 0 * wrong, APART * wrong, APART * wrong))
        to_right = np.zeros((len(wrong), len(wrong)))
        to_right[np.flatnonzero(wrong & counted), self.partner[wrong & counted]] = 1
        return same + other + one @ to_right, same + one + other @ to_right


@dataclass(frozen=True, slots=True)
class UnitSums:
    """The sums of an additive metric by unit: ``matrix`` (planes × their rows, units); the last row counts rows."""

    matrix: np.ndarray
    cuts: tuple[int, ...]
    fits: int
    value: Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]
    pseudo: Pseudo | None = None

    def at(self, weights: np.ndarray) -> np.ndarray:
        return self._of(self.matrix @ weights.astype(self.matrix.dtype, copy=False).T)

    def posterior(self, weights: np.ndarray, masses: Sequence[tuple[np.ndarray, Side]]) -> list[np.ndarray]:
        """The metric with pseudo-examples added, (F, R) for each of their masses (R, cells); weights (R, units)."""
        totals = self.matrix @ weights.astype(self.matrix.dtype, copy=False).T
        return [self._of(totals, self._more(mass, side)) for mass, side in masses]

    def _more(self, masses: np.ndarray, side: Side) -> list[np.ndarray] | None:
        if side == "none" or self.pseudo is None:
            return None
        used = self.pseudo.used(side)
        return [(used * plane) @ masses.T for plane in self.pseudo.planes]

    def by_unit(self) -> list[np.ndarray]:
        """The sums of each unit, one array (1 or F, units) per plane; the last, (1, units), is the number of rows."""
        return [self.matrix[a:b].astype(np.float64) for a, b in pairwise(self.cuts)]

    def influence(self) -> np.ndarray:
        """What each unit adds to the metric, linearised: its derivative by the unit's weight, (F, units)."""
        total, step = self.matrix.sum(1, dtype=np.float64, keepdims=True), 1e-5
        return (self._of(total + step * self.matrix) - self._of(total)) / step

    def _of(self, totals: np.ndarray, more: Sequence[np.ndarray] | None = None) -> np.ndarray:
        parts = [totals[a:b].astype(np.float64) for a, b in pairwise(self.cuts)]
        if more is not None:
            parts = [a + b for a, b in zip(parts, more, strict=True)]
        *parts, n = parts
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.broadcast_to(self.value(parts, n if len(n) > 1 else n[0]), (self.fits, totals.shape[1]))


@dataclass(frozen=True, slots=True)
class Rows:
    """A metric that is not a function of sums: ``value`` of gold (n,), predicted (n,), or scores (n, K), and weights of
    rows (R, n)."""

    gold: np.ndarray
    predicted: np.ndarray
    units: Units
    value: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

    def at(self, weights: np.ndarray) -> np.ndarray:
        gold = np.broadcast_to(self.gold, self.predicted.shape[:2])
        rows = self.units.spread(weights).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.array([self.value(g, p, rows) for g, p in zip(gold, self.predicted, strict=True)])


def statistic(
    name: str,
    gold: np.ndarray,
    predicted: np.ndarray,
    units: Units,
    *,
    label_names: Sequence[str] = (),
    sentences: np.ndarray | None = None,
) -> Statistic:
    """The metric ``name`` of fits. gold (1 or F, n), predicted (F, n); for "log-loss", predicted holds the losses.

    "span-f1" takes lists of tag names, one per sentence, or codes of ``label_names`` and the sentence of each word;
    None means that each unit is a sentence.
    """
    if name == "spearman":
        return Rows(gold, predicted, units, _spearman)
    metric, classes = ADDITIVE.get(name) or ABOVE_CHANCE[name], 0
    if name == "span-f1":
        gold, predicted, units, ends = _words(gold, predicted, units, label_names, sentences)
        planes = span_planes(gold, predicted, ends, label_names)
    else:
        if metric.coded:
            gold, predicted, classes = _codes(gold, predicted)
        planes = metric.planes(gold, predicted, classes)
    blocks = [units.total(plane) for plane in planes]
    blocks.append(units.total(np.ones((1, units.rows), dtype=bool)))
    most = 1.1 * max(WEIGHT, units.count * scale(units.count))
    exact = all(b.dtype == np.float32 for b in blocks) and max(b.max() for b in blocks) * most < EXACT
    matrix = np.concatenate(blocks, dtype=np.float32 if exact else np.float64)
    cuts = (0, *np.cumsum([len(b) for b in blocks]).tolist())
    sums = UnitSums(matrix, cuts, len(predicted), metric.value)
    counted = name in COUNTED or (name in ABOVE_CHANCE and metric.coded)
    return replace(sums, pseudo=_pseudo(name, metric, gold, predicted, classes, sums)) if counted else sums


def scale(units: int) -> int:
    """The factor that makes the weights of units whole numbers, so that sums are exact in any order and independent of
    which fits are computed together."""
    return 1 << max(3, int(np.log2(WEIGHT / (units + 6 * np.sqrt(units)))))


def _pseudo(
    name: str, metric: Additive, gold: np.ndarray, predicted: np.ndarray, classes: int, sums: UnitSums
) -> Pseudo:
    """One additional right and one wrong answer; for two classes, half of one in each cell of the table.

    Accuracy has two cells; F1 has cells for true positives, false negatives and false positives; many classes have a
    right cell per class, and confused pairs of classes, up to `CELLS`, with the same total weight.
    """
    by_unit = sums.by_unit()
    every = by_unit[0].sum(1)
    if name in ("f1", "span-f1"):
        a, b = np.array([1, 1, 0]), np.array([1, 0, 1])
        mass, partner = np.full(3, 0.5), np.array([0, 0, -1])
        hit, true, pred = by_unit[:3]
        held = np.stack(np.broadcast_arrays(every, true.sum(1) - every, pred.sum(1) - every), axis=1) > 0
        known = np.ones_like(held)
        planes, of = np.stack([a & b, a, b, np.ones(3, dtype=int)]), true + pred - hit
    elif name in ("accuracy", "token-accuracy", "exact-match", "exact-match-1.1"):
        a, b = np.array([0, 0]), np.array([0, 1])
        mass, hit, of, partner = np.ones(2), by_unit[0], by_unit[-1], np.zeros(2, dtype=int)
        held = np.stack([every, by_unit[-1].sum() - every], axis=1) > 0
        known = np.ones_like(held)
        planes = np.stack([a == b, np.ones(2, dtype=int)])
    else:
        a, b = _cells(np.arange(2) if classes == 2 else np.unique(gold))
        count = np.array([np.bincount(g * classes + p, minlength=classes**2) for g, p in _rows(gold, predicted)])
        table = count.reshape(-1, classes, classes)
        met = (table.sum(1) + table.sum(2) > 0) | (classes == 2)
        held, known = count[:, a * classes + b] > 0, met[:, a] & met[:, b]
        partner = np.arange(len(a)) % (a == b).sum()
        many = (
            (a == b).sum() / 2 if name == "balanced-accuracy" else 1
        )  # Jeffreys' ½ and ½ for the recall of each class
        mass = many * np.where(a == b, 1 / (a == b).sum(), 1 / max(1, (a != b).sum()))
        planes = np.concatenate([*metric.planes(a[None], b[None], classes), np.ones((1, len(a)))])
        hit = np.sum(by_unit[:-1:3], axis=0) if metric.planes is by_class_planes else by_unit[0]
        of = by_unit[-1]
    size = _design_effect(hit, of, by_unit[-1])
    degrees = _degrees(hit, of, by_unit[-1], size)
    return Pseudo(planes.astype(np.float64), mass, a == b, partner, held, known, size, degrees)


def freedom(away: np.ndarray) -> np.ndarray:
    """Degrees of freedom of a standard error, (F,), from the kurtosis of what units (F, units) add to an estimate.

    (Satterthwaite 1946.)
    """
    units = away.shape[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        kurtosis = units * (away**4).sum(1) / (away**2).sum(1) ** 2
        found = np.nan_to_num(units / np.maximum(kurtosis - 1, 1), nan=1)
    return np.asarray(np.clip(found, 1, max(1, units - 1)))


def _rows(gold: np.ndarray, predicted: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return zip(np.broadcast_to(gold, predicted.shape), predicted, strict=True)


def _cells(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gold and predicted class of each cell: the diagonal and other cells, up to `CELLS`, each class equally often."""
    k = len(classes)
    shifts = range(1 + min(k - 1, max(1, CELLS // k)))
    at = np.tile(np.arange(k), len(shifts))
    return classes[at], classes[(at + np.repeat(shifts, k)) % k]


def _design_effect(hit: np.ndarray, of: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The variance of the proportion of hits relative to independent outcomes, in eighths, (F,).

    From 1 to what it would be if all outcomes of a unit were equal (their mean number, weighted by itself), at most the
    mean size of a unit; this is also the value where all are hits, or none is, and it cannot be estimated. Outcomes are
    what the metric counts: of words, span F1 counts gold and predicted spans.
    """
    units, size = rows.shape[1], max(1.0, rows.mean())
    if size == 1:
        return np.ones(len(hit))
    every = of.sum(1)
    alike = np.divide((of**2).sum(1), every, out=np.ones(len(every)), where=every > 0)
    most = np.broadcast_to(np.minimum(size, alike), len(hit))
    share = np.divide(hit.sum(1), every, out=np.zeros(len(hit)), where=every > 0)
    alone = share * (1 - share) * every
    spread = ((hit - share[:, None] * of) ** 2).sum(1) * units / max(1, units - 1)
    ratio = np.divide(spread, alone, out=most.copy(), where=alone > 0)
    return np.ceil(8 * np.clip(ratio, 1, most)) / 8


def _degrees(hit: np.ndarray, of: np.ndarray, rows: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Degrees of freedom of the variance of the proportion of hits between units, (F,), from 1 to units - 1.

    units / (kurtosis - 1), half of Satterthwaite's (1946), since samples underestimate the kurtosis; what as many
    independent rows as the units are worth (rows / size) would have of it is left to the posterior, so that copies
    change nothing.
    """
    units = rows.shape[1]
    most = max(1, units - 1)
    if rows.max() <= 1:
        return np.full(len(hit), float(most))
    every = of.sum(1)
    share = np.divide(hit.sum(1), every, out=np.zeros(len(hit)), where=every > 0)
    away, alone = (hit - share[:, None] * of) ** 2, share * (1 - share)
    with np.errstate(invalid="ignore", divide="ignore"):
        between = (away**2).sum(1) / away.sum(1) ** 2 - 1 / units
        within = ((1 - 3 * alone) / alone - 1) * size / every
        return np.clip(np.nan_to_num(1 / np.maximum(between - within, 1 / most), nan=most), 1, most)


def _codes(gold: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    low, high = min(gold.min(), predicted.min()), max(gold.max(), predicted.max())
    if gold.dtype.kind in "iu" and predicted.dtype.kind in "iu" and low >= 0 and high < 1000:
        return gold, predicted, int(high) + 1
    classes = np.union1d(gold, predicted)
    return np.searchsorted(classes, gold), np.searchsorted(classes, predicted), len(classes)


def _spearman(gold: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    if not np.isfinite(predicted).all():
        return np.full(len(weights), np.nan)
    n = weights.sum(1)
    y, p = (_ranks(x, weights) / n[:, None] for x in (gold, predicted))
    sums = [np.einsum("ri,ri->r", weights, a) / n for a in (y, p)]
    return correlation(*sums, *(np.einsum("ri,ri,ri->r", weights, a, b) / n for a, b in ((y, y), (p, p), (y, p))))


def _ranks(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Average ranks of x (n,) in each resample, (R, n), centred to reduce rounding errors."""
    position = np.unique(x, return_inverse=True)[1]
    order = np.argsort(position, kind="stable")
    count = np.add.reduceat(weights[:, order], np.flatnonzero(np.diff(position[order], prepend=-1)), axis=1)
    return (np.cumsum(count, 1) - (count - 1) / 2)[:, position] - (weights.sum(1, keepdims=True) + 1) / 2


def _words(
    gold: np.ndarray, predicted: np.ndarray, units: Units, label_names: Sequence[str], sentences: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, Units, np.ndarray]:
    """Tags as codes per word, and the ends of sentences, bool (words,)."""
    if gold.dtype != object:
        sentence = units.of if sentences is None else np.unique(sentences, return_inverse=True)[1].reshape(-1)
        if sentence is None or not label_names:
            raise UsageError("span-f1 needs the sentence of each word (groups or sentences) and the label_names.")
        return gold, predicted, units, np.append(np.diff(sentence) != 0, True)
    length = np.array([len(tags) for tags in gold[0]])
    code = {name: i for i, name in enumerate(label_names)}
    flat = [np.array([[code[t] for s in tags for t in s] for tags in y]) for y in (gold, predicted)]
    sentence = np.repeat(np.arange(len(length)) if units.of is None else units.of, length)
    ends = np.zeros(length.sum(), dtype=bool)
    ends[np.cumsum(length)[length > 0] - 1] = True
    return flat[0], flat[1], Units(len(sentence), sentence), ends
