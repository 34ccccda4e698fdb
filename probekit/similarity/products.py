"""Inner products of the n × n matrices of all pairs of layers: observed, by row, and under permutations.

For a cyclic group, the sums Σᵢⱼ Aᵢⱼ Bᵢ₊ₛ,ⱼ₊ₛ of all shifts s are cross-correlations along the wrapped diagonals of A
and B: after a Fourier transform of each diagonal they are matrix products over the diagonals, for all pairs of layers
at once. Matrices are made in tiles of two classes of rows, so that memory is bounded by a tile of each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from scipy import fft

from probekit.runtime import Progress, blas_thread, cores, no_progress
from probekit.similarity.matrices import Matrices
from probekit.similarity.orders import Cycles

TILE = 1024  # rows of a tile where the cycles do not set them
AT_ONCE = 20  # permutations between two reports of progress

Map = Callable[..., Any]


@contextmanager
def workers(threads: int | None) -> Iterator[Map]:
    """A map over so many threads, each with a BLAS of one thread: the numbers do not depend on their number."""
    count = threads or cores()
    with blas_thread():
        if count == 1:
            yield lambda function, *items: list(map(function, *items))
            return
        with ThreadPoolExecutor(count) as pool:
            yield lambda function, *items: list(pool.map(function, *items))


@dataclass(frozen=True, eq=False, slots=True)
class Products:
    """Inner products of matrices A of one side and B of the other, without the diagonals.

    Attributes
    ----------
    ab : ndarray
        float64 (n, layers a, layers b): Σⱼ Aᵢⱼ Bᵢⱼ of each row i.
    aa, bb : ndarray
        float64 (n, layers): the same of each matrix with itself. Where only sums over the rows are wanted, n is 1.
    null : ndarray, optional
        float64 (1 + draws, layers a, layers b): Σᵢⱼ Aᵢⱼ Bᵢⱼ of each permutation, the observed order first.
    """

    ab: np.ndarray
    aa: np.ndarray
    bb: np.ndarray
    null: np.ndarray | None = None


def products(
    a: Matrices, b: Matrices, cycles: Cycles | None, run: Map, *, progress: Progress = no_progress, stage: str = ""
) -> Products:
    """Inner products of all pairs of matrices; with ``cycles``, which hold every row once, their null distribution too.

    Parameters
    ----------
    a, b : Matrices
        Of the two sides, with the same n; the same object if a side is compared with itself.
    cycles : Cycles, optional
        The permutations.
    run : callable
        A map over threads, see :func:`workers`.
    """
    n = a.n
    if cycles is None:
        size, cosets = TILE, [_blocks(np.arange(n), TILE)]
    else:
        size = cycles.classes.shape[1]
        cosets = [[*k, *_blocks(rest, size)] for k, rest in zip(cycles.cosets, cycles.rests, strict=True)]
    blocks, moving = cosets[0], 0 if cycles is None else len(cycles.classes)
    out = Products(np.zeros((n, a.count, b.count)), np.zeros((n, a.count)), np.zeros((n, b.count)))
    spectrum = np.zeros((len(cosets), size // 2 + 1, a.count, b.count), np.complex128)
    tiles = [(r, q) for r in range(len(blocks)) for q in range(r, len(blocks))]
    for done, (r, q) in enumerate(tiles):
        ours = _tiles(a, blocks[r], blocks[q], run, diagonal=r == q)
        theirs = ours if b is a else _tiles(b, blocks[r], blocks[q], run, diagonal=r == q)
        _add_rows(out, ours, theirs, blocks[r], blocks[q], run, diagonal=r == q)
        if cycles is not None:
            spectra = _spectra if q < moving else _spectra_of_columns if r < moving else _constant
            weight = (1 + (r != q)) * (size if r >= moving else 1)
            waves = spectra(ours, run)
            for k, coset in enumerate(cosets):
                if k:
                    theirs = _tiles(b, coset[r], coset[q], run, diagonal=r == q)
                others = waves if theirs is ours else spectra(theirs, run)
                _add_spectrum(spectrum[k], waves, others, weight, run)
        progress(stage, done + 1, len(tiles))
    if cycles is None:
        return out
    null = fft.irfft(spectrum, n=size, axis=1).reshape(-1, a.count, b.count)
    return replace(out, null=null)


def _blocks(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def correlated(a: np.ndarray, b: np.ndarray, cycles: Cycles) -> np.ndarray:
    """Σᵢ aᵢ bᵢ of vectors (layers, n) under the same permutations, float64 (1 + draws, layers a, layers b)."""
    size = cycles.classes.shape[1]
    ours = fft.rfft(a[:, cycles.classes], axis=-1).conj()
    theirs = fft.rfft(b[:, cycles.cosets], axis=-1)
    both = np.einsum("agf,bkgf->kfab", ours, theirs, optimize=True)
    both[:, 0] += size * np.einsum("ar,bkr->kab", a[:, cycles.rest], b[:, cycles.rests])
    return np.asarray(fft.irfft(both, n=size, axis=1)).reshape(-1, len(a), len(b))


def _tiles(m: Matrices, rows: np.ndarray, columns: np.ndarray, run: Map, *, diagonal: bool) -> np.ndarray:
    """(layers, rows, columns), with zeros on the diagonal of the matrices."""
    out = np.empty((m.count, len(rows), len(columns)), m.dtype)

    def fill(layer: int) -> None:
        out[layer] = m.tile(layer, rows, columns)
        if diagonal:
            np.fill_diagonal(out[layer], 0)

    run(fill, range(m.count))
    return out


def _add_rows(
    out: Products,
    ours: np.ndarray,
    theirs: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    run: Map,
    *,
    diagonal: bool,
) -> None:
    """Add the products of two tiles to the sums of their rows, and to those of their columns off the diagonal."""

    def add(to: np.ndarray, one: np.ndarray, other: np.ndarray) -> None:
        to[rows] += np.einsum("ij,ij->i", one, other)
        if not diagonal:
            to[columns] += np.einsum("ij,ij->j", one, other)

    def of(layer: int) -> None:
        add(out.aa[:, layer], ours[layer], ours[layer])
        for other in range(len(theirs)):
            if theirs is not ours or other >= layer:
                add(out.ab[:, layer, other], ours[layer], theirs[other])
                if theirs is ours and other > layer:
                    out.ab[:, other, layer] = out.ab[:, layer, other]

    run(of, range(len(ours)))
    if theirs is ours:
        out.bb[:] = out.aa
    else:
        run(lambda layer: add(out.bb[:, layer], theirs[layer], theirs[layer]), range(len(theirs)))


def _spectra(tiles: np.ndarray, run: Map) -> np.ndarray:
    """Fourier transforms along the wrapped diagonals of square tiles, (frequencies, layers, diagonals)."""
    count, m, _ = tiles.shape
    kind = np.complex64 if tiles.dtype == np.float32 else np.complex128
    out = np.empty((m // 2 + 1, count, m), kind)

    def transform(layer: int) -> None:
        twice = np.concatenate([tiles[layer], tiles[layer]], axis=1)
        step = twice.itemsize
        diagonals = as_strided(twice, (m, m), ((2 * m + 1) * step, step))  # [i, t] is [i, (i + t) % m]
        out[:, layer] = fft.rfft(diagonals, axis=0)

    run(transform, range(count))
    return out


def _spectra_of_columns(tiles: np.ndarray, run: Map) -> np.ndarray:
    """Fourier transforms along the columns of tiles whose columns stay, (frequencies, layers, columns)."""
    return np.stack(run(lambda tile: fft.rfft(tile, axis=0), tiles), axis=1)


def _constant(tiles: np.ndarray, run: Map) -> np.ndarray:
    """Tiles whose rows and columns stay, (1, layers, rows and columns)."""
    return tiles.reshape(1, len(tiles), -1)


def _add_spectrum(to: np.ndarray, ours: np.ndarray, theirs: np.ndarray, weight: int, run: Map) -> None:
    """Add the products over the diagonals, at each frequency, to ``to`` (frequencies, layers a, layers b)."""

    def add(part: slice) -> None:
        to[part] += weight * (ours[part].conj() @ theirs[part].swapaxes(1, 2))

    run(add, [slice(i, min(i + 32, len(ours))) for i in range(0, len(ours), 32)])


def permuted(
    a: Matrices, b: Matrices, orders: np.ndarray, run: Map, *, progress: Progress = no_progress
) -> tuple[np.ndarray, np.ndarray]:
    """Inner products without and with the diagonal only, for any permutations (draws, n); (1 + draws, layers, layers).

    The first is the observed order. For clusters that are too unlike to be permuted in cycles.
    """
    everything = np.arange(a.n)
    ours = _tiles(a, everything, everything, run, diagonal=True)
    theirs = ours if b is a else _tiles(b, everything, everything, run, diagonal=True)
    orders = np.concatenate([everything[None], orders])

    moving = np.ascontiguousarray(np.moveaxis(theirs, 0, 2))  # layers last: one index reads the numbers of all
    starts = range(0, a.n, 64)  # the upper triangle, in bands that stay in the processor's cache
    bands = [ours[:, start : start + 64, start:].copy() for start in starts]
    for band in bands:
        band[:, :, : band.shape[1]] *= np.triu(np.ones((band.shape[1], band.shape[1]), band.dtype), 1)

    def of(order: np.ndarray) -> np.ndarray:
        total = np.zeros((a.count, b.count))
        for start, band in zip(starts, bands, strict=True):
            moved = moving[order[start : start + 64]].take(order[start:], axis=1)
            total += 2.0 * (band.reshape(a.count, -1) @ moved.reshape(-1, b.count))
        return total

    h = np.empty((len(orders), a.count, b.count))
    for start in range(0, len(orders), AT_ONCE):
        h[start : start + AT_ONCE] = run(of, orders[start : start + AT_ONCE])
        done = min(start + AT_ONCE, len(orders))
        progress("permutations", done, len(orders), permutations=done)
    v = np.stack([a.vector @ b.vector[:, order].T for order in orders])
    return h, v


def by_features(x: Sequence[np.ndarray], y: Sequence[np.ndarray], run: Map, *, rows: bool) -> np.ndarray:
    """Σⱼ (xᵢ·xⱼ)(yᵢ·yⱼ) for all pairs of layers from XᵀY, (n, layers x, layers y), or (1, …) summed over i.

    Of the order of n d², where the n × n kernels are of n² d.
    """
    out = np.zeros((len(x[0]) if rows else 1, len(x), len(y)))
    parts = [slice(i, i + 4096) for i in range(0, len(x[0]), 4096)]

    def of(layer: int) -> None:
        for other in range(len(y)):
            if y is x and other < layer:
                out[:, layer, other] = out[:, other, layer]
                continue
            cross = np.zeros((x[layer].shape[1], y[other].shape[1]))
            for p in parts:
                cross += x[layer][p].T @ y[other][p]
            if not rows:
                out[0, layer, other] = (cross**2).sum()
                continue
            cross = cross.astype(x[layer].dtype)
            for p in parts:
                out[p, layer, other] = np.einsum("ij,ij->i", x[layer][p] @ cross, y[other][p], dtype=np.float64)

    if y is x:
        for layer in range(len(x)):  # later layers take their symmetric half from earlier ones
            of(layer)
    else:
        run(of, range(len(x)))
    return out
