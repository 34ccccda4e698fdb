"""Permutation tests: metrics computed again after predictions are exchanged between fits.

A metric such as F1 or Matthews' coefficient is a ratio of sums over examples, so its null distribution is not one of a
sum of examples: predictions are exchanged, and the metric is computed again. All draws are a few matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy import stats

from probekit.errors import UsageError
from probekit.statistics._sums import Units, UnitSums, statistic
from probekit.statistics.bootstrap import COUNTED_AS, statistics
from probekit.statistics.over_labels import mean_of, over_labels, rows_by_label, rows_that_count
from probekit.statistics.predictions import Predictions
from probekit.statistics.scored import CALIBRATION, SORTED, Scores, exchanged_values, placements, ranks_of
from probekit.statistics.streams import uniform

BLOCK = 1 << 24  # numbers held at once
Chance = tuple[np.ndarray, np.ndarray]
"""Observed statistics, (K,), and those of each draw under the null, (K, R); NaN if undefined."""


def exchanged(
    evaluated: Predictions,
    pairs: Sequence[tuple[int, Sequence[int]]],
    metric: str,
    *,
    draws: int,
    seed: int,
    by_name: bool = False,
) -> Chance:
    """Differences between a fit and the mean of others, observed and with outcomes exchanged between the fits.

    For each example (group) a random number is drawn, by which the predictions of the 1 + k fits of a pair are rotated;
    the metric of each fit is then computed again. If predictions are exchangeable, the test is exact for every metric
    (Hemerik & Goeman 2018, theorem 2: the rotations form a group). The gold label moves with the prediction, which
    matters only if fits have different target labels. The same numbers are drawn for all pairs.

    Parameters
    ----------
    evaluated : Predictions
        Of n examples.
    pairs : sequence of tuple
        Positions of a fit and of its references.
    metric : str
        For "pearson" and "spearman", standardised predictions or ranks are exchanged, for metrics of scores the ranks
        of each class's scores; for "auroc" with what they add to the area.
    by_name : bool
        Whether groups are those of :func:`probekit.statistics.shared_units.shared_units`: tasks then share the random
        numbers of the groups that they share.

    Returns
    -------
    tuple of ndarray
        The differences, float64 (K,), and those of each draw, (K, draws).
    """
    used = sorted({f for one, others in pairs for f in (one, *others)})
    place = {f: i for i, f in enumerate(used)}
    units, height, planes, moved = _mover(evaluated.take(used), metric)
    names = Units.of_groups(evaluated.groups, len(evaluated.ids)).names if by_name else None
    observed, null = np.empty(len(pairs)), np.empty((len(pairs), draws))
    for size in sorted({1 + len(others) for _, others in pairs}):
        at = [k for k, (_, others) in enumerate(pairs) if 1 + len(others) == size]
        fits = np.array([[place[f] for f in (pairs[k][0], *pairs[k][1])] for k in at])
        observed[at] = moved(fits, np.zeros((1, units), dtype=np.int8))[:, 0]
        rng = np.random.default_rng([seed, size])
        block = max(1, BLOCK // (units if names is None else 8 * units))
        inner = max(1, BLOCK // (size * (height + planes * fits.size)))
        for start in range(0, draws, block):
            stop = min(start + block, draws)
            if names is None:
                slots = rng.integers(size, size=(stop - start, units), dtype=np.int32).astype(np.int16)
            else:
                slots = (uniform(names, start, stop, (seed, size, 3)) * size).astype(np.int16)
            for i in range(0, len(slots), inner):
                part = slots[i : i + inner]
                null[at, start + i : start + i + len(part)] = moved(fits, part)
    return observed, null


def _mover(e: Predictions, metric: str) -> tuple[int, int, int, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """The differences of pairs of fits (pairs, 1 + k) after units are rotated by slots (R, units): see `_moved`.

    Before it the numbers of units, of rows of sums, and of sums of a fit, which say how much memory it takes.
    """
    if metric in SORTED and metric != "auroc":
        if e.of_label is not None:
            parts = [
                _mover(replace(e.of_rows(rows), of_label=None), metric) for rows in rows_that_count(e.of_label, e.gold)
            ]
            moves = [part[3] for part in parts]
            return *parts[0][:3], lambda fits, slots: mean_of(np.stack([move(fits, slots) for move in moves]))
        of, scores = Units.of_groups(e.groups, len(e.ids)), _scores_of(e, metric)
        gold, ranks = np.broadcast_to(e.gold, e.predicted.shape), ranks_of(scores.part(0, len(e)))
        return (
            of.count,
            len(e),
            ranks.shape[2],
            lambda fits, slots: np.stack(
                [exchanged_values(metric, gold, ranks, pair, of.spread(slots)) for pair in fits]
            ),
        )
    sums = _sums(e, metric)
    planes = _planes(sums)
    return (
        sums.matrix.shape[1],
        len(sums.matrix),
        len(planes),
        lambda fits, slots: _moved(sums, np.stack([np.where(many, a + fits, a) for a, many in planes], axis=2), slots),
    )


def _placed(e: Predictions, gold: np.ndarray) -> np.ndarray:
    """What each row adds to the area, (F, n); to the mean of the areas of labels, where there are several."""
    scores = _scores_of(e, "auroc")
    if e.of_label is None:
        return placements(gold, scores.part(0, len(e)))
    out, known = np.zeros(e.predicted.shape), np.zeros((len(gold), 1))
    every = list(rows_by_label(e.of_label).values())
    for rows in every:
        out[:, rows] = placements(gold[:, rows], scores.rows(rows).part(0, len(e)))
        known += (gold[:, rows] == 1).any(1, keepdims=True) & (gold[:, rows] != 1).any(1, keepdims=True)
    return out * len(every) / np.maximum(known, 1)


def _scores_of(e: Predictions, metric: str) -> Scores:
    if (scores := e.scores) is None:
        raise UsageError(f"{metric} needs predicted probabilities of classes, and these predictions have none.")
    return scores


def _planes(sums: UnitSums) -> list[tuple[int, bool]]:
    """The start of each block of sums, and whether it has a row for each fit; without the count of rows."""
    return [(a, b - a > 1) for a, b in pairwise(sums.cuts)][:-1]


def _moved(sums: UnitSums, rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """First minus the mean of the others, (pairs, R), after unit u is rotated by slots (R, u) fits.

    rows (pairs, 1 + k, planes): the rows of a fit's sums in the matrix.
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


