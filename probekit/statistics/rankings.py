"""Ranks of models on each of several tasks and over all of them, with intervals and ties.

Models are evaluated on the same examples, so differences are paired: what makes an example hard for all models cancels.
Tests of many tasks that know one number for each model and task (Friedman 1937, Nemenyi 1963; Demšar 2006) take the
tasks as a sample of tasks, and find little with fewer than ten of them. Here the tasks are given, and the examples of
each are the sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats

from probekit.errors import UsageError

__all__ = ["Ranks", "ranks", "tied"]


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


def ranks(value: np.ndarray, again: np.ndarray, *, units: Sequence[int] | None = None, level: float = 0.95) -> Ranks:
    """Rank M models on T tasks, from their scores and paired resamples of the examples.

    Parameters
    ----------
    value : np.ndarray
        (T, M), higher is better; NaN if a model has no score (it has none if half of its resamples are undefined). The
        mean over tasks is of use only if the scores of the tasks are comparable, such as accuracies or normalised
        scores.
    again : np.ndarray
        (T, M, resamples): resample r draws the same examples for all models (and for tasks on the same examples).
    units : sequence of int, optional
        The number of examples or groups of each task, for wider intervals if there are few.
    level : float
        Coverage of the intervals.

    Raises
    ------
    UsageError
        If the shapes differ, or there are fewer than two models.

    Notes
    -----
    On a task, a model is shown to be better than another if the simultaneous interval of all pairs' differences (max-t)
    says so. The true rank of a model then lies between one plus the number of models shown to be better, and M minus
    the number shown to be worse (Klein, Wright & Wieczorek 2020; Mogstad, Romano, Shaikh & Wilhelm 2024). Percentiles
    of resampled ranks have no such coverage: where models are nearly equal, resampled ranks are pulled to the middle.

    Between two models, the number of tasks on which one is truly better is bounded from below by partial conjunctions
    of the one-sided p of the tasks (Benjamini & Heller 2008, with Simes' test, which allows for tasks that depend
    positively on each other, such as those of the same sentences). The interval of a model's mean rank adds these
    bounds over the other models, at a level divided by twice their number. True ties may have any order: intervals
    hold for each way to break them, and for the mean of the tied ranks.

    Intervals are about these fitted models on new examples of these tasks, not about other tasks or other trainings.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> value = np.array([[0.9, 0.8, 0.795], [0.7, 0.6, 0.605]])
    >>> again = value[:, :, None] + rng.normal(0, 0.01, size=(2, 3, 1000))
    >>> one = ranks(value, again)
    >>> one.rank.tolist(), one.groups
    ([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]], ((0,), (1, 2)))
    >>> one.mean_rank.tolist(), one.mean_low.tolist(), one.mean_high.tolist()
    ([1.0, 2.5, 2.5], [1.0, 2.0, 2.0], [1.0, 3.0, 3.0])
    """
    if again.ndim != 3 or value.shape != again.shape[:2] or value.shape[1] < 2:
        raise UsageError(
            f"scores have the shape {value.shape}, their resamples {again.shape}; expected (tasks, models) of two or "
            "more models, and (tasks, models, resamples)."
        )
    if units is not None and len(units) != len(value):
        raise UsageError(f"there are {len(units)} numbers of units for {len(value)} tasks.")
    moved = _deviations(again)
    if units is not None:
        moved = moved * np.array([_few(int(count), level) for count in units])[:, None, None]
    better = np.stack([_shown(v, m, level) for v, m in zip(value, moved, strict=True)])
    known = np.isfinite(value) & np.isfinite(moved).all(2)
    low, high = 1 + better.sum(1), known.sum(1, keepdims=True) - better.sum(2)
    rank = stats.rankdata(np.where(known, -value, np.nan), axis=1, nan_policy="omit")
    whole = known.all(1)
    mean, drawn = value[whole].mean(0), moved[whole].mean(0)
    overall = _shown(mean, drawn, level)
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
        *_mean_ranks(value[whole], moved[whole], level),
        tied(mean, overall),
    )


def _deviations(again: np.ndarray) -> np.ndarray:
    """Deviations from the mean of the resamples; 0 where one is undefined, NaN if half of them are."""
    there = np.isfinite(again)
    count = there.sum(2, keepdims=True)
    mean = np.where(there, again, 0).sum(2, keepdims=True) / np.maximum(count, 1)
    return np.where(2 * count > again.shape[2], np.where(there, again - mean, 0.0), np.nan)


def _few(units: int, level: float) -> float:
    """By how much resamples of few units are too narrow (Hesterberg 2015, section 5.3)."""
    if units < 2:
        return np.inf
    tail = (1 + level) / 2
    return float(np.sqrt(units / (units - 1)) * stats.t.ppf(tail, units - 1) / stats.norm.ppf(tail))


def _differences(value: np.ndarray, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs (M, 2), their differences in standard errors (P,), and the standardised resamples (P, resamples)."""
    pairs = np.array(list(combinations(range(len(value)), 2)))
    a, b = pairs.T
    away, difference = moved[a] - moved[b], value[a] - value[b]
    spread = away.std(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.where(difference == 0, 0.0, difference / spread)
        return pairs, np.where(spread > 0, size, np.nan), away / spread[:, None]


def _shown(value: np.ndarray, moved: np.ndarray, level: float) -> np.ndarray:
    """Which models are better than which, by simultaneous intervals of all pairs (max-t), bool (M, M)."""
    out = np.zeros((len(value), len(value)), dtype=bool)
    pairs, size, away = _differences(value, moved)
    known = np.isfinite(size) & np.isfinite(away).all(1)
    if known.any():
        reach = np.quantile(np.abs(away[known]).max(0), level)
        for (a, b), t in zip(pairs[known], size[known], strict=True):
            out[a, b], out[b, a] = t > reach, -t > reach
    return out


def _mean_ranks(value: np.ndarray, moved: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of the mean over tasks of the true ranks of each model, (M,) each."""
    tasks, models = value.shape
    if not tasks:
        return np.full(models, np.nan), np.full(models, np.nan)
    won = np.zeros((models, models))  # the number of tasks on which the first is shown to be better than the second
    sizes = np.stack([_differences(v, m)[1] for v, m in zip(value, moved, strict=True)])
    alpha = (1 - level) / (2 * (models - 1))
    for (a, b), size in zip(combinations(range(models), 2), np.nan_to_num(sizes).T, strict=True):
        won[a, b], won[b, a] = _conjunction(stats.norm.sf(size), alpha), _conjunction(stats.norm.cdf(size), alpha)
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
