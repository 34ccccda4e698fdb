"""CKA and RSA as functions of a few inner products, with the influence of each example.

With centred columns, kernels K = XXᵀ, L = YYᵀ and their diagonals a, b, everything follows from
h = Σ_{i≠j} K_ij L_ij, v = Σ a_i b_i and the sums of a and b (Song et al. 2012, equation 5; Murphy et al. 2024):

    cka-biased    h + v                                         HSIC with V-statistics (Gretton et al. 2005), times n²
    cka           h - 2v/(n-2) ... of U-centred kernels          unbiased HSIC, times n(n-3)
    rsa-cosine    Σ_{i≠j} D_ij D'_ij,  D_ij = a_i + a_j - 2K_ij   squared Euclidean distances
    rsa-pearson   the same of deviations from their means
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from probekit.errors import UsageError


@dataclass(frozen=True, slots=True)
class Form:
    """A statistic c₁ h + c₂ v + c₃ Σa Σb; the coefficients depend on n."""

    coefficients: Callable[[int], tuple[float, float, float]]

    def total(self, n: int, h: np.ndarray, v: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """The statistic of all pairs; ``sums`` are the products Σa Σb."""
        c = self.coefficients(n)
        return np.asarray(c[0] * h + c[1] * v + c[2] * sums)


LINEAR = {
    "cka": Form(lambda n: (1, -2 / (n - 2), 1 / ((n - 1) * (n - 2)))),
    "cka-biased": Form(lambda n: (1, 1, 0)),
    "rsa-cosine": Form(lambda n: (4, 2 * n + 4, 2)),
    "rsa-pearson": Form(lambda n: (4, 2 * n + 4, 2 - 4 * n / (n - 1))),
}
"""The measures that follow from the linear kernel."""


@dataclass(frozen=True, eq=False, slots=True)
class Pair:
    """What the influence of example i on a statistic of two linear kernels is made of; arrays broadcast to (n, …).

    Attributes
    ----------
    h : ndarray
        Σ_{j≠i} K_ij L_ij.
    a, b : ndarray
        The diagonals.
    kb, la : ndarray
        Σ_{j≠i} K_ij b_j and Σ_{j≠i} L_ij a_j.
    """

    h: np.ndarray
    a: np.ndarray
    b: np.ndarray
    kb: np.ndarray
    la: np.ndarray


def influence(measure: str, x: Pair) -> np.ndarray:
    """Derivative of a statistic of LINEAR with respect to the weight of each example, up to a constant.

    The statistics are U- or V-statistics of pairs of examples, so it is twice the sum of an example's terms, with
    kernels centred as the statistic has them (Serfling 1980, section 5.3).
    """
    n, a, b = len(x.h), x.a, x.b
    if measure == "cka-biased":
        return 2 * (x.h + a * b)
    suma, sumb, v = a.sum(0, keepdims=True), b.sum(0, keepdims=True), (a * b).sum(0, keepdims=True)
    if measure == "cka":
        c = -suma / ((n - 1) * (n - 2))
        own = (a / (n - 2) + c) * ((sumb - b) / (n - 2) - b)
        return 2 * (x.h + (x.kb + x.la) / (n - 2) + own + (v - a * b) / (n - 2) ** 2)
    terms = (n - 1) * a * b + a * (sumb - b) + b * (suma - a) + (v - a * b)
    terms = terms + 2 * (a * b - x.la) + 2 * (a * b - x.kb) + 4 * x.h
    if measure == "rsa-cosine":
        return 2 * terms
    rows_a, rows_b = n * a + suma, n * b + sumb  # of the distances
    return 2 * terms - 2 * (rows_a * 2 * n * sumb + rows_b * 2 * n * suma) / (n * (n - 1))


def cosine(ab: np.ndarray, aa: np.ndarray, bb: np.ndarray) -> np.ndarray:
    """ab / √(aa bb) for all pairs, (…, layers a, layers b); NaN where a layer has no variation."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(ab / np.sqrt(aa[..., :, None] * bb[..., None, :]))


def cka_from_sums(
    n: int, products: np.ndarray, lengths: np.ndarray, powers: np.ndarray, *, debiased: bool = True
) -> np.ndarray:
    """Linear CKA of all pairs of layers, (layers, layers), from sums over the examples; NaN where a layer is constant.

    In the feature form (Kornblith et al. 2019, equation 3).
    The unbiased estimate of HSIC leaves out each example's product with itself, Σ |xᵢ|² |yᵢ|², which is a sum over
    examples, too (Song et al. 2012, equation 5).

    Parameters
    ----------
    n : int
        Examples, at least 4.
    products : np.ndarray
        (layers, layers): |XᵀY|² (Frobenius norm) of centred columns.
    lengths : np.ndarray
        (layers, layers): Σᵢ |xᵢ|² |yᵢ|².
    powers : np.ndarray
        (layers,): Σᵢ |xᵢ|².
    debiased : bool
        As for :func:`probekit.similarity.cka`.

    Raises
    ------
    UsageError
        For fewer than 4 examples.
    """
    if n < 4:
        raise UsageError(f"there are {n} examples; CKA needs at least 4.")
    form = LINEAR["cka" if debiased else "cka-biased"]
    total = form.total(n, products - lengths, lengths, np.outer(powers, powers))
    own = np.where(powers > 0, np.diagonal(total), np.nan)
    return cosine(total, own, own)
