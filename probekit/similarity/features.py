"""Layers of one side in memory: rows chosen, columns centred in float64, scaled to mean squared norm 1."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from probekit.errors import NonFiniteError, UsageError

DOUBLE = 2048
"""Up to this number of examples everything is computed in float64; above, matrices are float32 and sums float64."""
BLOCK = 1 << 24  # numbers read at once
IN_MEMORY = 1 << 31  # bytes of layers in memory; more lie in a temporary file
EQUAL = 1e-12  # deviations from the mean that are rounding, relative to the largest number of all columns
SINGLE = float(np.finfo(np.float32).eps)
LONG = 1e4  # a squared norm is outlying if it is so many times the median: sums of float32 products lose the others


@dataclass(frozen=True, eq=False, slots=True)
class Layers:
    """Layers of one side.

    Attributes
    ----------
    x : tuple of ndarray
        (n, d) of each layer, centred, with mean squared norm 1; zeros if the layer is constant. All float64 if there
        are few examples, or one that is very long.
    constant : ndarray
        bool (layers,): all examples have the same vector, but for rounding in the precision they come in.
    """

    x: tuple[np.ndarray, ...]
    constant: np.ndarray

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: np.ndarray) -> Layers:
        """Some rows of all layers, centred again."""
        if len(rows) == len(self.x[0]) and (rows == np.arange(len(rows))).all():
            return self
        return read([partial(np.asarray, x) for x in self.x], rows)


def without_mean(x: np.ndarray) -> np.ndarray:
    """Columns less their means, float64."""
    x = np.asarray(x, np.float64)
    return np.asarray(x - x.mean(0))


def only_rounding(spread: np.ndarray, highest: np.ndarray, precision: float) -> bool:
    """Whether columns deviate from their means by no more than the rounding of their numbers.

    Parameters
    ----------
    spread, highest : ndarray
        (d,) the largest deviation from the mean, and the largest number, of each column.
    precision : float
        ε of the numbers: the distance of 1 from the next one.
    """
    least = max(EQUAL, 4 * min(precision, SINGLE)) * highest.max()
    return bool((spread <= precision * highest + least).all())


def read(sources: Sequence[Callable[[], Any]], rows: np.ndarray, precision: float | None = None) -> Layers:
    """Read the chosen rows of each layer, in blocks, and centre them.

    Parameters
    ----------
    sources : sequence of callable
        Each returns an (n, d) array, or something with ``shape`` that can be sliced by rows.
    rows : ndarray
        Positions of the rows, ascending.
    precision : float, optional
        ε of the numbers, if they were rounded further than their type says, as those of a bfloat16 cache are.
    """
    return _read(sources, rows, precision or 0.0, np.float64 if len(rows) <= DOUBLE else np.float32)


def _read(sources: Sequence[Callable[[], Any]], rows: np.ndarray, precision: float, dtype: Any) -> Layers:
    found, constant, size, count = [], [], 0, None
    for number, source in enumerate(sources):
        x = source()
        if len(x.shape) != 2 or x.shape[1] == 0:
            raise UsageError(
                f"the vectors of layer {number} have shape {tuple(x.shape)}; expected (examples, columns)."
            )
        if x.shape[0] != (count := count or x.shape[0]):
            raise UsageError(
                f"the layers have {min(count, x.shape[0]):,} to {max(count, x.shape[0]):,} examples; compare vectors "
                "of the same examples."
            )
        size += len(rows) * x.shape[1] * np.dtype(dtype).itemsize
        out = _room((len(rows), x.shape[1]), dtype, in_memory=size <= IN_MEMORY)
        equal, long = _centre(x, rows, out, number, precision)
        if long and dtype == np.float32:
            return _read(sources, rows, precision, np.float64)
        constant.append(equal)
        found.append(out)
    return Layers(tuple(found), np.array(constant))


def _room(shape: tuple[int, int], dtype: Any, *, in_memory: bool) -> np.ndarray:
    if in_memory:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="probekit-similarity-") as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def _blocks(x: Any, rows: np.ndarray) -> Any:
    """Pieces of the chosen rows in float64, and where they go; x is sliced only."""
    step = max(1, BLOCK // max(x.shape[1], 1))
    for start in range(0, x.shape[0], step):
        low, high = np.searchsorted(rows, [start, start + step])
        if low < high:
            part = np.asarray(x[start : min(start + step, x.shape[0])])
            yield slice(low, high), part[rows[low:high] - start].astype(np.float64)


def _centre(x: Any, rows: np.ndarray, out: np.ndarray, number: int, precision: float) -> tuple[bool, bool]:
    """Fill ``out`` with centred and scaled rows; whether all rows are equal, and whether one is very long."""
    mean, highest = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for _, part in _blocks(x, rows):
        mean += part.sum(0)
        highest = np.maximum(highest, np.abs(part).max(0))
    high = float(highest.max())
    if not (np.isfinite(high) and np.isfinite(mean).all()):
        raise NonFiniteError(f"the vectors of layer {number} contain NaN or infinite numbers.")
    if high == 0:
        out[:] = 0
        return True, False
    mean /= len(rows) * high
    square, spread = np.zeros(len(rows)), np.zeros(x.shape[1])
    for at, part in _blocks(x, rows):
        part /= high
        part -= mean
        spread = np.maximum(spread, np.abs(part).max(0))
        square[at] = np.einsum("ij,ij->i", part, part)
    if only_rounding(spread, highest / high, max(precision, rounding(np.asarray(x[:1]).dtype))):
        out[:] = 0
        return True, False
    scale = np.sqrt(square.mean())
    for at, part in _blocks(x, rows):
        out[at] = (part / high - mean) / scale
    return False, bool(square.max() > LONG * np.median(square))


def rounding(dtype: Any) -> float:
    """Distance of 1 from the next number; 0 of integers."""
    return float(np.finfo(dtype).eps) if np.issubdtype(dtype, np.floating) else 0.0
