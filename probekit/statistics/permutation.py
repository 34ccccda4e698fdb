"""What chance gives: metrics computed again after predictions were exchanged between fits.

A metric such as F1 or Matthews' coefficient is a ratio of sums over the examples, so chance is not a sum over examples
either: the exchange is done, and the metric computed again of what it leaves. All draws are a few matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import stats

from probekit.errors import UsageError
from probekit.statistics._sums import Sums, Units, statistic
from probekit.statistics.predictions import Predictions

__all__ = ["Chance", "exchanged", "of_controls", "ranks"]

BLOCK = 1 << 24  # numbers held at once
Chance = tuple[np.ndarray, np.ndarray]
"""What was observed, (K,), and the same in each draw of chance, (K, R); NaN where it is undefined."""


def exchanged(
    evaluated: Predictions, pairs: Sequence[tuple[int, Sequence[int]]], metric: str, *, draws: int, seed: int
) -> Chance:
    """Differences between a fit and the mean of some others, and what they are once the fits' outcomes are exchanged.

    For each example (group) a number is drawn, and what the 1 + k fits of a pair said of it moves on by so many fits;
    the metric of each is then computed again. Where it makes no difference which fit said what of an example this is
    exact, whatever the metric (Hemerik & Goeman 2018, theorem 2: these moves are a group). The gold label moves with
    the prediction, which tells only where fits were asked for different labels. The same numbers are drawn for all
    pairs.

    Parameters
    ----------
    evaluated : Predictions
        Of n examples.
    pairs : sequence of tuple
        Positions of a fit and of those it is held against.
    metric : str
        Of "pearson" and "spearman", predictions are exchanged as they enter it: standardised, or as ranks.

    Returns
    -------
    tuple of ndarray
        The differences, float64 (K,), and those of each draw, (K, draws).
    """
    used = sorted({f for one, others in pairs for f in (one, *others)})
    place = {f: i for i, f in enumerate(used)}
    sums = _sums(evaluated.take(used), metric)
    observed, null = np.empty(len(pairs)), np.empty((len(pairs), draws))
    for size in sorted({1 + len(others) for _, others in pairs}):
        at = [k for k, (_, others) in enumerate(pairs) if 1 + len(others) == size]
        fits = np.array([[place[f] for f in (pairs[k][0], *pairs[k][1])] for k in at])
        rows = np.stack([np.where(many, a + fits, a) for a, many in _planes(sums)], axis=2)
        units = sums.matrix.shape[1]
        observed[at] = _moved(sums, rows, np.zeros((1, units), dtype=np.int8))[:, 0]
        rng, block = np.random.default_rng([seed, size]), max(1, BLOCK // units)
        inner = max(1, BLOCK // (size * (len(sums.matrix) + rows.size)))
        for start in range(0, draws, block):
            slots = rng.integers(size, size=(min(block, draws - start), units), dtype=np.int32).astype(np.int16)
            for i in range(0, len(slots), inner):
                part = slots[i : i + inner]
                null[at, start + i : start + i + len(part)] = _moved(sums, rows, part)
    return observed, null


def _planes(sums: Sums) -> list[tuple[int, bool]]:
    """Where each block of sums begins, and whether it has a row for each fit; without the count of rows."""
    return [(a, b - a > 1) for a, b in pairwise(sums.cuts)][:-1]


def _moved(sums: Sums, rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """First minus the mean of the others, (pairs, R), once unit u of pairs has moved on by slots (R, u) fits.

    rows (pairs, 1 + k, planes): where a fit's sums are in the matrix.
    """
    size, n = rows.shape[1], sums.matrix[-1].sum(dtype=np.float64)
    parts = [sums.matrix @ (slots == s).T.astype(sums.matrix.dtype) for s in range(size)]
    values = []
    for i in range(size):
        total = sum(parts[s][rows[:, (i + s) % size]].astype(np.float64) for s in range(size))
        with np.errstate(invalid="ignore", divide="ignore"):
            value = sums.value(list(np.moveaxis(total, 1, 0)), np.full(len(slots), n))
        values.append(np.broadcast_to(value, (len(rows), len(slots))))
    return values[0] - np.mean(values[1:], axis=0)


def _sums(e: Predictions, metric: str) -> Sums:
    """The sums by unit of all fits."""
    gold, predicted = e.gold, _said(e, metric)
    if gold.ndim == 2 and (gold == gold[:1]).all():
        gold = gold[0]
    gold = np.atleast_2d(gold)
    if metric == "spearman":  # Pearson's coefficient of ranks
        gold, predicted, metric = ranks(gold), ranks(predicted), "pearson"
    units = Units.of_groups(e.groups, len(e.ids))
    found = statistic(metric, gold, predicted, units, label_names=e.label_names, sentences=e.sentences)
    if not isinstance(found, Sums):
        raise UsageError(f"{metric} is no function of sums over examples; fits cannot be exchanged by it.")
    return found


def _said(e: Predictions, metric: str) -> np.ndarray:
    if metric != "log-loss":
        return e.predicted
    if e.log_loss is None:
        raise UsageError("log-loss wants the losses of the examples (log_loss), and there are none.")
    return e.log_loss


def ranks(x: np.ndarray) -> np.ndarray:
    """Average ranks of numbers within each row of (F, n)."""
    return np.asarray(stats.rankdata(x, axis=1, nan_policy="propagate"))


def of_controls(evaluated: Predictions, pairs: Sequence[tuple[int, Sequence[int]]], metric: str) -> Chance:
    """A metric of fits of gold labels, and of each of their controls as if it were gold.

    Exact where gold labels are one more draw of the control's; p is no smaller than 1 / (1 + draws).
    """
    used = sorted({f for one, others in pairs for f in (one, *others)})
    part = evaluated.take(used)
    with np.errstate(invalid="ignore"):
        value = dict(zip(used, _sums(part, metric).at(np.ones((1, _units(part))))[:, 0], strict=True))
    draws = min(len(others) for _, others in pairs)
    return np.array([value[f] for f, _ in pairs]), np.array([[value[g] for g in o[:draws]] for _, o in pairs])


def _units(e: Predictions) -> int:
    return Units.of_groups(e.groups, len(e.ids)).count
