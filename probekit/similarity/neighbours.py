"""Measures of shared nearest neighbours.

They run without the interpreter's lock and use one thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from probekit.errors import UsageError
from probekit.similarity.comparison import Comparison, Measured
from probekit.similarity.features import Layers
from probekit.similarity.matrices import squares
from probekit.similarity.products import Map

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


NEIGHBOURS = ("mutual-knn", "knn-jaccard")
RANKED = "knn-rank"
BLOCK = 512


def nearest(x: np.ndarray, k: int, seed: int | Sequence[int] = 0) -> np.ndarray:
    """The k nearest other rows of each row of x (n, d) by cosine, nearest first, int32 (n, k).

    The nearness of a row of zeros is 0. Which of equally near rows is taken is random: two layers whose examples tie
    would have common neighbours by the order of the examples otherwise.
    """
    order = np.random.default_rng(seed).permutation(len(x))
    norm = np.sqrt(squares(x))
    unit = (x / np.where(norm > 0, norm, 1).astype(x.dtype)[:, None])[order]
    found = np.zeros((len(x), k), dtype=np.int32)
    for start in range(0, len(x), BLOCK):
        largest(unit[start : start + BLOCK] @ unit.T, start, found[start : start + BLOCK])
    out = np.empty_like(found)
    out[order] = order[found]
    return out


def measure_neighbours(c: Comparison, names: Sequence[str]) -> dict[str, Measured]:
    """NEIGHBOURS and RANKED, from one search and the same permutations."""
    k = c.options.neighbours
    if k >= c.n:
        raise UsageError(f"there are {c.n} examples, so none has {k} neighbours; choose fewer with neighbours.")
    ours = _search(c, c.a, 0)
    theirs = ours if c.same else _search(c, c.b, 1)
    orders, notes = c.permutations(1000 if c.options.draws is None else c.options.draws)
    every = [np.arange(c.n), *orders]
    counts = None
    if set(names) & set(NEIGHBOURS):
        counts = np.stack(c.run(lambda order: common_neighbours(ours, theirs, order), every))
    out = {}
    for name in names:
        if counts is None or name == RANKED:
            null = np.stack(c.run(lambda order: mean_score(RANKED, ours, theirs, order), every))
            out[name] = Measured(null[0], None, null if len(orders) else None, notes)
            continue
        score = _scores(name, k)
        null = counts @ score / c.n
        ends = None
        if c.options.resamples:
            ends = c.interval(null[0], _influence(ours, theirs, score, c.run), fisher=False)
        if ends is not None:
            ends = np.maximum(ends[0], 0), np.minimum(ends[1], 1)
        out[name] = Measured(null[0], ends, null if len(orders) else None, notes)
    return out


def mean_score(name: str, ours: np.ndarray, theirs: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The measure of all pairs of layers, (layers a, layers b), from their neighbours (layers, n, k) and an order.

    For RANKED, a common neighbour of ranks r and s counts 2 / ((1 + |r - s|) (r + s)), relative to the sum of 1 / r of
    as many neighbours, which equal ranks from 1 on have (Klabunde et al. 2023).
    """
    _, n, k = ours.shape
    if name != RANKED:
        return np.asarray(common_neighbours(ours, theirs, order) @ _scores(name, k) / n)
    r = np.arange(1, k + 1)
    weight = 2 / ((1 + abs(r[:, None] - r)) * (r[:, None] + r))
    most = np.concatenate([[1], np.cumsum(1 / r)])
    out = np.zeros((len(ours), len(theirs)))
    shared_ranks(ours, theirs, order, weight, most, out)
    return out / n


def _scores(name: str, k: int) -> np.ndarray:
    """The score of an example with 0 … k common neighbours."""
    common = np.arange(k + 1)
    return common / k if name == "mutual-knn" else common / (2 * k - common)


def _search(c: Comparison, layers: Layers, side: int) -> np.ndarray:
    """Neighbours in each layer of a side, (layers, n, k); ties are broken in each layer for itself."""
    seeds = [[c.options.seed, 3, side, layer] for layer in range(len(layers))]
    return np.stack(c.run(lambda x, seed: nearest(x, c.options.neighbours, seed), layers.x, seeds))


def _influence(ours: np.ndarray, theirs: np.ndarray, score: np.ndarray, run: Map) -> np.ndarray:
    """Influence of each example on the mean score of each pair, (n, layers a, layers b)."""
    out = np.zeros((len(ours), len(theirs), ours.shape[1]))
    run(lambda pair: neighbour_influence(ours[pair[0]], theirs[pair[1]], score, out[pair]), np.ndindex(out.shape[:2]))
    return np.moveaxis(out, 2, 0) / ours.shape[1]


def common_neighbours(ours: np.ndarray, theirs: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Examples by their number of common neighbours, (layers a, layers b, k + 1)."""
    out = np.zeros((len(ours), len(theirs), ours.shape[2] + 1), dtype=np.int64)
    for start in range(0, len(theirs), LANES):
        part = slice(start, start + LANES)
        shared(ours, theirs[part], order, out[:, part])
    return out
