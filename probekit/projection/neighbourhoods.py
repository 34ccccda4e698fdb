"""How well a map keeps neighbourhoods: trustworthiness and continuity (Venna & Kaski 2006)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCK = 1 << 23
"""Distances held at once."""


@dataclass(frozen=True, slots=True)
class Faithfulness:
    """Attributes
    ----------
    trustworthiness : float
        1 if all neighbours on the map are neighbours among the vectors; about .5 for a random map.
    continuity : float
        1 if all neighbours among the vectors are neighbours on the map.
    n : int
        Number of points that were compared.
    """

    trustworthiness: float
    continuity: float
    n: int


def faithfulness(x: Any, xy: np.ndarray, *, neighbours: int = 10, points: int = 2000, seed: int = 0) -> Faithfulness:
    """Trustworthiness and continuity of a map of vectors (Venna & Kaski 2006, equations 1 and 2).

    Parameters
    ----------
    x : array
        (n, d), the vectors.
    xy : np.ndarray
        (n, 2), their map.
    neighbours : int
        Size of the neighbourhoods; at most n / 2 - 1 are used.
    points : int
        If there are more, a sample of this size, drawn with ``seed``, is compared with itself.
    seed : int
        Seed of the sample.

    Returns
    -------
    Faithfulness
        NaN if there are fewer than 4 points, or all vectors or all points are equal.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> faithfulness(x, x)
    Faithfulness(trustworthiness=1.0, continuity=1.0, n=50)
    """
    rows = np.arange(len(xy))
    if len(rows) > points:
        rows = np.sort(np.random.default_rng(seed).choice(len(xy), points, replace=False))
    high = np.array(x[rows], dtype=np.float64)
    low = np.array(xy[rows], dtype=np.float64)
    n = len(rows)
    k = min(neighbours, (n - 1) // 2)
    if k < 1 or not (high != high[0]).any() or not (low != low[0]).any():
        return Faithfulness(float("nan"), float("nan"), n)
    high -= high.mean(0)
    low -= low.mean(0)
    penalty = np.zeros(2)
    step = max(1, BLOCK // n)
    for start in range(0, n, step):
        at = np.arange(start, min(start + step, n))
        penalty += _penalties(_distances(high, at), _distances(low, at), k)
    scale = 2 / (n * k * (2 * n - 3 * k - 1))
    trust, continuity = (1 - scale * penalty).tolist()
    return Faithfulness(trust, continuity, n)


def _distances(x: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Squared distances of some rows to all, up to a constant per row; infinite to themselves."""
    distance = (x * x).sum(1) - 2 * (x[at] @ x.T)
    distance[np.arange(len(at)), at] = np.inf
    return distance


def _penalties(high: np.ndarray, low: np.ndarray, k: int) -> tuple[float, float]:
    """Sums of rank - k over the false neighbours on the map, and over the missing ones."""
    near_high, near_low = _nearest(high, k), _nearest(low, k)
    return _excess(high, near_low, k), _excess(low, near_high, k)


def _nearest(distance: np.ndarray, k: int) -> np.ndarray:
    return np.argpartition(distance, k - 1, axis=1)[:, :k]


def _excess(distance: np.ndarray, neighbours: np.ndarray, k: int) -> float:
    """The sum over rows of max(0, rank - k) of some columns, where rank 1 is the nearest."""
    total = 0.0
    for column in neighbours.T:
        to = np.take_along_axis(distance, column[:, None], axis=1)
        total += float(np.maximum((distance < to).sum(1) + 1 - k, 0).sum())
    return total
