"""Metrics as functions of sums over the evaluated examples, for many fits and many resamples at once.

Accuracy, F1, Matthews' and Pearson's coefficients and the like are functions of a few sums over the examples. A
resample only weights the examples, so all sums of all fits in all resamples are one matrix product:
(sums × fits, units) @ (units, resamples). A unit is what is drawn as a whole: an example, or a group of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
from scipy import stats

from probekit.errors import UsageError
from probekit.metrics import OUTSIDE, span_closes, span_opens, span_part

__all__ = [
    "ADDITIVE",
    "COUNTED",
    "Pseudo",
    "Rows",
    "Score",
    "Side",
    "Statistic",
    "Sums",
    "Units",
    "scale",
    "span_finder",
    "statistic",
]

Score = Callable[[np.ndarray, np.ndarray], float]
Side = Literal["both", "low", "high", "none"]
"""Which end of an interval pseudo-examples are for; "none" has none."""
EXACT = 1 << 24  # float32 counts up to here without rounding
WEIGHT = 1 << 20  # what the weights of a resample add up to, about
CELLS = 512  # pseudo-examples of many classes


class Statistic(Protocol):
    """A metric of F fits on the same examples, to be asked for weights of the units."""

    def at(self, weights: np.ndarray) -> np.ndarray:
        """The metric in each resample, float64 (F, R), for weights (R, units): how often each unit is drawn."""

    def without(self) -> np.ndarray:
        """The metric without each unit in turn, float64 (F, units)."""


@dataclass(frozen=True, slots=True)
class Units:
    """Which rows are drawn together: ``of`` (n,) int, the unit of each row; None where each row is one."""

    rows: int
    of: np.ndarray | None = None

    @classmethod
    def of_groups(cls, groups: np.ndarray | None, rows: int) -> Units:
        """Rows of one group, of any dtype, make up one unit. Raises UsageError for another shape than (n,)."""
        if groups is None:
            return cls(rows)
        if np.shape(groups) != (rows,):
            raise UsageError(f"groups have the shape {np.shape(groups)}; one for each of the {rows} rows is wanted.")
        return cls(rows, np.unique(np.asarray(groups), return_inverse=True)[1].astype(np.int64))

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
class Additive:
    """A metric made of sums.

    Attributes
    ----------
    planes : Callable[[np.ndarray, np.ndarray, int], Iterator[np.ndarray]]
        Of gold (1 or F, n), predicted (F, n) and the number of classes: arrays (1 or F, n) to be summed.
    value : Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]
        Of their totals, each (1 or F, R), and the number of rows drawn (R,): the metric (F, R).
    coded : bool, default False
        Gold and predicted are wanted as codes 0 … classes - 1.
    """

    planes: Callable[[np.ndarray, np.ndarray, int], Iterator[np.ndarray]]
    value: Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]
    coded: bool = False


@dataclass(frozen=True, slots=True)
class Pseudo:
    """Pseudo-examples of a table of counts: one a cell, with a prior's weight (Jeffreys' ½ a cell of two classes).

    Attributes
    ----------
    planes : np.ndarray
        (planes + 1, cells), what each adds to the sums; the last row is 1.
    mass : np.ndarray
        (cells,), the shape of each weight's gamma distribution.
    right : np.ndarray
        Bool (cells,), whether the prediction is right.
    held : np.ndarray
        Bool (F, cells), whether an example lies in the cell.
    known : np.ndarray
        Bool (F, cells), whether the fit has met both classes of the cell.
    size : np.ndarray
        (F,), how many examples say as much as one would say alone: the design effect of groups.
    """

    planes: np.ndarray
    mass: np.ndarray
    right: np.ndarray
    held: np.ndarray
    known: np.ndarray
    size: np.ndarray

    def used(self, side: Side) -> np.ndarray:
        """How much of each cell's weight counts, (F, cells). An empty cell of right answers lifts no lower end, one of
        wrong answers lowers no upper end: nothing right may mean 0, nothing wrong may mean 1."""
        left_out = ~self.held & {"both": self.right & ~self.right, "low": self.right, "high": ~self.right}[side]
        return (self.known & ~left_out) * self.size[:, None]


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of an additive metric by unit: ``matrix`` (planes × their rows, units), the last row counts rows."""

    matrix: np.ndarray
    cuts: tuple[int, ...]
    fits: int
    value: Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]
    pseudo: Pseudo | None = None

    def at(self, weights: np.ndarray) -> np.ndarray:
        return self._of(self.matrix @ weights.astype(self.matrix.dtype, copy=False).T)

    def posterior(self, weights: np.ndarray, masses: np.ndarray, sides: Sequence[Side] = ("both",)) -> list[np.ndarray]:
        """The metric with the pseudo-examples added, (F, R) for each side; weights (R, units), masses (R, cells)."""
        totals = self.matrix @ weights.astype(self.matrix.dtype, copy=False).T
        return [self._of(totals, self._more(masses, side)) for side in sides]

    def _more(self, masses: np.ndarray, side: Side) -> list[np.ndarray] | None:
        if side == "none" or self.pseudo is None:
            return None
        used = self.pseudo.used(side)
        return [(used * plane) @ masses.T for plane in self.pseudo.planes]

    def without(self) -> np.ndarray:
        return self._of(self.matrix.sum(1, dtype=np.float64, keepdims=True) - self.matrix)

    def by_unit(self) -> list[np.ndarray]:
        """The sums of each unit, an array (1 or F, units) a plane; the last, (1, units), counts rows."""
        return [self.matrix[a:b].astype(np.float64) for a, b in pairwise(self.cuts)]

    def _of(self, totals: np.ndarray, more: Sequence[np.ndarray] | None = None) -> np.ndarray:
        parts = [totals[a:b].astype(np.float64) for a, b in pairwise(self.cuts)]
        if more is not None:
            parts = [a + b for a, b in zip(parts, more, strict=True)]
        *parts, n = parts
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.broadcast_to(self.value(parts, n if len(n) > 1 else n[0]), (self.fits, totals.shape[1]))


