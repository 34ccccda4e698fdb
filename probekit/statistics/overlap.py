"""How alike two orders are, with more weight on their first places: rank-biased overlap (Webber, Moffat & Zobel 2010).

rank_biased_overlap([2, 0, 1], [2, 1, 0], p=0.9)      # 0.955
chance_overlap(3, p=0.9)                              # the mean over random orders of 3 things
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from probekit.errors import UsageError


def rank_biased_overlap(a: Any, b: Any, *, p: float = 0.9) -> float:
    """The overlap of two orders of the same d things, extrapolated: RBO_ext, equation 32 of Webber et al. (2010).

    Of the things among the first k of both, X_k, it is Σ (1 - p) pᵏ⁻¹ X_k / k over all depths, the overlap of which
    stays 1 after the last. Equal orders have 1; with p = .9 the first ten places have 86 % of the weight (equation 21).

    Parameters
    ----------
    a, b : array_like
        Int (d,), the best first, each of 0 … d - 1 once.
    p : float
        Persistence, between 0 and 1: the larger, the deeper the orders are compared.

    Raises
    ------
    UsageError
        If they are not orders of the same things, or p is out of range.

    Examples
    --------
    >>> round(rank_biased_overlap([2, 0, 1], [2, 1, 0], p=0.9), 3), rank_biased_overlap([0, 1], [0, 1])
    (0.955, 1.0)
    """
    places = []
    for order in (np.asarray(a), np.asarray(b)):
        if order.ndim != 1 or not len(order) or not np.array_equal(np.sort(order), np.arange(len(order))):
            raise UsageError(f"an order holds each of 0 … d - 1 once; this one has the shape {order.shape}.")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        places.append(place)
    if len(places[0]) != len(places[1]):
        raise UsageError(f"two orders of {len(places[0])} and {len(places[1])} things cannot be compared.")
    shared = np.bincount(
        np.maximum(*places), minlength=len(places[0])
    ).cumsum()  # a thing is in both from its later one
    return _weighted(shared / np.arange(1, len(shared) + 1), p)


def chance_overlap(d: int, *, p: float = 0.9) -> float:
    """The mean of :func:`rank_biased_overlap` over independent random orders of d things, whose X_k has the mean k²/d.

    Examples
    --------
    >>> round(chance_overlap(768), 4), round(chance_overlap(2, p=0.5), 4)
    (0.013, 0.75)
    """
    return _weighted(np.arange(1, d + 1) / d, p)


def _weighted(agreement: np.ndarray, p: float) -> float:
    """The mean of the agreement at the depths 1 … d, which stays the last one after d."""
    if not 0 < p < 1:
        raise UsageError(f"p is {p}; expected a number between 0 and 1.")
    weight = (1 - p) * p ** np.arange(len(agreement))
    mean = float(agreement @ weight + agreement[-1] * p ** len(agreement))
    return min(1.0, mean)  # weights sum to 1 but for rounding


def mean_of_pairs(values: Sequence[float] | np.ndarray, *, level: float = 0.95) -> tuple[float, float, float]:
    """The mean of the overlaps of several pairs of orders, and its interval by Student's distribution, within 0 and 1.

    NaN as ends for fewer than three pairs.

    Examples
    --------
    >>> [round(value, 2) for value in mean_of_pairs([0.5, 0.6, 0.7])]
    [0.6, 0.35, 0.85]
    """
    found = np.asarray(values, dtype=np.float64)
    mean = float(found.mean()) if len(found) else float("nan")
    if len(found) < 3:
        return mean, float("nan"), float("nan")
    arm = float(stats.t.isf((1 - level) / 2, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found)))
    return mean, max(0.0, mean - arm), min(1.0, mean + arm)
