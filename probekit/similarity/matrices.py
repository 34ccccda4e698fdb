"""One n × n matrix of each layer, in tiles: the linear kernel, the Gaussian kernel, projections, leave-one-out forms.

Most measures are inner products ⟨A, B⟩ of a matrix of X and a matrix of Y. If the rows of Y are permuted, the rows and
columns of B are: so one routine serves all of them (`probekit.similarity.products`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from probekit.similarity.features import Layers

EXACT = 1024  # examples up to which distances are sorted; of more, they are counted in bins
BINS = 1 << 20
SAMPLE = 256  # examples from which the median and the range of the distances of more examples are taken
BLOCK = 1024

Tile = Callable[[int, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False, slots=True)
class Matrices:
    """Symmetric n × n matrices.

    Attributes
    ----------
    n, count : int
        Rows, and number of matrices.
    dtype : dtype
        Of the tiles.
    tile : callable
        ``tile(layer, rows, columns)``; what stands on the diagonal is not used.
    vector : ndarray
        float64 (count, n): the diagonals.
    """

    n: int
    count: int
    dtype: np.dtype
    tile: Tile
    vector: np.ndarray


def squares(x: np.ndarray) -> np.ndarray:
    """Squared norm of each row, float64."""
    return np.einsum("ij,ij->i", x, x, dtype=np.float64)


def linear(layers: Layers) -> Matrices:
    """XXᵀ of centred columns."""
    x = layers.x

    def tile(layer: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return x[layer][rows] @ x[layer][columns].T

    return Matrices(len(x[0]), len(x), x[0].dtype, tile, np.stack([squares(one) for one in x]))


def _distances(x: np.ndarray, norms: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Squared Euclidean distances of rows and columns of one layer."""
    out = x[rows] @ x[columns].T
    out *= -2
    out += norms[rows].astype(x.dtype)[:, None]
    out += norms[columns].astype(x.dtype)[None, :]
    return np.asarray(np.maximum(out, 0, out=out))


def _sample(x: np.ndarray, norms: np.ndarray, seed: int) -> np.ndarray:
    """Squared distances of all pairs of up to EXACT examples, or of SAMPLE random ones from all others."""
    n = len(x)
    rows = np.arange(n)
    if n <= EXACT:
        return _distances(x, norms, rows, rows)[np.triu_indices(n, 1)]
    chosen = np.random.default_rng([seed, n]).permutation(n)[:SAMPLE]
    found = _distances(x, norms, chosen, rows)
    return found[chosen[:, None] != rows]


def _blocks(n: int) -> list[np.ndarray]:
    return [np.arange(i, min(i + BLOCK, n)) for i in range(0, n, BLOCK)]


def _width(squared: np.ndarray) -> float:
    """Median of squared distances, of those above rounding if most are not; 1 if none is."""
    median, rounding = float(np.median(squared)), 8 * float(np.finfo(squared.dtype).eps * squared.max())
    apart = squared[squared > rounding]
    return median if median > rounding else float(np.median(apart)) if len(apart) else 1.0