@dataclass(frozen=True, slots=True)
class Rows:
    """A metric that is no function of sums: ``value`` of gold (n,), predicted (n,) and weights of rows (R, n)."""

    gold: np.ndarray
    predicted: np.ndarray
    units: Units
    value: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

    def at(self, weights: np.ndarray) -> np.ndarray:
        gold = np.broadcast_to(self.gold, self.predicted.shape)
        rows = self.units.spread(weights).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.array([self.value(g, p, rows) for g, p in zip(gold, self.predicted, strict=True)])

    def without(self) -> np.ndarray:
        count, step = self.units.count, max(1, EXACT // self.units.rows)
        ones = (1.0 - np.eye(min(step, count - at), count, at) for at in range(0, count, step))
        return np.concatenate([self.at(weights) for weights in ones], axis=1)


def statistic(
    name: str,
    gold: np.ndarray,
    predicted: np.ndarray,
    units: Units,
    *,
    label_names: Sequence[str] = (),
    sentences: np.ndarray | None = None,
) -> Statistic:
    """The metric ``name`` of fits. gold (1 or F, n), predicted (F, n); of "log-loss", predicted holds the losses.

    "span-f1" takes lists of tag names, one a sentence, or codes of ``label_names`` and the sentence of each word; for
    None a unit is a sentence.
    """
    if name == "spearman":
        return Rows(gold, predicted, units, _spearman)
    metric, classes = ADDITIVE[name], 0
    if name == "span-f1":
        gold, predicted, units, ends = _words(gold, predicted, units, label_names, sentences)
        planes = _span_planes(gold, predicted, ends, label_names)
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
    sums = Sums(matrix, cuts, len(predicted), metric.value)
    return replace(sums, pseudo=_pseudo(name, gold, predicted, classes, sums)) if name in COUNTED else sums


def scale(units: int) -> int:
    """What the weights of so many units are multiplied by, to be whole numbers: sums of them are exact in any order,
    and so are alike whatever is asked for together."""
    return 1 << max(3, int(np.log2(WEIGHT / (units + 6 * np.sqrt(units)))))


def _pseudo(name: str, gold: np.ndarray, predicted: np.ndarray, classes: int, sums: Sums) -> Pseudo:
    """One right and one wrong answer more, of two classes half of one in each cell of the table.

    Accuracy has two cells; F1 those of right, missed and false positives; many classes have each class right, and pairs
    of classes taken for one another, up to `CELLS`, so that all together do not count for more.
    """
    by_unit = sums.by_unit()
    every = by_unit[0].sum(1)
    if name in ("f1", "span-f1"):
        a, b = np.array([1, 1, 0]), np.array([1, 0, 1])
        mass = np.full(3, 0.5)
        hit, true, pred = by_unit[:3]
        held = np.stack(np.broadcast_arrays(every, true.sum(1) - every, pred.sum(1) - every), axis=1) > 0
        known = np.ones_like(held)
        planes, of = np.stack([a & b, a, b, np.ones(3, dtype=int)]), true + pred - hit
    elif name in ("accuracy", "token-accuracy"):
        a, b = np.array([0, 0]), np.array([0, 1])
        mass, hit, of = np.ones(2), by_unit[0], by_unit[-1]
        held = np.stack([every, by_unit[-1].sum() - every], axis=1) > 0
        known = np.ones_like(held)
        planes = np.stack([a == b, np.ones(2, dtype=int)])
    else:
        a, b = _cells(np.arange(2) if classes == 2 else np.unique(gold))
        count = np.array([np.bincount(g * classes + p, minlength=classes**2) for g, p in _rows(gold, predicted)])
        table = count.reshape(-1, classes, classes)
        met = (table.sum(1) + table.sum(2) > 0) | (classes == 2)
        held, known = count[:, a * classes + b] > 0, met[:, a] & met[:, b]
        mass = np.where(a == b, 1 / (a == b).sum(), 1 / max(1, (a != b).sum()))
        planes = np.concatenate([*ADDITIVE[name].planes(a[None], b[None], classes), np.ones((1, len(a)))])
        hit = np.sum(by_unit[:-1:3], axis=0) if name == "macro-f1" else by_unit[0]
        of = by_unit[-1]
    size = _design_effect(hit, of, by_unit[-1])
    return Pseudo(planes.astype(np.float64), mass, a == b, held, known, size)


def _rows(gold: np.ndarray, predicted: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return zip(np.broadcast_to(gold, predicted.shape), predicted, strict=True)


def _cells(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gold and predicted class of each cell: the diagonal, and of many classes so many others, each class as often."""
    k = len(classes)
    shifts = range(1 + min(k - 1, max(1, CELLS // k)))
    at = np.tile(np.arange(k), len(shifts))
    return classes[at], classes[(at + np.repeat(shifts, k)) % k]


def _design_effect(hit: np.ndarray, of: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How much more the share of hits varies than it would if rows were independent, in eighths, (F,).

    1 to the mean size of a unit; that size where all rows are alike and nothing can be said.
    """
    units, size = rows.shape[1], max(1.0, rows.mean())
    if size == 1:
        return np.ones(len(hit))
    every = of.sum(1)
    share = np.divide(hit.sum(1), every, out=np.zeros(len(hit)), where=every > 0)
    alone = share * (1 - share) * every
    spread = ((hit - share[:, None] * of) ** 2).sum(1) * units / max(1, units - 1)
    ratio = np.divide(spread, alone, out=np.full(len(hit), size), where=alone > 0)
    return np.ceil(8 * np.clip(ratio, 1, size)) / 8


def _codes(gold: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    low, high = min(gold.min(), predicted.min()), max(gold.max(), predicted.max())
    if gold.dtype.kind in "iu" and predicted.dtype.kind in "iu" and low >= 0 and high < 1000:
        return gold, predicted, int(high) + 1
    classes = np.union1d(gold, predicted)
    return np.searchsorted(classes, gold), np.searchsorted(classes, predicted), len(classes)


def _share_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    yield gold == predicted


def _mean(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    return parts[0] / n


def _f1_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    true, pred = gold == 1, predicted == 1
    yield from (true & pred, true, pred)


def _f1(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    hit, true, pred = parts
    return np.nan_to_num(2 * hit / (true + pred))


def _macro_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    for c in range(classes):
        true, pred = gold == c, predicted == c
        yield from (true & pred, true, pred)


def _macro_f1(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    """Over the classes that the resample holds, in gold or prediction."""
    total, held = np.zeros(()), np.zeros(())
    for hit, true, pred in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        both = true + pred
        total, held = total + np.nan_to_num(2 * hit / both), held + (both > 0)
    return total / held


def _matthews_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    yield gold == predicted
    for c in range(1, classes):  # what is of no other class is of class 0
        yield from (gold == c, predicted == c)


def _matthews(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    """Gorodkin 2004, equation 8; 0 where gold or prediction is constant."""
    hit, true, pred = parts[0], parts[1::2], parts[2::2]
    true, pred = ([n - sum(counts), *counts] for counts in (true, pred))
    both, true2, pred2 = (
        sum(a * b for a, b in zip(x, y, strict=True)) for x, y in ((true, pred), (true, true), (pred, pred))
    )
    spread = (n**2 - pred2) * (n**2 - true2)
    return np.where(spread > 0, (hit * n - both) / np.sqrt(np.where(spread > 0, spread, 1)), 0.0)


def _pearson_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    y, p = _centred(gold), _centred(predicted)
    yield from (y, p, y * y, p * p, y * p)


def _centred(x: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1; what is constant becomes exactly 0."""
    x = x.astype(np.float64) - x[:, :1]
    x -= x.mean(1, keepdims=True)
    spread = x.std(1, keepdims=True)
    return x / np.where(spread == 0, 1, spread)


def _pearson(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    return _correlation(*(total / n for total in parts))


def _correlation(my: np.ndarray, mp: np.ndarray, yy: np.ndarray, pp: np.ndarray, yp: np.ndarray) -> np.ndarray:
    """Of first and second moments. Gold values that are all the same: NaN; predictions that are: 0."""
    vy, vp = yy - my**2, pp - mp**2
    flat = vp <= 1e-12 * np.maximum(1, pp)
    r = (yp - my * mp) / np.sqrt(np.where(vy > 1e-12 * np.maximum(1, yy), vy, np.nan) * np.where(flat, 1, vp))
    return np.where(flat & ~np.isnan(r), 0.0, r)


def _rmse_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    yield (gold.astype(np.float64) - predicted) ** 2


def _rmse(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    return np.sqrt(parts[0] / n)


def _loss_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    yield predicted.astype(np.float64)


def _spearman(gold: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    if not np.isfinite(predicted).all():
        return np.full(len(weights), np.nan)
    n = weights.sum(1)
    y, p = (_ranks(x, weights) / n[:, None] for x in (gold, predicted))
    sums = [np.einsum("ri,ri->r", weights, a) / n for a in (y, p)]
    return _correlation(*sums, *(np.einsum("ri,ri,ri->r", weights, a, b) / n for a, b in ((y, y), (p, p), (y, p))))


def _ranks(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Average ranks of x (n,) in each resample, (R, n), centred for the sake of rounding."""
    position = stats.rankdata(x, method="dense") - 1
    order = np.argsort(position, kind="stable")
    count = np.add.reduceat(weights[:, order], np.flatnonzero(np.diff(position[order], prepend=-1)), axis=1)
    return (np.cumsum(count, 1) - (count - 1) / 2)[:, position] - (weights.sum(1, keepdims=True) + 1) / 2


def _words(
    gold: np.ndarray, predicted: np.ndarray, units: Units, label_names: Sequence[str], sentences: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, Units, np.ndarray]:
    """Tags as codes of words, and where a sentence ends, bool (words,)."""
    if gold.dtype != object:
        sentence = units.of if sentences is None else np.unique(sentences, return_inverse=True)[1].reshape(-1)
        if sentence is None or not label_names:
            raise UsageError("span-f1 wants the sentence of each word (groups or sentences) and the label_names.")
        return gold, predicted, units, np.append(np.diff(sentence) != 0, True)
    length = np.array([len(tags) for tags in gold[0]])
    code = {name: i for i, name in enumerate(label_names)}
    flat = [np.array([[code[t] for s in tags for t in s] for tags in y]) for y in (gold, predicted)]
    sentence = np.repeat(np.arange(len(length)) if units.of is None else units.of, length)
    ends = np.zeros(length.sum(), dtype=bool)
    ends[np.cumsum(length)[length > 0] - 1] = True
    return flat[0], flat[1], Units(len(sentence), sentence), ends


def span_finder(
    names: Sequence[str], ends: np.ndarray
) -> tuple[Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]], int]:
    """Entities as conlleval finds them in codes of words, ends telling where sentences end, bool (words,).

    Returns a function of codes (words,): whether an entity closes at the word, where it began, and its type; and the
    number of types.
    """
    kinds = [OUTSIDE, *map(span_part, names)]
    opens, closes = (np.array([[f(a, b) for b in kinds] for a in kinds]) for f in (span_opens, span_closes))
    types = np.unique([kind for _, kind in kinds], return_inverse=True)[1]

    def spans(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tags = codes + 1  # 0 stands between sentences
        after = np.where(ends, 0, np.append(tags[1:], 0))
        before = np.append(0, np.where(ends, 0, tags)[:-1])
        begin = np.maximum.accumulate(np.where(opens[before, tags], np.arange(len(tags)), -1))
        return closes[tags, after], begin, types[tags]

    return spans, int(types.max()) + 1


def _span_planes(
    gold: np.ndarray, predicted: np.ndarray, ends: np.ndarray, names: Sequence[str]
) -> Iterator[np.ndarray]:
    """Entities at their last word: right ones, gold ones, predicted ones."""
    spans, _ = span_finder(names, ends)
    true = [spans(row) for row in gold]
    pred = [spans(row) for row in predicted]
    hits = [
        t[0] & p[0] & (t[1] == p[1]) & (t[2] == p[2])
        for t, p in zip(true * (len(pred) if len(true) == 1 else 1), pred, strict=True)
    ]
    yield from (np.array(hits), np.array([t[0] for t in true]), np.array([p[0] for p in pred]))


ADDITIVE: dict[str, Additive] = {
    "accuracy": Additive(_share_planes, _mean),
    "token-accuracy": Additive(_share_planes, _mean),
    "f1": Additive(_f1_planes, _f1),
    "macro-f1": Additive(_macro_planes, _macro_f1, coded=True),
    "matthews": Additive(_matthews_planes, _matthews, coded=True),
    "span-f1": Additive(_f1_planes, _f1),
    "pearson": Additive(_pearson_planes, _pearson),
    "rmse": Additive(_rmse_planes, _rmse),
    "log-loss": Additive(_loss_planes, _mean),
}

COUNTED = ("accuracy", "token-accuracy", "f1", "macro-f1", "matthews", "span-f1")
"""The metrics of a table of counts."""