def _sums(e: Predictions, metric: str) -> UnitSums:
    """The sums by unit of all fits."""
    gold, predicted, metric = e.gold, _predictions_or_losses(e, metric), COUNTED_AS.get(metric, metric)
    if gold.ndim == 2 and (gold == gold[:1]).all():
        gold = gold[0]
    gold = np.atleast_2d(gold)
    if metric == CALIBRATION:
        raise UsageError(f"there is no test of {metric}; choose another metric.")
    if metric == "auroc":  # a mean of what ranks contribute
        predicted, metric = _placed(e, gold), "log-loss"
    if metric == "spearman":  # Pearson's coefficient of ranks
        gold, predicted, metric = _ranked(gold, e.of_label), _ranked(predicted, e.of_label), "pearson"
    if over_labels(metric, e.of_label):
        part = replace(e, gold=gold[0] if len(gold) == 1 else gold, predicted=predicted, metrics=(metric,))
        [(_, found)] = statistics(metric=metric, **part.sample())
        if isinstance(found, UnitSums):
            return found
        raise UsageError(f"{metric} of several labels cannot be exchanged between fits; choose another metric.")
    units = Units.of_groups(e.groups, len(e.ids))
    found = statistic(metric, gold, predicted, units, label_names=e.label_names, sentences=e.sentences)
    if not isinstance(found, UnitSums):
        raise UsageError(
            f"{metric} is not a function of sums over examples, so fits cannot be exchanged; choose another metric."
        )
    return found


def _ranked(x: np.ndarray, of_label: np.ndarray | None) -> np.ndarray:
    """Ranks of numbers within each row, and within each label, of (F, n)."""
    if of_label is None:
        return ranks(x)
    out = np.empty(x.shape)
    for rows in rows_by_label(of_label).values():
        out[:, rows] = ranks(x[:, rows])
    return out


def _predictions_or_losses(e: Predictions, metric: str) -> np.ndarray:
    if metric != "log-loss":
        return e.predicted
    if e.log_loss is None:
        raise UsageError("log-loss needs the losses of the examples (log_loss), but there are none.")
    return e.log_loss


def ranks(x: np.ndarray) -> np.ndarray:
    """Average ranks of numbers within each row of (F, n)."""
    return np.asarray(stats.rankdata(x, axis=1, nan_policy="propagate"))


def of_controls(evaluated: Predictions, pairs: Sequence[tuple[int, Sequence[int]]], metric: str) -> Chance:
    """A metric of fits of gold labels, and of their controls as draws under the null.

    Exact if gold labels are another draw of the control; p is at least 1 / (1 + draws).
    """
    used = sorted({f for one, others in pairs for f in (one, *others)})
    part = evaluated.take(used)
    with np.errstate(invalid="ignore"):
        value = dict(zip(used, _sums(part, metric).at(np.ones((1, _units(part))))[:, 0], strict=True))
    draws = min(len(others) for _, others in pairs)
    return np.array([value[f] for f, _ in pairs]), np.array([[value[g] for g in o[:draws]] for _, o in pairs])


def _units(e: Predictions) -> int:
    return Units.of_groups(e.groups, len(e.ids)).count
