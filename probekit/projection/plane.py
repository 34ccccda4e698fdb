"""Principal components, exactly: from the covariance or the Gram matrix, whichever is smaller, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from probekit.errors import NonFiniteError

BLOCK = 1 << 22
"""Numbers that are converted to float64 at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """A plane in the space of the features.

    Attributes
    ----------
    mean : np.ndarray
        float64 (d,), the origin.
    axes : np.ndarray
        float64 (d, k); for principal components orthonormal columns, and zeros where the vectors have fewer dimensions
        than the plane.
    explained : np.ndarray
        float64 (k,), the share of the variance along each axis; NaN if all vectors are equal.
    """

    mean: np.ndarray
    axes: np.ndarray
    explained: np.ndarray

    def points(self, x: Any) -> np.ndarray:
        """The coordinates of vectors (n, d) in the plane, float64 (n, k)."""
        return np.concatenate([(part - self.mean) @ self.axes for part in blocks(x)])


def principal_plane(x: Any, components: int = 2) -> Plane:
    """The first principal components of vectors.

    The sign of each axis is fixed: its largest coordinate is positive.

    Parameters
    ----------
    x : array
        (n, d); a memory map, or an object with ``shape`` and slices of rows.
    components : int
        Number of axes.

    Returns
    -------
    Plane
        Exact up to float64 rounding.

    Raises
    ------
    NonFiniteError
        If a vector contains NaN or infinity.

    Examples
    --------
    >>> plane = principal_plane(np.diag([3.0, 2.0, 1.0]) @ np.array([[1.0, 0], [-1, 0], [0, 0]]))
    >>> plane.axes[:, 0], plane.explained
    (array([1., 0.]), array([1., 0.]))
    """
    n, d = x.shape
    mean = centre(x)
    axes, values = np.zeros((d, components)), np.zeros(components)
    kept = min(components, n, d)
    if d <= n:
        matrix = np.zeros((d, d))
        for part in blocks(x):
            part -= mean
            matrix += part.T @ part
    else:
        rows = np.concatenate(list(blocks(x))) - mean
        matrix = rows @ rows.T
    total = float(np.trace(matrix))
    size = len(matrix)
    found, vectors = linalg.eigh(matrix, subset_by_index=[size - kept, size - 1], check_finite=False)
    found, vectors = found[::-1], vectors[:, ::-1]
    # below this, an eigenvalue is rounding error
    real = found > max(n, d) * np.finfo(float).eps * max(total, float((mean * mean).sum()) * n * np.finfo(float).eps)
    for i in np.flatnonzero(real):
        axes[:, i] = vectors[:, i] if d <= n else rows.T @ vectors[:, i] / np.sqrt(found[i])
        values[i] = found[i]
    return Plane(mean, upright(axes), values / total if real.any() else np.full(components, np.nan))


def upright(axes: np.ndarray) -> np.ndarray:
    """Columns whose largest coordinate by magnitude is positive."""
    largest = np.take_along_axis(axes, np.abs(axes).argmax(0)[None], axis=0)
    return axes * np.where(largest < 0, -1.0, 1.0)


def blocks(x: Any) -> Iterator[np.ndarray]:
    """The rows of an array as new float64 arrays, some rows at a time."""
    n, d = x.shape
    step = max(1, BLOCK // max(d, 1))
    for start in range(0, n, step):
        yield np.array(x[start : start + step], dtype=np.float64)


def centre(x: Any) -> np.ndarray:
    """The mean of the rows, float64 (d,); raises NonFiniteError if a vector contains NaN or infinity."""
    total = np.zeros(x.shape[1])
    for part in blocks(x):
        total += part.sum(0)
    if not np.isfinite(total).all():
        raise NonFiniteError("a vector contains NaN or infinity, so no map can be drawn.")
    return total / x.shape[0]
