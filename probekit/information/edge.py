"""EDGE as its author's scripts compute it (Noshad, Zeng and Hero 2019, "Scalable mutual information estimation using
dependence graphs", ICASSP): numbers equal to theirs, with what is odd about them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any

import numpy as np

from probekit.errors import NonFiniteError, UsageError
from probekit.information import _edge_kernels as kernels

__all__ = ["EdgeDetails", "EdgePass", "EdgeVersion", "Ensemble", "Hashing", "Widths", "edge", "edge_details"]

SEED = 3334  # of the author's scripts
QUERIES = 500  # rows whose neighbours set the width
ROWS = 4096  # of a piece of work; fixed, so that sums do not depend on the threads
ALONE = 1 << 20  # numbers hashed below which threads cost more than they save
NO_ROWS = np.empty(0, np.int32)


class EdgeVersion(StrEnum):
    """Which of the author's scripts."""

    V4_2_0 = "4.2.0"
    V4_3_1 = "4.3.1"
    V4_4_1 = "4.4.1"


class Widths(StrEnum):
    """Widths of the members: one for all, or growing from the first to 1 + eps_range_factor times it."""

    FIXED = "fixed"
    RANGE = "range"


class Ensemble(StrEnum):
    """How the members become one value."""

    MEDIAN = "median"
    AVERAGE = "average"
    OPTIMAL_WEIGHTS = "optimal_weights"


class Hashing(StrEnum):
    """What is cut into buckets: random projections, or the columns themselves."""

    P_STABLE = "p-stable"
    FLOOR = "floor"


@dataclass(frozen=True, slots=True)
class EdgePass:
    """One pass over the ensemble of L members.

    value : bits; members : bits, float64 (L,)
    width_x, width_y : bucket widths of member 0 by projected column, float64 (r,)
    buckets_x, buckets_y, buckets_xy : occupied buckets of each member, int64 (L,)
    """

    value: float
    members: np.ndarray
    width_x: np.ndarray
    width_y: np.ndarray
    buckets_x: np.ndarray
    buckets_y: np.ndarray
    buckets_xy: np.ndarray


@dataclass(frozen=True, slots=True)
class EdgeDetails:
    """All passes; ``value``, in bits, is that of the last."""

    passes: tuple[EdgePass, ...]

    @property
    def value(self) -> float:
        return self.passes[-1].value


@dataclass(frozen=True, slots=True)
class _Side:
    """What is hashed of x or of y: distinct points (r, m), and the point of each row unless the points are the rows.

    dimension : of the input; distance : mean distance of the k-th neighbour by column, plus 1e-4
    """

    points: np.ndarray
    rows: np.ndarray
    low: np.ndarray
    high: np.ndarray
    distance: np.ndarray
    dimension: int

    def width(self, version: EdgeVersion, epsilon: float, gamma: float) -> np.ndarray:
        columns = len(self.points)
        factor = 3.0 * columns
        if version == EdgeVersion.V4_4_1:
            factor = 15.0 * columns if epsilon else 18 * columns / max(1 + math.log(self.dimension), 1)
        return (np.full(columns, epsilon) if epsilon else self.distance) * factor * gamma

    def hashed(self, width: np.ndarray) -> tuple[np.ndarray, ...]:
        return self.points, self.low, self.high, width, self.rows


SHRINK = {EdgeVersion.V4_2_0: 1.0, EdgeVersion.V4_3_1: 0.9, EdgeVersion.V4_4_1: 0.4}


def edge(x: np.ndarray, y: np.ndarray, version: EdgeVersion | str = EdgeVersion.V4_3_1, **settings: Any) -> float:
    return edge_details(x, y, version, **settings).value


