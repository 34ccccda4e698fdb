"""Ranks of models on each of several tasks and over all of them, with intervals and ties.

Models are evaluated on the same examples, so differences are paired: what makes an example hard for all models cancels.
Tests of many tasks that know one number for each model and task (Friedman 1937, Nemenyi 1963; Demšar 2006) take the
tasks as a sample of tasks, and find little with fewer than ten of them. Here the tasks are given, and the examples of
each are the sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats

from probekit.errors import UsageError
from probekit.statistics.comparisons import in_deviations
from probekit.statistics.multiplicity import adjust, tails


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of M models on T tasks; 1 is best, equal scores share the mean of their ranks.

    Attributes
    ----------
    rank : np.ndarray
        (T, M), by score; NaN where a model has none.
    low, high : np.ndarray
        (T, M), intervals of the true ranks: on each task they hold for all models at once.
    better : np.ndarray
        Bool (T, M, M), whether the first model is shown to be better than the second on the task.
    mean : np.ndarray
        (M,), the mean score over the tasks that all models have.
    better_overall : np.ndarray
        Bool (M, M), whether the first model is shown to have a higher mean score over these tasks.
    overall, overall_low, overall_high : np.ndarray
        (M,), the rank by mean score, and intervals that hold for all models at once.
    mean_rank, mean_low, mean_high : np.ndarray
        (M,), the mean of the ranks on these tasks, and an interval of the mean of the true ranks, for each model alone.
    groups : tuple of tuple of int
        Models by mean score, the best first, in groups within which no difference of mean scores is shown: a model may
        be in several, as under the bars of a critical-difference diagram. See :func:`tied`.
    """

    rank: np.ndarray
    low: np.ndarray
    high: np.ndarray
    better: np.ndarray
    mean: np.ndarray
    better_overall: np.ndarray
    overall: np.ndarray
    overall_low: np.ndarray
    overall_high: np.ndarray
    mean_rank: np.ndarray
    mean_low: np.ndarray
    mean_high: np.ndarray
    groups: tuple[tuple[int, ...], ...]


