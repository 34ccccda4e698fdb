"""Scores of two classes: the area under the ROC curve, and recall at a small rate of false positives.

A positive is an example of class 1. A threshold for the rate r is the smallest score above which at most the share r of
the negatives lies, so r needs at least 1 / r negatives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from probekit.statistics.bootstrap import FEWEST, draws
from probekit.statistics.clusters import reach, standard_error

__all__ = ["Difference", "area", "area_influence", "area_interval", "difference", "own_recall", "smallest_rate",
           "threshold"]  # fmt: skip


def area(y: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The area under the ROC curve: how often a positive has a higher score than a negative; ties count half.

    Parameters
    ----------
    y : np.ndarray
        Int (n,), 0 or 1.
    scores : np.ndarray
        Float (F, n).

    Returns
    -------
    np.ndarray
        float64 (F,); NaN without a positive or a negative.

    Examples
    --------
    >>> area(np.array([0, 0, 1, 1]), np.array([[0.1, 0.4, 0.35, 0.8]])).tolist()
    [0.75]
    """
    positive = np.asarray(y) == 1
    n, m = int(positive.sum()), int((~positive).sum())
    if not n or not m:
        return np.full(len(scores), np.nan)
    ranks = stats.rankdata(scores, axis=1)
    found: np.ndarray = (ranks[:, positive].sum(1) - n * (n + 1) / 2) / (n * m)
    return found


