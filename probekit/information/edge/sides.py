"""The columns that EDGE cuts into buckets: random projections or columns, with the distances of neighbours in each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from probekit.errors import NonFiniteError, UsageError
from probekit.information.edge import _kernels as kernels

SEED = 3334  # of the scripts' legacy generator
QUERIES = 500  # rows whose neighbours set the widths
PIECE = 1 << 20  # numbers read by one piece of work; fixed, so that no sum depends on the threads
LONG = 1 << 15  # rows of a column that is worth a thread
ROWS = np.empty(0, dtype=np.int32)

Run = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""Does pieces of work that may be done in any order, and returns what they return."""


def alone(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    return [job() for job in jobs]


def shared(pool: ThreadPoolExecutor, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    return [done.result() for done in [pool.submit(job) for job in jobs]]


@dataclass(frozen=True, slots=True)
class Side:
    """The columns of x or of y to hash.

    Attributes
    ----------
    points : np.ndarray
        float64 (columns, m), columns cut into buckets.
    rows : np.ndarray
        int32 (n,), the point of each row; empty where points are the rows.
    low, high : np.ndarray
        Smallest and largest value of each.
    dimension : int
        Number of columns of the input.
    distance : np.ndarray
        Mean distance to near neighbours in each column; the bucket width if none is given.
    """

    points: np.ndarray
    rows: np.ndarray
    low: np.ndarray
    high: np.ndarray
    dimension: int
    distance: np.ndarray

    @property
    def hashed(self) -> tuple[np.ndarray, ...]:
        return self.points, self.low, self.high, self.rows

    def width(self, version: str, epsilon: float | None, gamma: float) -> np.ndarray:
        """Bucket widths of the first member."""
        columns = len(self.points)
        if version != "4.4.1":
            factor = 3.0 * columns
        elif epsilon is None:
            factor = 18 * columns / max(1 + math.log(self.dimension), 1)
        else:
            factor = 15.0 * columns
        return (self.distance if epsilon is None else np.full(columns, float(epsilon))) * factor * gamma

    def shares(self, L: int, rng: np.random.Generator | None) -> np.ndarray:
        """Shifts of the members as shares of the widths, (L, columns): the same in all columns unless random."""
        if rng is not None:
            return rng.uniform(0, 0.1, (L, len(self.points)))
        return np.repeat(np.arange(L)[:, None] / L, len(self.points), axis=1)


def projected(x: np.ndarray, y: np.ndarray, rng: np.random.Generator | None, run: Run) -> list[Side]:
    """Both sides by random projections of the columns divided by their standard deviations (ddof 0)."""
    sides, start, most = [], 0, math.floor(math.log2(len(x) / 10))
    columns = [min(v.shape[1], most) for v in (x, y)]
    count = sum(v.shape[1] * r for v, r in zip((x, y), columns, strict=True))
    normal = _normals(count) if rng is None else rng.standard_normal(count)
    for v, r in zip((x, y), columns, strict=True):
        n, d = v.shape
        points, rows = _points(v)
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = points[rows].std(axis=0) if len(rows) else _deviations(v, run)
        _finite(v, deviation.sum())
        deviation[deviation < 1e-4] = 1
        weights = normal[start : start + d * r].reshape(d, r).T / (deviation * math.sqrt(d))
        start += d * r
        weights = np.ascontiguousarray(weights, dtype=points.dtype)
        out = np.empty((r, len(points)))
        step = max(PIECE // d, 1)
        run([
            partial(kernels.project, points, weights, at, min(at + step, len(points)), out)
            for at in range(0, len(points), step)
        ])  # fmt: skip
        sides.append(_side(out, rows, d, n, run))
    return sides


def as_they_are(v: np.ndarray, run: Run) -> Side:
    """One side by its columns as they are."""
    points, rows = _points(v)
    with np.errstate(over="ignore", invalid="ignore"):
        _finite(v, v.sum())
    return _side(np.ascontiguousarray(points.T, dtype=np.float64), rows, v.shape[1], len(v), run)


def _points(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points of v (m, d) and the point of each row: of one column of few values those, else the rows themselves."""
    if v.shape[1] > 1:
        return v, ROWS
    keys = (v[:, 0].astype(np.float64) + 0.0).view(np.int64)  # + 0.0: -0.0 is 0.0
    seen = np.empty(len(v), dtype=np.int64)
    found = kernels.distinct(keys, np.inf, seen)
    if found > len(v) // 4:
        return v, ROWS
    return seen[:found].view(np.float64)[:, None], keys.astype(np.int32)


def _deviations(v: np.ndarray, run: Run) -> np.ndarray:
    """Standard deviation of each column (d,)."""
    n, d = v.shape
    starts = range(0, n, step := max(PIECE // d, 8))
    sums = np.zeros((len(starts), 2, d))
    run([partial(kernels.add_moments, v, at, min(at + step, n), *s) for at, s in zip(starts, sums, strict=True)])
    total, square = sums.sum(axis=0) / n
    return np.sqrt(np.maximum(square - total**2, 0))


def _finite(v: np.ndarray, total: float) -> None:
    """Raise an error if a sum over v is NaN."""
    if np.isfinite(total):
        return
    bad = np.argwhere(~np.isfinite(v))
    if len(bad):
        raise NonFiniteError(f"row {bad[0][0]}, column {bad[0][1]} is {v[tuple(bad[0])]}: mutual information needs "
                             f"finite numbers ({len(bad):,} are not).")  # fmt: skip
    raise UsageError(f"numbers up to {np.abs(v).max():.1g} have squares beyond {v.dtype}; scale them down.")


def _side(points: np.ndarray, rows: np.ndarray, d: int, n: int, run: Run) -> Side:
    columns = len(points)
    exponent = 2 / 3 + 0.17 * columns / (columns + 1)
    k = math.floor(0.43 * n**exponent * math.exp(-1 / max(1e4, float(columns) ** 4)))
    found = (run if n > LONG else alone)([partial(_spacing, column, rows, k) for column in points])
    low, high, distance = np.ascontiguousarray(np.transpose(found))
    return Side(points, rows, low, high, d, distance + 1e-4)


def _spacing(column: np.ndarray, rows: np.ndarray, k: int) -> tuple[float, float, float]:
    """Lowest and highest of a column, and the mean distance to the k-th neighbour of some rows."""
    column = column[rows] if len(rows) else column
    queries, column = column[_queries(len(column))], np.sort(column)
    queries.sort()
    return column[0], column[-1], kernels.neighbour_distance(column, queries, k)


@lru_cache(maxsize=4)
def _normals(count: int) -> np.ndarray:
    return np.random.RandomState(SEED).standard_normal(count)


@lru_cache(maxsize=16)
def _queries(n: int) -> np.ndarray:
    return np.random.RandomState(SEED).randint(0, n, QUERIES)
