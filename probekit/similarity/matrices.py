"""One n × n matrix of each layer, in tiles: the linear kernel, the Gaussian kernel, projections, leave-one-out forms.

Most measures are inner products ⟨A, B⟩ of a matrix of X and a matrix of Y. If the rows of Y are permuted, the rows and
columns of B are: so one routine serves all of them (`probekit.similarity.products`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from probekit.similarity.features import Layers

__all__ = ["Matrices", "linear"]

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
