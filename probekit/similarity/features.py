"""Layers of one side in memory: rows chosen, columns centred in float64, scaled to mean squared norm 1."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.errors import NonFiniteError, UsageError

__all__ = ["DOUBLE", "Layers", "read"]

DOUBLE = 2048
"""Up to this number of examples everything is computed in float64; above, matrices are float32 and sums float64."""
BLOCK = 1 << 24  # numbers read at once
IN_MEMORY = 1 << 31  # bytes of layers in memory; more lie in a temporary file
EQUAL = 1e-12  # deviations from the column's mean that are rounding, relative to the largest number


@dataclass(frozen=True, eq=False, slots=True)
class Layers:
    """Layers of one side.

    Attributes
    ----------
    x : tuple of ndarray
        (n, d) of each layer, centred, with mean squared norm 1; zeros if the layer is constant.
    constant : ndarray
        bool (layers,): all examples have the same vector.
    """

    x: tuple[np.ndarray, ...]
    constant: np.ndarray

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: np.ndarray) -> Layers:
        """Some rows of all layers, centred again."""
        if len(rows) == len(self.x[0]) and (rows == np.arange(len(rows))).all():
            return self
        return read([lambda x=x: x for x in self.x], rows)  # type: ignore[misc]


def read(sources: Sequence[Callable[[], Any]], rows: np.ndarray) -> Layers:
    """Read the chosen rows of each layer, in blocks, and centre them.

    Parameters
    ----------
    sources : sequence of callable
        Each returns an (n, d) array, or something with ``shape`` that can be sliced by rows.
    rows : ndarray
        Positions of the rows, ascending.
    """
    dtype = np.float64 if len(rows) <= DOUBLE else np.float32
    found, constant, size = [], [], 0
    for number, source in enumerate(sources):
        x = source()
        if len(x.shape) != 2 or x.shape[1] == 0:
            raise UsageError(
                f"the vectors of layer {number} have shape {tuple(x.shape)}; expected (examples, columns)."
            )
        size += len(rows) * x.shape[1] * np.dtype(dtype).itemsize
        out = _room((len(rows), x.shape[1]), dtype, in_memory=size <= IN_MEMORY)
        constant.append(_centre(x, rows, out, number))
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


def _centre(x: Any, rows: np.ndarray, out: np.ndarray, number: int) -> bool:
    """Fill ``out`` with centred and scaled rows; whether all rows are equal."""
    mean, high = np.zeros(x.shape[1]), 0.0
    for _, part in _blocks(x, rows):
        mean += part.sum(0)
        high = max(high, float(np.abs(part).max(initial=0.0)))
    if not (np.isfinite(high) and np.isfinite(mean).all()):
        raise NonFiniteError(
            f"the vectors of layer {number} contain NaN or infinite numbers; find them with probekit verify."
        )
    if high == 0:
        out[:] = 0
        return True
    mean /= len(rows) * high
    square, spread = 0.0, 0.0
    for _, part in _blocks(x, rows):
        part /= high
        part -= mean
        spread = max(spread, float(np.abs(part).max()))
        square += float(np.einsum("ij,ij->", part, part))
    if spread <= EQUAL:
        out[:] = 0
        return True
    scale = np.sqrt(square / len(rows))
    for at, part in _blocks(x, rows):
        out[at] = (part / high - mean) / scale
    return False
