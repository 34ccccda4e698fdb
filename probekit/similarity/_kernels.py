"""Loops over nearest neighbours: the largest similarities of each row, and common neighbours of two layers.

They run without the interpreter's lock and use one thread.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LANES = 64  # layers that are marked in one number


@njit(cache=True, nogil=True)
def largest(similar: np.ndarray, first: int, out: np.ndarray) -> None:
    """The columns of the k largest numbers of each row (m, n), largest first.

    Row i is example ``first + i``, which does not count; of equal numbers, those that follow it come first.
    """
    m, n = similar.shape
    k = out.shape[1]
    best = np.empty(k, dtype=similar.dtype)
    for i in range(m):
        found = 0
        for step in range(1, n):
            j = first + i + step
            j = j - n if j >= n else j
            value = similar[i, j]
            if found == k and value <= best[k - 1]:
                continue
            at = found if found < k else k - 1
            while at > 0 and best[at - 1] < value:
                best[at] = best[at - 1]
                out[i, at] = out[i, at - 1]
                at -= 1
            best[at] = value
            out[i, at] = j
            if found < k:
                found += 1


@njit(cache=True, nogil=True)
def shared(ours: np.ndarray, theirs: np.ndarray, order: np.ndarray, histogram: np.ndarray) -> None:
    """Count common neighbours: row i of ``ours`` against row order[i] of ``theirs``, whose neighbours move too.

    ours (La, n, k), theirs (Lb <= LANES, n, k); histogram (La, Lb, k + 1) is added to: examples by their number of
    common neighbours, from 1.
    """
    many, n, k = ours.shape
    others = theirs.shape[0]
    marks = np.zeros(n, dtype=np.uint64)
    counts = np.zeros(others, dtype=np.int64)
    one = np.uint64(1)
    for i in range(n):
        at = order[i]
        for b in range(others):
            for t in range(k):
                marks[theirs[b, at, t]] |= one << np.uint64(b)
        for a in range(many):
            any_ = False
            for t in range(k):
                mark = marks[order[ours[a, i, t]]]
                b = 0
                while mark:
                    if mark & one:
                        counts[b] += 1
                        any_ = True
                    mark >>= one
                    b += 1
            if any_:
                for b in range(others):
                    if counts[b]:
                        histogram[a, b, counts[b]] += 1
                        counts[b] = 0
        for b in range(others):
            for t in range(k):
                marks[theirs[b, at, t]] = 0


@njit(cache=True, nogil=True)
def shared_ranks(
    ours: np.ndarray, theirs: np.ndarray, order: np.ndarray, weight: np.ndarray, most: np.ndarray, out: np.ndarray
) -> None:
    """Add the scores of all rows: the weights of the ranks of common neighbours, relative to the most they can be.

    ours (La, n, k), theirs (Lb, n, k), nearest first, paired as in :func:`shared`; weight (k, k) of the ranks in either
    layer; most (k + 1,) of 0 … k common neighbours; out (La, Lb).
    """
    many, n, k = ours.shape
    ranks = np.zeros(n, dtype=np.int64)
    for i in range(n):
        at = order[i]
        for b in range(theirs.shape[0]):
            for t in range(k):
                ranks[theirs[b, at, t]] = t + 1
            for a in range(many):
                common, total = 0, 0.0
                for t in range(k):
                    rank = ranks[order[ours[a, i, t]]]
                    if rank:
                        common += 1
                        total += weight[t, rank - 1]
                if common:
                    out[a, b] += total / most[common]
            for t in range(k):
                ranks[theirs[b, at, t]] = 0


@njit(cache=True, nogil=True)
def neighbour_influence(ours: np.ndarray, theirs: np.ndarray, score: np.ndarray, out: np.ndarray) -> None:
    """What the sum of the scores gains, to first order, from a copy of each example j; added to ``out`` (n,).

    The copy has a score, and is a neighbour wherever j is one: in place of the k-th of that layer. ours, theirs (n, k),
    nearest first; score (k + 1,) of 0 … k common neighbours.
    """
    n, k = ours.shape
    in_ours = np.zeros(n, dtype=np.bool_)
    in_theirs = np.zeros(n, dtype=np.bool_)
    for i in range(n):
        for t in range(k):
            in_ours[ours[i, t]] = True
            in_theirs[theirs[i, t]] = True
        common = 0
        for t in range(k):
            common += in_theirs[ours[i, t]]
        out[i] += score[common]
        lost_ours = 1 if in_theirs[ours[i, k - 1]] else 0
        lost_theirs = 1 if in_ours[theirs[i, k - 1]] else 0
        for t in range(k):
            j = ours[i, t]
            now = common - lost_ours
            if in_theirs[j]:
                now += 1 - (lost_theirs if theirs[i, k - 1] != ours[i, k - 1] else 0)
            now = min(max(now, 0), k)
            out[j] += score[now] - score[common]
        for t in range(k):
            j = theirs[i, t]
            if not in_ours[j]:
                out[j] += score[max(common - lost_theirs, 0)] - score[common]
        for t in range(k):
            in_ours[ours[i, t]] = False
            in_theirs[theirs[i, t]] = False