def gaussian(layers: Layers, run: Callable[..., list[Any]], seed: int = 0) -> Matrices:
    """exp(-|xᵢ - xⱼ|² / 2w²), U-centred, with w the median distance (from 256 random examples if n > 1,024).

    Where most distances are 0, the median is of the others.
    """
    n = len(layers.x[0])
    norms = [squares(x) for x in layers.x]
    everything = _blocks(n)

    def kernel(layer: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        out = _distances(layers.x[layer], norms[layer], rows, columns)
        out *= -0.5 / width[layer]
        return np.asarray(np.exp(out, out=out))

    def sums(layer: int) -> np.ndarray:
        out = np.full(n, -1.0)  # without the diagonal
        for i, rows in enumerate(everything):
            for columns in everything[i:]:
                part = kernel(layer, rows, columns)
                out[rows] += part.sum(1, dtype=np.float64)
                if columns is not rows:
                    out[columns] += part.sum(0, dtype=np.float64)
        return out

    width = [_width(_sample(x, norm, seed)) for x, norm in zip(layers.x, norms, strict=True)]
    rows_of = run(sums, range(len(layers)))
    shift = [row / (n - 2) - row.sum() / (2 * (n - 1) * (n - 2)) for row in rows_of]

    def tile(layer: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        out = kernel(layer, rows, columns)
        out -= shift[layer][rows].astype(out.dtype)[:, None]
        out -= shift[layer][columns].astype(out.dtype)[None, :]
        return out

    return Matrices(n, len(layers), layers.x[0].dtype, tile, np.zeros((len(layers), n)))


def ranked(layers: Layers, run: Callable[..., list[Any]], seed: int = 0) -> Matrices:
    """Ranks of the squared distances of all pairs of examples, from -1 to 1, 0 in the mean.

    If n > 1,024 they are counted in a million bins over the range of .01 to 99.99 % of them; those in one bin are ties.
    The bins are of the bits of float32 numbers, nearly a logarithmic scale, so that far examples take few of them.
    """
    n = len(layers.x[0])
    norms, nothing = [squares(x) for x in layers.x], np.zeros((len(layers), n))
    if n <= EXACT:
        exact = run(lambda layer: _exact_ranks(layers.x[layer], norms[layer]), range(len(layers)))
        tile: Tile = lambda layer, r, c: exact[layer][np.ix_(r, c)]  # noqa: E731
        return Matrices(n, len(layers), np.dtype(np.float64), tile, nothing)

    def edges(layer: int) -> tuple[int, np.float32]:
        found = np.quantile(_sample(layers.x[layer], norms[layer], seed), [1e-4, 1 - 1e-4])
        low, high = (int(one) for one in found.astype(np.float32).view(np.int32))
        return low, np.float32((BINS - 2) / max(high - low, 1))

    def bins(layer: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        bits = _distances(layers.x[layer], norms[layer], rows, columns).astype(np.float32, copy=False).view(np.int32)
        out = (bits - np.int32(limits[layer][0])).astype(np.float32)
        out *= limits[layer][1]
        return np.clip(out, -1, BINS - 2, out=out).astype(np.int32) + 1

    def table(layer: int) -> np.ndarray:
        counts = np.zeros(BINS, np.int64)
        for i, rows in enumerate(everything):
            for columns in everything[i:]:
                found = bins(layer, rows, columns)
                found = found[np.triu_indices(len(rows), 1)] if columns is rows else found.ravel()
                counts += np.bincount(found, minlength=BINS)
        middle = np.cumsum(counts) - 0.5 * counts  # ranks less a half, as shares
        return (2 * middle / counts.sum() - 1).astype(np.float32)

    everything = _blocks(n)
    limits = run(edges, range(len(layers)))
    tables = run(table, range(len(layers)))
    return Matrices(n, len(layers), np.dtype(np.float32), lambda i, r, c: tables[i][bins(i, r, c)], nothing)


def _exact_ranks(x: np.ndarray, norms: np.ndarray) -> np.ndarray:
    rows, upper = np.arange(len(x)), np.triu_indices(len(x), 1)
    distances = _distances(x, norms, rows, rows)[upper]
    out = np.zeros((len(x), len(x)))
    out[upper] = (2 * stats.rankdata(np.round(distances, 12)) - 1) / len(distances) - 1
    return out + out.T


def projections(bases: Sequence[np.ndarray]) -> Matrices:
    """UUᵀ of orthonormal bases (n, r)."""

    def tile(layer: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return np.asarray(bases[layer][rows] @ bases[layer][columns].T)

    return Matrices(len(bases[0]), len(bases), bases[0].dtype, tile, np.stack([squares(u) for u in bases]))


def leave_one_out(fits: Sequence[np.ndarray]) -> Matrices:
    """Matrices M with tr(M YYᵀ) = Σᵢ |residual of example i, fitted without it|² for any Y with centred columns.

    M = (I - H)ᵀ D⁻² (I - H), where H = FFᵀ fits and D has 1 - hᵢᵢ (Allen 1974; Hastie, Tibshirani & Friedman 2009,
    equation 7.64).

    Parameters
    ----------
    fits : sequence of ndarray
        F (n, r + 1) of each, with the constant.
    """
    own = [squares(f) for f in fits]
    weights = [1 / np.maximum(1 - h, 1e-12) ** 2 for h in own]
    left, right, diagonals = [], [], []
    for f, h, w in zip(fits, own, weights, strict=True):
        weighted = (w[:, None] * f).astype(f.dtype)
        around = f @ np.asarray(f.T @ weighted)
        left.append(np.hstack([around - weighted, -f]))
        right.append(np.hstack([f, weighted]))
        diagonals.append(w * (1 - 2 * h) + np.einsum("ij,ij->i", around, f, dtype=np.float64))

    def tile(layer: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return np.asarray(left[layer][rows] @ right[layer][columns].T)

    return Matrices(len(fits[0]), len(fits), fits[0].dtype, tile, np.stack(diagonals))