def edge_details(
    x: np.ndarray,
    y: np.ndarray,
    version: EdgeVersion | str = EdgeVersion.V4_3_1,
    *,
    U: float = 10,
    gamma: Sequence[float] = (1, 1),
    epsilon: Sequence[float] = (0, 0),
    epsilon_vector: Widths | str = Widths.RANGE,
    eps_range_factor: float = 0.1,
    normalize_epsilon: bool = True,
    ensemble_estimation: Ensemble | str = Ensemble.MEDIAN,
    L_ensemble: int = 10,
    hashing: Hashing | str = Hashing.P_STABLE,
    stochastic: bool = False,
    rng: np.random.Generator | None = None,
    threads: int | None = None,
) -> EdgeDetails:
    version = EdgeVersion(version)
    x, y = (np.asarray(v, np.float64 if v.dtype.kind in "iub" else None).reshape(len(v), -1) for v in (x, y))
    n = len(x)
    threads = threads or os.cpu_count() or 1
    if version == EdgeVersion.V4_4_1 and max(x.shape[1], y.shape[1]) <= 6:
        hashing = Hashing.FLOOR
    sides = _sides(x, y, hashing == Hashing.FLOOR, rng if stochastic else None, threads)
    L = L_ensemble
    stretch = np.linspace(1, 1 + eps_range_factor, L) if epsilon_vector == Widths.RANGE else np.ones(L)
    share = np.arange(L) / L
    scale = np.array(gamma, dtype=np.float64)
    passes: list[EdgePass] = []
    while len(passes) < 1 + normalize_epsilon:
        if passes:
            value = passes[0].value
            scale = scale * 2 ** (-math.sqrt(2 * value) + 0.5 / value)
        scale = scale * SHRINK[version]
        widths = [s.width(version, e if epsilon[0] else 0.0, g) for s, e, g in zip(sides, epsilon, scale, strict=True)]
        hashed = [s.hashed(w) for s, w in zip(sides, widths, strict=True)]
        values, buckets = np.empty(L), np.empty((L, 3), np.int64)
        alone = threads == 1 or n * sum(len(s.points) for s in sides) * L < ALONE
        size = min(5, L if alone else -(-L // threads))
        parts = [slice(j, j + size) for j in range(0, L, size)]
        _run([partial(kernels.members, *hashed, stretch[p], share[p], float(U), values[p], buckets[p]) for p in parts], 1 if alone else threads)
        if ensemble_estimation == Ensemble.MEDIAN:
            value = float(np.median(values))
        elif ensemble_estimation == Ensemble.AVERAGE:
            value = float(values.mean())
        else:
            value = float(_weights(stretch, n, x.shape[1]) @ values)
        passes.append(EdgePass(value, values, *widths, *buckets.T))
    return EdgeDetails(tuple(passes))


def _run(work: Sequence[Callable[[], Any]], threads: int) -> list[Any]:
    if threads == 1 or len(work) == 1:
        return [job() for job in work]
    with ThreadPoolExecutor(min(threads, len(work))) as pool:
        return [done.result() for done in [pool.submit(job) for job in work]]


def _sides(x, y, floor, rng, threads):
    n = len(x)
    sides = []
    most = math.floor(math.log2(n / 10))
    r = [min(v.shape[1], most) for v in (x, y)]
    normal = _normals(x.shape[1] * r[0] + y.shape[1] * r[1])
    drawn = 0
    for v, columns in zip((x, y), r, strict=True):
        d = v.shape[1]
        rows = NO_ROWS
        if d == 1:
            v, rows = _distinct(v)
        if floor:
            points, columns = np.ascontiguousarray(v.T, dtype=np.float64), d
        else:
            weights = normal[drawn : drawn + d * columns].reshape(d, columns)
            drawn += d * columns
            deviation = _deviation(v, rows, threads)
            weights = weights * (1 / (np.where(deviation < 1e-4, 1, deviation) * math.sqrt(d)))[:, None]
            points = _project(v, weights, threads)
        exponent = 2 / 3 + 0.17 * columns / (columns + 1)
        k = math.floor(0.43 * n**exponent * math.exp(-1 / max(1e4, float(columns) ** 4)))
        found = _run([partial(_bandwidth, column, rows, k, n) for column in points], threads if n > 1 << 15 else 1)
        low, high, distance = np.array(found).T.copy()
        sides.append(_Side(points, rows, low, high, distance, d))
    return sides


def _distinct(v):
    keys = np.ascontiguousarray(v[:, 0].astype(np.float64) + 0.0).view(np.int64)
    seen = np.empty(len(v), np.int64)
    count = kernels.distinct(keys, np.inf, seen)
    if count > len(v) // 4:
        return v, NO_ROWS
    return seen[:count].view(np.float64)[:, None].astype(v.dtype), keys.astype(np.int32)


def _deviation(v, rows, threads):
    if len(rows):
        return v[rows].std(0)
    n, d = v.shape
    starts = range(0, n, ROWS)
    sums = np.zeros((len(starts), 2, d))
    work = [partial(kernels.add_moments, v, a, min(a + ROWS, n), *s) for a, s in zip(starts, sums, strict=True)]
    _run(work, threads)
    total, square = sums.sum(0) / n
    return np.sqrt(np.maximum(square - total**2, 0))


def _project(v, weights, threads):
    w = np.ascontiguousarray(weights.T, dtype=v.dtype)
    out = np.empty((len(w), len(v)))
    work = [partial(kernels.project, v, w, a, min(a + ROWS, len(v)), out) for a in range(0, len(v), ROWS)]
    _run(work, threads)
    return out


def _bandwidth(column, rows, k, n):
    chosen = _queries(n)
    if len(rows):
        column = column[rows]
    s = np.sort(column)
    return s[0], s[-1], kernels.neighbour_distance(s, np.sort(column[chosen]), k) + 1e-4


@lru_cache(maxsize=8)
def _normals(count):
    return np.random.RandomState(SEED).normal(0, 1, count)


@lru_cache(maxsize=8)
def _queries(n):
    return np.random.RandomState(SEED).randint(0, n, QUERIES)


def _weights(stretch: np.ndarray, n: int, d: int) -> np.ndarray:
    a = (stretch / n) ** (0.5 / d)
    mean, spread = a.mean(), ((a - a.mean()) ** 2).sum()
    L = len(a)
    if spread == 0 or mean <= 4 / math.sqrt(L):
        return np.full(L, 1 / L)
    slope = np.roots([16 * spread - spread**2, -2 * mean * spread, 16 / L - mean**2]).min()
    return 1 / L + slope * (a - mean)
