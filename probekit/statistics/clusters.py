"""Standard errors from the influence of each example, where examples of a group are not independent."""

from __future__ import annotations

from math import inf

import numpy as np
from scipy import stats

from probekit.statistics._sums import FEWEST, freedom


def standard_error(influence: np.ndarray, groups: np.ndarray | None = None) -> tuple[np.ndarray, int]:
    """The standard error of F estimates, and the number of groups (examples if there are none).

    Parameters
    ----------
    influence : np.ndarray
        (F, n), how much each example contributes to the error of each estimate, times n; its mean is subtracted.
    groups : np.ndarray, optional
        (n,), examples that are not independent of each other.

    Returns
    -------
    error : np.ndarray
        (F,), NaN with fewer than 5 groups.
    units : int
        The number of groups.

    References
    ----------
    Huber 1967; Liang & Zeger 1986 (groups); the factor G / (G - 1) is that of the jackknife (Efron 1982, chapter 3).
    """
    n, influence = influence.shape[1], _by_group(influence, groups)
    units = influence.shape[1]
    if units < FEWEST:
        return np.full(len(influence), np.nan), units
    return np.sqrt((influence**2).sum(1) * units / (units - 1)) / n, units


def degrees(influence: np.ndarray, groups: np.ndarray | None = None) -> float:
    """Degrees of freedom of a standard error, from the kurtosis of the influence (Satterthwaite 1946).

    influence (n,), groups (n,) : as in :func:`standard_error`
    """
    return float(freedom(_by_group(influence[None], groups))[0])


def _by_group(influence: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """Centred influence (F, n), summed by group."""
    influence = influence - influence.mean(1, keepdims=True)
    if groups is None:
        return influence
    code = np.unique(groups, return_inverse=True)[1].reshape(-1)
    return np.stack([np.bincount(code, row) for row in influence])


def reach(units: float, level: float) -> float:
    """How many standard errors an interval reaches to either side: the quantile of Student's t."""
    return float(stats.t.ppf((1 + level) / 2, max(1, units - 1)))


FEWEST_PAIRED = 8
"""If one error varies more than the other, intervals cover 91.6 % with 5 groups, 93.8 % with 8 (2,000 runs each)."""


def interval(
    value: float, influence: np.ndarray, groups: np.ndarray | None = None, *, level: float = 0.95,
    within: tuple[float, float] = (-inf, inf),
) -> tuple[float, float]:  # fmt: skip
    """The interval of an estimate by Student's t over groups (examples if there are none).

    Parameters
    ----------
    value : float
        The estimate.
    influence : np.ndarray
        (n,), how much each example contributes to its error, times n: of a mean the values themselves, of a ratio of
        means ``(a - value * b) / b.mean()``. Its mean is subtracted.
    groups : np.ndarray, optional
        (n,), examples that are not independent of each other.
    level : float
        Its coverage.
    within : tuple of float
        The lowest and highest possible value.

    Returns
    -------
    tuple of float
        Both ends; NaN with fewer than 5 groups.

    Examples
    --------
    >>> low, high = interval(2.5, np.arange(6.0))
    >>> round(low, 2), round(high, 2)
    (0.54, 4.46)
    """
    error, units = standard_error(influence[None], groups)
    half = reach(units, level) * float(error[0])
    low, high = np.clip([value - half, value + half], *within)
    return float(low), float(high)


def mean_of_differences(
    differences: np.ndarray, groups: np.ndarray | None = None, level: float = 0.95
) -> tuple[float, float, float, float]:
    """The mean (n,) of paired differences, its interval (Student's t) and two-sided p; NaN with fewer than 8 groups.

    Parameters
    ----------
    differences : np.ndarray
        (n,), one measurement minus the other, of each example.
    groups : np.ndarray, optional
        (n,), examples that are not independent of each other.

    Examples
    --------
    >>> [round(x, 3) for x in mean_of_differences(np.arange(1.0, 9))]
    [4.5, 2.452, 6.548, 0.001]
    """
    value = float(differences.mean())
    error = float(standard_error(differences[None], groups)[0][0])
    if not error > 0 or (len(differences) if groups is None else len(np.unique(groups))) < FEWEST_PAIRED:
        return value, float("nan"), float("nan"), float("nan")
    freedom = degrees(differences, groups)
    half = reach(freedom + 1, level) * error
    return value, value - half, value + half, float(2 * stats.t.sf(abs(value) / error, freedom))