def ranks(value: np.ndarray, null: np.ndarray, *, level: float = 0.95) -> Ranks:
    """Rank M models on T tasks, from their scores and from paired exchanges of their predictions.

    Parameters
    ----------
    value : np.ndarray
        (T, M), higher is better; NaN if a model has no score. The mean over tasks is of use only if the scores of the
        tasks are comparable, such as accuracies or normalised scores.
    null : np.ndarray
        (T, P, R): draws of the differences of the P pairs of models, (0, 1), (0, 2) … (1, 2) …, if their predictions
        are exchanged at random, example by example or group by group
        (:func:`probekit.statistics.permutation.exchanged`): draw r exchanges the same examples for all pairs, and for
        all tasks of these examples.
    level : float
        Coverage of the intervals.

    Raises
    ------
    UsageError
        If the shapes differ, or there are fewer than two models.

    Notes
    -----
    On a task, a model is shown to be better than another by the test of ``probekit compare``, corrected over all pairs
    of models (step-down max-t; Westfall & Young 1993). It is exact if the predictions of equally good models are
    exchangeable, however few examples tell them apart: with four, no difference is shown. The true rank of a model then
    lies between one plus the number of models shown to be better, and M minus the number shown to be worse (Klein,
    Wright & Wieczorek 2020; Mogstad, Romano, Shaikh & Wilhelm 2024). Percentiles of resampled ranks have no such
    coverage: where models are nearly equal, resampled ranks are pulled to the middle.

    Between two models, the number of tasks on which one is truly better is bounded from below by partial conjunctions
    of the one-sided p of the tasks (Benjamini & Heller 2008, with Simes' test, which allows for tasks that depend
    positively on each other, such as those of the same sentences). The interval of a model's mean rank adds these
    bounds over the other models, at a level divided by twice their number. True ties may have any order: intervals
    hold for each way to break them, and for the mean of the tied ranks.

    Intervals are about these fitted models on new examples of these tasks, not about other tasks or other trainings.

    Examples
    --------
    Two of three models, each right on so many of 200 examples of two tasks, are nearly alike:

    >>> rng = np.random.default_rng(0)
    >>> right = rng.random((2, 3, 200)) < np.array([[0.9, 0.7, 0.69], [0.8, 0.6, 0.61]])[:, :, None]
    >>> apart = right[:, [0, 0, 1]].astype(float) - right[:, [1, 2, 2]]
    >>> null = apart @ rng.choice([-1.0, 1.0], size=(200, 2000)) / 200
    >>> one = ranks(right.mean(2), null)
    >>> one.low.tolist(), one.high.tolist(), one.groups
    ([[1.0, 2.0, 2.0], [1.0, 2.0, 2.0]], [[1.0, 3.0, 3.0], [1.0, 3.0, 3.0]], ((0,), (2, 1)))
    """
    models = value.shape[-1]
    if value.ndim != 2 or models < 2 or null.ndim != 3 or null.shape[:2] != (len(value), models * (models - 1) // 2):
        raise UsageError(
            f"scores have the shape {value.shape}, exchanged differences {null.shape}; expected (tasks, models) of "
            "two or more models, and (tasks, pairs of models, draws)."
        )
    better = np.stack([_shown(v, drawn, level) for v, drawn in zip(value, null, strict=True)])
    known = np.isfinite(value)
    low, high = 1 + better.sum(1), known.sum(1, keepdims=True) - better.sum(2)
    rank = stats.rankdata(np.where(known, -value, np.nan), axis=1, nan_policy="omit")
    whole = known.all(1)
    mean = value[whole].mean(0)
    overall = _shown(mean, null[whole].mean(0), level)
    return Ranks(
        rank,
        np.where(known, low, np.nan),
        np.where(known, high, np.nan),
        better,
        mean,
        overall,
        stats.rankdata(-mean),
        1.0 + overall.sum(0),
        len(mean) - overall.sum(1, dtype=float),
        rank[whole].mean(0),
        *_mean_ranks(value[whole], null[whole], level),
        tied(mean, overall),
    )


def _differences(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (M, 2), and their differences (P,)."""
    pairs = np.array(list(combinations(range(len(value)), 2)))
    return pairs, value[pairs[:, 0]] - value[pairs[:, 1]]


def _shown(value: np.ndarray, null: np.ndarray, level: float) -> np.ndarray:
    """Which models are better than which, all pairs being one family (step-down max-t), bool (M, M)."""
    out = np.zeros((len(value), len(value)), dtype=bool)
    pairs, difference = _differences(value)
    known = np.isfinite(difference)
    pairs, difference = pairs[known], difference[known]
    size, drawn = in_deviations(difference, null[known], 0, np.zeros(len(difference)))
    p = adjust(-size, -np.nan_to_num(drawn, nan=np.inf))
    for (a, b), more, its in zip(pairs, difference, p, strict=True):
        out[a, b], out[b, a] = (more > 0) & (its <= 1 - level), (more < 0) & (its <= 1 - level)
    return out


def _mean_ranks(value: np.ndarray, null: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of the mean over tasks of the true ranks of each model, (M,) each."""
    tasks, models = value.shape
    if not tasks:
        return np.full(models, np.nan), np.full(models, np.nan)
    won = np.zeros((models, models))  # the number of tasks on which the first is shown to be better than the second
    more, less = np.stack([
        [tails(sign * _differences(v)[1], sign * drawn)[0] for v, drawn in zip(value, null, strict=True)]
        for sign in (1, -1)
    ])  # fmt: skip
    alpha = (1 - level) / (2 * (models - 1))
    for k, (a, b) in enumerate(combinations(range(models), 2)):
        won[a, b], won[b, a] = _conjunction(more[:, k], alpha), _conjunction(less[:, k], alpha)
    return 1 + won.sum(0) / tasks, models - won.sum(1) / tasks


def _conjunction(p: np.ndarray, alpha: float) -> int:
    """A lower bound of the number of false hypotheses among those with these p, with confidence 1 - alpha.

    "Fewer than u are false" is rejected by Simes' test of all p but the u - 1 smallest.
    """
    ordered = np.sort(p)
    for u in range(len(p)):
        rest = ordered[u:]
        if (rest * len(rest) / np.arange(1, len(rest) + 1)).min() > alpha:
            return u
    return len(p)


def tied(mean: np.ndarray, better: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """The longest runs of models in the order of their means, the best first, within which none is shown better.

    mean (M,), better bool (M, M).
    """
    order = [int(i) for i in np.argsort(-mean, kind="stable")]
    found: list[tuple[int, ...]] = []
    end = 0
    for start in range(len(order)):
        stop = start + 1
        while stop < len(order) and not better[np.ix_(order[start:stop], order[stop : stop + 1])].any():
            stop += 1
        if stop > end:
            found.append(tuple(order[start:stop]))
            end = stop
    return tuple(found)
