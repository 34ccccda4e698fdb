"""The rotation or reflection of the plane that brings one map of the same points closest to another."""

from __future__ import annotations

import numpy as np


def rotation(xy: np.ndarray, reference: np.ndarray, *, keep_axes: bool = False) -> np.ndarray:
    """The orthogonal matrix R for which ``xy @ R`` is closest to ``reference`` (Schönemann 1966).

    Parameters
    ----------
    xy, reference : np.ndarray
        (n, 2), the same points; both are centred first.
    keep_axes : bool
        Only change signs, because the axes have a meaning.

    Returns
    -------
    np.ndarray
        float64 (2, 2), a rotation or a reflection; the identity if one of the maps is a single point.

    Examples
    --------
    >>> rotation(np.array([[0.0, 1], [0, -1], [2, 0]]), np.array([[1.0, 0], [-1, 0], [0, 2]]))
    array([[0., 1.],
           [1., 0.]])
    """
    x, y = (np.asarray(a, dtype=np.float64) - np.mean(a, axis=0, dtype=np.float64) for a in (xy, reference))
    product = x.T @ y
    if keep_axes:
        return np.diag(np.where(np.diag(product) < 0, -1.0, 1.0))
    if not product.any():
        return np.eye(product.shape[0])
    u, _, v = np.linalg.svd(product)
    return u @ v
