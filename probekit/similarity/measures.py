"""Similarity of two layers: plain functions of two arrays with the same rows.

Columns are centred, everything is computed in float64 for up to 2,048 examples, and no value is clipped. For all pairs
of layers of two models, with chance level and intervals, see
:func:`probekit.similarity.layer_pairs.layer_pairs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import numpy as np

from probekit.errors import UsageError
from probekit.similarity.features import without_mean
from probekit.similarity.kernel_measures import LINEAR
from probekit.similarity.layer_pairs import layer_pairs
from probekit.similarity.matrices import squares
from probekit.similarity.neighbours import mean_score, nearest
from probekit.similarity.options import SimilarityOptions


def cka(x: np.ndarray, y: np.ndarray, *, debiased: bool = True) -> float:
    """Linear centred kernel alignment (Kornblith et al. 2019).

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.
    debiased : bool
        With the unbiased estimates of HSIC (Song et al. 2012, equation 5; Murphy et al. 2024), which for unrelated
        layers is 0 in the mean and may be negative. Without, unrelated layers come out at about
        1 / √((1 + n/r)(1 + n/s)) with r and s effective dimensions: above .5 where there are more of them than
        examples.

    Returns
    -------
    float
        1 for layers that are equal but for rotation, scale and shift; NaN if a layer is constant.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.standard_normal((2, 200, 384))
    >>> abs(cka(x, y)) < 0.05 and cka(x, y, debiased=False) > 0.6
    True
    """
    return _one("cka" if debiased else "cka-biased", x, y)


def minibatch_cka(batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    """Debiased linear CKA from batches: a ratio of means of HSIC, never a mean of ratios (Nguyen et al. 2021).

    Each HSIC is unbiased, so batches of any size (4 or more) estimate the same.

    Parameters
    ----------
    batches : iterable of tuple
        Pairs of arrays (m, d) and (m, e) of the same m examples.

    Returns
    -------
    float
        As :func:`cka` of all examples, but for pairs of examples in different batches.
    """
    sums = np.zeros(3)
    for x, y in batches:
        if len(x) < 4 or len(x) != len(y):
            raise UsageError(f"a batch has {len(x)} and {len(y)} examples; both need the same number, 4 or more.")
        p, q = without_mean(x), without_mean(y)
        sums += [_hsic(p, q), _hsic(p, p), _hsic(q, q)]
    return float(sums[0] / np.sqrt(sums[1] * sums[2])) if sums[1] > 0 and sums[2] > 0 else float("nan")


def _hsic(x: np.ndarray, y: np.ndarray) -> float:
    """Unbiased HSIC of linear kernels of centred columns (Song et al. 2012, equation 5)."""
    n, a, b = len(x), squares(x), squares(y)
    cross = ((x.T @ y) ** 2).sum() if n > min(x.shape[1], y.shape[1]) else ((x @ x.T) * (y @ y.T)).sum()
    return float(LINEAR["cka"].total(n, cross - a @ b, a @ b, a.sum() * b.sum()) / (n * (n - 3)))


def cka_rbf(x: np.ndarray, y: np.ndarray) -> float:
    """Debiased CKA of Gaussian kernels as wide as the median distance (Kornblith et al. 2019, section 3).

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.

    Returns
    -------
    float
        1 for equal layers, 0 in the mean for unrelated ones.
    """
    return _one("cka-rbf", x, y)


def cca(x: np.ndarray, y: np.ndarray, *, squared: bool = False) -> float:
    """Mean canonical correlation over the smaller of the ranks of the layers.

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.
    squared : bool
        Mean of the squared correlations, R²_CCA of Kornblith et al. (2019).

    Returns
    -------
    float
        1 for layers that are linear functions of each other; also for any layers of rank n - 1.
    """
    return _one("cca-r2" if squared else "cca", x, y)


def eigenspace_overlap(x: np.ndarray, y: np.ndarray) -> float:
    """Sum of squared canonical correlations over the larger rank (May et al. 2019; of centred columns).

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.

    Returns
    -------
    float
        1 for layers that span the same space; for layers of equal rank, the same as ``cca(x, y, squared=True)``.
    """
    return _one("eigenspace-overlap", x, y)


def svcca(x: np.ndarray, y: np.ndarray, *, variance: float = 0.99) -> float:
    """Mean canonical correlation of the leading principal components (Raghu et al. 2017).

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.
    variance : float
        Share of the variance that is kept: of the variance, not of the sum of singular values.

    Returns
    -------
    float
        0 to 1.
    """
    return _one("svcca", x, y, variance=variance)


def pwcca(x: np.ndarray, y: np.ndarray) -> float:
    """Canonical correlations weighted by how much of x they account for (Morcos et al. 2018, equations 2 and 3).

    The weight of a canonical variate h of x is ``Σⱼ |⟨h, xⱼ⟩|`` over the centred columns of x, over all variates up to
    the smaller rank. Implementations do not agree (with centring, without, or with either side's weights); this is the
    paper's formula. It is not symmetric, and a rotation of x changes it.

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.

    Returns
    -------
    float
        0 to 1.
    """
    return _one("pwcca", x, y)


def procrustes(x: np.ndarray, y: np.ndarray, *, kind: Literal["cosine", "angle", "distance"] = "cosine") -> float:
    """Similarity after the best rotation and reflection (Williams et al. 2021).

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples. The narrower gets columns of zeros.
    kind : str
        "cosine" is ``Σσ(XᵀY) / |X||Y|``, "angle" its arc cosine in radians, "distance" ``min |XQ - Y|`` in the units of
        the vectors (Frobenius norm).

    Returns
    -------
    float
        Of equal layers 1, 0 and 0.
    """
    cosine = _one("procrustes", x, y)
    if kind == "angle":
        return float(np.arccos(min(cosine, 1.0)))
    if kind == "cosine":
        return cosine
    p, q = (np.linalg.norm(without_mean(z)) for z in (x, y))
    return float(np.sqrt((p - q) ** 2 + 2 * p * q * max(1 - cosine, 0)))


def rsa(
    x: np.ndarray,
    y: np.ndarray,
    *,
    compare: Literal["pearson", "spearman", "cosine"] = "pearson",
    distances: Literal["squared-euclidean", "correlation"] = "squared-euclidean",
) -> float:
    """Representational similarity analysis: do the same pairs of examples lie far apart? (Kriegeskorte et al. 2008).

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.
    compare : str
        How the distances of all pairs are compared. "cosine" is near 1 for any layers.
    distances : str
        "squared-euclidean", which rotations and shifts do not change, or 1 - "correlation" of the vectors, which they
        do.

    Returns
    -------
    float
        1 for layers that are equal but for rotation, scale and shift.
    """
    if distances == "correlation":
        x, y = _standardised(x), _standardised(y)
    return _one(f"rsa-{compare}", x, y)


def _standardised(x: np.ndarray) -> np.ndarray:
    """Rows of mean 0 and norm 1: their squared distances are twice 1 - correlation."""
    x = without_mean(x.T).T
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300))


def mutual_knn(x: np.ndarray, y: np.ndarray, k: int = 10, *, centred: bool = True) -> float:
    """Mean share of common examples among the k nearest by cosine (Huh et al. 2024); k / (n - 1) by chance.

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.
    k : int
        Number of neighbours.
    centred : bool
        Cosines of centred vectors, which shifts of a layer do not change; the paper's are of the vectors as they are.

    Returns
    -------
    float
        0 to 1.
    """
    return _neighbours("mutual-knn", x, y, k, centred=centred)


def knn_jaccard(x: np.ndarray, y: np.ndarray, k: int = 10, *, centred: bool = True) -> float:
    """Mean of common over all different examples among the k nearest of either layer.

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.
    k : int
        Number of neighbours.
    centred : bool
        As in :func:`mutual_knn`.

    Returns
    -------
    float
        0 to 1.
    """
    return _neighbours("knn-jaccard", x, y, k, centred=centred)


def knn_rank(x: np.ndarray, y: np.ndarray, k: int = 10, *, centred: bool = True) -> float:
    """Agreement of the ranks of the common examples among the k nearest (Wang et al. 2020; Klabunde et al. 2023).

    A common neighbour of ranks r and s counts ``2 / ((1 + |r - s|) (r + s))``: near ones count more, and those
    whose ranks differ less. The sum is divided by what it would be with equal ranks 1, 2, … of as many neighbours, so
    their number hardly matters: read it beside :func:`mutual_knn`.

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.
    k : int
        Number of neighbours.
    centred : bool
        As in :func:`mutual_knn`.

    Returns
    -------
    float
        0 to 1.
    """
    return _neighbours("knn-rank", x, y, k, centred=centred)


def _neighbours(name: str, x: np.ndarray, y: np.ndarray, k: int, *, centred: bool) -> float:
    if centred:
        return _one(name, x, y, neighbours=k)
    ours, theirs = (nearest(np.asarray(z, np.float64), k, seed)[None] for seed, z in enumerate((x, y)))
    return float(mean_score(name, ours, theirs, np.arange(len(x)))[0, 0])


def linear_predictivity(x: np.ndarray, y: np.ndarray) -> float:
    """R² of ridge regressions of the columns of y on x, for examples left out one at a time.

    The penalty is the best of three for all columns together, with .1, .5 and .99 of the rank as degrees of freedom.
    Each left-out example is compared with the mean of the others, so x without information has about 0, or less.

    Parameters
    ----------
    x, y : ndarray
        (n, d) and (n, e): the vectors of the same n examples.

    Returns
    -------
    float
        At most 1.
    """
    return _one("linear-predictivity", x, y)


def _one(name: str, x: np.ndarray, y: np.ndarray, **options: Any) -> float:
    chosen = SimilarityOptions((name,), draws=0, resamples=0, max_examples=None, threads=1, **options)
    sides = ([partial(np.asarray, z)] for z in (x, y))
    return float(layer_pairs(*sides, options=chosen)[name].value[0, 0])
