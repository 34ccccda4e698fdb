"""CKA of all pairs of layers from sums over the examples, in the feature form (Kornblith et al. 2019, equation 3)."""

from __future__ import annotations

import numpy as np

from probekit.errors import UsageError
from probekit.similarity.kernel_measures import LINEAR, cosine


def cka_from_sums(
    n: int, products: np.ndarray, lengths: np.ndarray, powers: np.ndarray, *, debiased: bool = True
) -> np.ndarray:
    """Linear CKA of all pairs of layers, (layers, layers); NaN where a layer is constant.

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