def area_influence(y: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """How much each example contributes to the error of the area, times n; float64 (F, n).

    For a positive, the share of negatives below it minus the area, and for a negative the share of positives above it
    minus the area, each divided by the share of its class (DeLong, DeLong & Clarke-Pearson 1988). Summed by group,
    these are the components of Obuchowski 1997.

    Parameters
    ----------
    y, scores : np.ndarray
        As in :func:`area`, with both classes.
    """
    positive = np.asarray(y) == 1
    out = np.empty(np.shape(scores))
    for side in (True, False):
        mine, other = scores[:, positive == side], np.sort(scores[:, positive != side], axis=1)
        for f, (values, beside) in enumerate(zip(mine, other, strict=True)):
            below = np.searchsorted(beside, values, "left") + np.searchsorted(beside, values, "right")
            share = below / (2 * len(beside))
            placed = share if side else 1 - share
            out[f, positive == side] = (placed - placed.mean()) * len(positive) / len(placed)
    return out


def area_interval(
    y: np.ndarray, scores: np.ndarray, groups: np.ndarray | None = None, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """The interval of the area of fixed scores over more examples, (F,) each; NaN with fewer than 5 groups.

    It is symmetric on the scale of log-odds, with the standard error by group. An area of 0 or 1 has no standard error,
    and no interval.
    """
    value = area(y, scores)
    nothing = np.full(len(value), np.nan)
    if np.isnan(value).any():
        return nothing, nothing
    error, units = standard_error(area_influence(y, scores), groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle, half = np.log(value / (1 - value)), reach(units, level) * error / (value * (1 - value))
        ends = [1 / (1 + np.exp(-(middle + sign * half))) for sign in (-1, 1)]
    there = (value > 0) & (value < 1) & (error > 0)
    low, high = (np.where(there, end, np.nan) for end in ends)
    return low, high


def smallest_rate(negatives: int) -> float:
    """The smallest rate of false positives above 0 that so many negatives can resolve."""
    return 1 / negatives if negatives else float("nan")


def threshold(negative: np.ndarray, rate: float) -> np.ndarray:
    """The smallest score above which at most ``rate`` of the negatives lies.

    Parameters
    ----------
    negative : np.ndarray
        Float (F, m), scores of negatives.
    rate : float
        From 0 to below 1.

    Returns
    -------
    np.ndarray
        (F,); NaN if the negatives cannot resolve the rate: if there are fewer than 1 / rate.

    Examples
    --------
    >>> threshold(np.arange(200.0)[None], 0.01).tolist(), threshold(np.arange(50.0)[None], 0.01).tolist()
    ([197.0], [nan])
    """
    m = negative.shape[1]
    above = int(rate * m + 1e-9)
    if above < 1:
        return np.full(len(negative), np.nan)
    found: np.ndarray = np.partition(negative, m - 1 - above, axis=1)[:, m - 1 - above].astype(np.float64)
    return found


def own_recall(
    y: np.ndarray,
    scores: np.ndarray,
    rate: float,
    groups: np.ndarray | None = None,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The share of positives above the threshold that the negatives themselves give, with an interval.

    Returns
    -------
    value, low, high, at : np.ndarray
        (F,) each; ``at`` is the threshold. The ends are percentiles over resampled groups, in which the threshold
        varies too; NaN with fewer than 5 groups, without ``resamples``, and where a threshold cannot be had.
    """
    y = np.asarray(y)
    at = threshold(scores[:, y == 0], rate)
    value = np.where(np.isnan(at), np.nan, (scores[:, y == 1] > at[:, None]).mean(1) if (y == 1).any() else np.nan)
    nothing = np.full(len(scores), np.nan)
    code = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    units = int(code.max()) + 1
    if not resamples or units < FEWEST or np.isnan(value).any():
        return value, nothing, nothing, at
    again = np.empty((len(scores), resamples))
    done = 0
    order = np.argsort(-scores, axis=1, kind="stable")
    for drawn in draws(units, resamples, seed):
        weights = drawn[:, code]
        for f, by in enumerate(order):
            w, positive = weights[:, by], (y[by] == 1).astype(np.float32)
            false, true = np.cumsum(w * (1 - positive), axis=1), np.cumsum(w * positive, axis=1)
            allowed = rate * false[:, -1:] + 1e-6
            count = (false <= allowed).sum(1)  # so many of the highest scores are above the threshold
            hits = np.where(count > 0, np.take_along_axis(true, np.maximum(count - 1, 0)[:, None], 1)[:, 0], 0)
            again[f, done : done + len(w)] = hits / np.maximum(true[:, -1], 1)
        done += len(drawn)
    tail = (1 - level) / 2
    low, high = np.quantile(again, [tail, 1 - tail], axis=1)
    return value, low, high, at


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a measure of two fits, with what sampling of test and of train contribute to its error.

    Attributes
    ----------
    value, low, high, p : float
        With a two-sided p; NaN if the error is 0 or cannot be had.
    of_test, of_train : float
        Standard errors over test examples for fixed probes, and over training examples.
    """

    value: float
    low: float
    high: float
    p: float
    of_test: float
    of_train: float


def difference(
    value: float,
    influence: np.ndarray,
    without: np.ndarray,
    groups: np.ndarray | None = None,
    level: float = 0.95,
) -> Difference:
    """The difference of two fits that were trained on different data and evaluated on the same examples.

    Its variance is the sum of two parts. That of the test examples comes from the influence of each of them, by group.
    That of the training examples comes from a jackknife: the difference is measured again without each block of both
    training sets (Efron & Tibshirani 1993, section 11.5, with blocks deleted). With the first part alone, two probes
    that were trained on samples of one population would often differ "significantly".

    Parameters
    ----------
    value : float
        The difference.
    influence : np.ndarray
        (n,), the influence of each test example on the difference, times n.
    without : np.ndarray
        (K,), the difference without each block of train.
    groups : np.ndarray, optional
        (n,), test examples that are not independent.
    level : float
        Coverage of the interval: Student's t, with the degrees of freedom of Satterthwaite 1946.
    """
    (of_test,), units = standard_error(influence[None], groups)
    k = len(without)
    of_train = float(np.sqrt((k - 1) / k * ((without - without.mean()) ** 2).sum()))
    parts = np.array([of_test**2, of_train**2])
    total = float(np.sqrt(parts.sum()))
    if not np.isfinite(total) or total == 0 or not np.isfinite(value):
        nan = float("nan")
        return Difference(value, nan, nan, nan, float(of_test), of_train)
    freedom = parts.sum() ** 2 / (parts**2 / np.array([units - 1, k - 1])).sum()
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * total
    p = float(2 * stats.t.sf(abs(value) / total, freedom))
    return Difference(value, value - half, value + half, p, float(of_test), of_train)
