"""Distances and depths of words in dependency trees (Hewitt & Manning 2019, section 2)."""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np


def sentences(length: np.ndarray) -> Iterator[slice]:
    """The rows of each sentence; ``length`` int64 (s,)."""
    stop = np.cumsum(length)
    yield from map(slice, (stop - length).tolist(), stop.tolist())


def depths(heads: np.ndarray) -> np.ndarray:
    """The depth of each word of one tree, int64 (n,); the root has 0.

    Examples
    --------
    >>> depths(np.array([2, 0, 2, 3]))
    array([1, 0, 1, 2])
    """
    depth, at = np.zeros(len(heads), dtype=np.int64), heads.astype(np.int64)
    while at.any():
        depth += at > 0
        at = np.where(at > 0, heads[at - 1], 0)
    return depth


def distances(heads: np.ndarray) -> np.ndarray:
    """The number of edges between any two words of one tree, int64 (n, n).

    Examples
    --------
    >>> distances(np.array([2, 0, 2, 3]))
    array([[0, 1, 2, 3],
           [1, 0, 1, 2],
           [2, 1, 0, 1],
           [3, 2, 1, 0]])
    """
    return np.asarray(_distances(heads.astype(np.int64), np.argsort(depths(heads), kind="stable")))


@numba.njit(cache=True)
def _distances(heads: np.ndarray, order: np.ndarray) -> np.ndarray:
    """``order``: words by depth, a head comes before its word; paths to the words before lead over the head."""
    found = np.zeros((len(heads), len(heads)), np.int64)
    for k in range(1, len(order)):
        for m in range(k):
            found[order[k], order[m]] = found[order[m], order[k]] = found[heads[order[k]] - 1, order[m]] + 1
    return found


def chain(n: int) -> np.ndarray:
    """The distances of the tree in which each word hangs on the one before: |i - j|, int64 (n, n)."""
    at = np.arange(n)
    return np.abs(at[:, None] - at)
