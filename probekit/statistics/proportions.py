"""Intervals of proportions, and of means of proportions."""

from __future__ import annotations

import numpy as np
from scipy import stats


def wilson(right: np.ndarray, n: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of proportions (Wilson 1927): its ends, float64 with the shape of ``right``.

    Parameters
    ----------
    right, n : np.ndarray
        Numbers of successes, and of independent trials.
    level : float
        Its coverage.

    Examples
    --------
    >>> low, high = wilson(np.array([60]), np.array([60]))
    >>> round(float(low[0]), 3), float(high[0])
    (0.94, 1.0)
    """
    right, n = np.asarray(right, dtype=np.float64), np.asarray(n, dtype=np.float64)
    z = stats.norm.ppf((1 + level) / 2)
    p = right / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return np.where(right == 0, 0.0, centre - half), np.where(right == n, 1.0, centre + half)


def mean_of_proportions(right: np.ndarray, n: np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """The unweighted mean of independent proportions, with its interval: (value, low, high).

    The interval combines the Wilson intervals of the proportions by MOVER (Zou & Donner 2008, equations 3 and 4), so
    it keeps to [0, 1], and for one proportion it is Wilson's.

    Parameters
    ----------
    right, n : np.ndarray
        (k,), successes and trials of each proportion.
    level : float
        Its coverage.
    """
    right, n = np.asarray(right, dtype=np.float64), np.asarray(n, dtype=np.float64)
    p = right / n
    low, high = wilson(right, n, level)
    value = float(p.mean())
    below, above = (float(np.sqrt(((p - end) ** 2).sum())) / len(p) for end in (low, high))
    return value, max(0.0, value - below), min(1.0, value + above)
