"""Measures of shared nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probekit.errors import UsageError
from probekit.similarity._kernels import LANES, largest, neighbour_influence, shared, shared_ranks
from probekit.similarity.comparison import Comparison, Measured
from probekit.similarity.features import Layers
from probekit.similarity.matrices import squares
from probekit.similarity.products import Map

__all__ = ["NEIGHBOURS", "RANKED", "common_neighbours", "mean_score", "measure_neighbours", "nearest"]

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
    orders, notes = c.permutations(1000 if c.options.permutations is None else c.options.permutations)
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
