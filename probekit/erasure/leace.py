"""LEACE: the smallest change of vectors after which no linear classifier tells a concept (Belrose et al. 2023).

It needs means and covariances only, so it can be computed from sums over any number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probekit.errors import NonFiniteError, UsageError

TOLERANCE = 0.01
"""Singular values of the whitened cross-covariance that count as 0, as in the authors' package."""


@dataclass(frozen=True, eq=False, slots=True)
class Eraser:
    """x → x - (x - mean)(I - projection)ᵀ.

    Attributes
    ----------
    mean : np.ndarray
        float64 (d,).
    projection : np.ndarray
        float64 (d, d), oblique.
    rank : int
        Dimensions that are erased.
    variance : float
        The share of the variance that is erased, 0 to 1.
    """

    mean: np.ndarray
    projection: np.ndarray
    rank: int
    variance: float

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The vectors (n, d) without the concept."""
        return np.asarray(x - (x - self.mean) @ (np.eye(len(self.mean)) - self.projection).T)


def leace(mean: np.ndarray, covariance: np.ndarray, cross: np.ndarray, *, tolerance: float = TOLERANCE) -> Eraser:
    """The affine eraser of least squared change (Belrose et al. 2023, theorem 4.3), P = I - W⁺ U Uᵀ W.

    W = Σₓₓ^(-1/2) whitens, and U spans the columns of W Σₓᵤ.

    Parameters
    ----------
    mean : np.ndarray
        (d,) of the vectors.
    covariance : np.ndarray
        (d, d) of the vectors, not shrunk.
    cross : np.ndarray
        (d, k) covariance of vectors and concept: one column for numbers, one for each class.
    tolerance : float, default 0.01
        Singular values of W Σₓᵤ up to this count as 0.

    Returns
    -------
    Eraser
        After it, the vectors it was made from have no covariance with the concept, so the best linear prediction of the
        concept, under any convex loss, is a constant (theorem 3.1).

    Raises
    ------
    UsageError
        For shapes that do not fit.
    NonFiniteError
        For covariances that are not finite.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.integers(2, size=500).astype(float)
    >>> x = rng.normal(size=(500, 3)) + z[:, None] * [2, 0, 0]
    >>> c = np.cov(np.column_stack([x, z]).T)
    >>> erased = leace(x.mean(0), c[:3, :3], c[:3, 3:])(x)
    >>> bool(np.abs(np.cov(erased.T, z)[:3, 3]).max() < 1e-12)
    True
    """
    d = len(mean)
    if covariance.shape != (d, d) or cross.ndim != 2 or len(cross) != d:
        raise UsageError(
            f"for a mean of {d} dimensions, the covariance must be ({d}, {d}) and the cross-covariance ({d}, k), not "
            f"{covariance.shape} and {cross.shape}."
        )
    if not (np.isfinite(covariance).all() and np.isfinite(cross).all()):
        raise NonFiniteError("the covariances contain NaN or infinity.")
    power, basis = np.linalg.eigh(covariance)
    kept = power > max(power[-1], 0) * d * np.finfo(np.float64).eps
    root, basis = np.sqrt(power[kept]), basis[:, kept]
    left, singular, _ = np.linalg.svd((basis / root) @ (basis.T @ cross), full_matrices=False)
    left = left[:, singular > tolerance]
    erased = (basis * root) @ (basis.T @ left) @ ((left.T @ basis) / root @ basis.T)
    total = float(np.trace(covariance))
    projection = np.eye(d) - erased
    after = float(np.trace(projection @ covariance @ projection.T))
    return Eraser(np.asarray(mean, dtype=np.float64), projection, left.shape[1], 1 - after / total if total else 0.0)
