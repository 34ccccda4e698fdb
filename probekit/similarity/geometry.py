"""The shape of a cloud of vectors: how many dimensions it fills, and whether its vectors point the same way."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from probekit.errors import UsageError
from probekit.similarity.features import only_rounding, rounding, without_mean
from probekit.statistics.bootstrap import FEWEST
from probekit.statistics.clusters import degrees, interval, reach, standard_error

BLOCK = 1 << 23  # numbers held at once
NEAREST = 4
"""Candidates for the two nearest vectors, whose distances are computed again without cancellation."""
EQUALLY_FAR = 1e-9  # logarithm of a ratio of distances that is rounding
TIED = 0.05  # share of such ratios that raises the estimate


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval.

    Attributes
    ----------
    value, low, high : float
        NaN if undefined, or if there is no interval.
    n : int
        The vectors used.
    note : str
        Why the value is undefined, or which vectors were left out; "" if there is nothing to say.
    """

    value: float
    low: float = field(default=float("nan"))
    high: float = field(default=float("nan"))
    n: int = 0
    note: str = ""


def rank(x: np.ndarray, *, precision: float | None = None) -> Estimate:
    """The numerical rank of the centred vectors (n, d): singular values above what rounding leaves.

    Numbers that are rounded to a precision ε err by ε/√12 of themselves or less, and the singular values of such noise
    are at most about its largest row norm and column norm together. The rank is at most n - 1, and has no interval.

    Parameters
    ----------
    x : np.ndarray
        (n, d).
    precision : float, optional
        ε of the numbers, if they were rounded further than their type says, as those of a bfloat16 cache are.
    """
    double = np.finfo(np.float64).eps
    precision = precision or rounding(x.dtype) or double
    singular = np.linalg.svd(without_mean(x), compute_uv=False)
    square = np.square(x, dtype=np.float64)
    noise = precision / 2 * float(np.sqrt(square.sum(1).max()) + np.sqrt(square.sum(0).max()))
    return Estimate(float((singular > max(noise, max(x.shape) * double * singular.max())).sum()), n=len(x))


def participation_ratio(
    x: np.ndarray, *, groups: np.ndarray | None = None, level: float = 0.95, precision: float | None = None
) -> Estimate:
    """Estimate the participation ratio of the covariance of vectors (n, d), :math:`(\\sum λ)^2 / \\sum λ^2`.

    It is the number of dimensions among which the variance is spread: d for equal variances, 1 if one direction has
    all. The plug-in value of n vectors is at most n - 1 and far too small when n is not much larger than it. Here
    :math:`\\sum λ^2` is the unbiased estimate from pairs of different vectors, and :math:`(\\sum λ)^2` is without the
    variance of :math:`\\sum λ`.

    Parameters
    ----------
    x : np.ndarray
        (n, d), 4 or more vectors.
    groups : np.ndarray, optional
        (n,), vectors that are not independent.
    level : float
        Coverage of the interval.
    precision : float, optional
        As in :func:`rank`.

    Returns
    -------
    Estimate
        NaN for vectors that are equal but for rounding, and if :math:`\\sum λ^2` is estimated as 0 or less, which
        happens when n is much smaller than the ratio.

    Notes
    -----
    The interval is that of the jackknife, which leaves out each vector (group), on the scale of the squared ratio, on
    which the error depends least on the ratio, within 1 and d. Measured coverage is in docs/calibration.md.

    References
    ----------
    Song et al. 2012, "Feature selection via dependence maximization", JMLR 13, equation 5, of a kernel with itself
    (:math:`\\sum λ^2`); Gao et al. 2017, "A theory of multineuronal dimensionality" (the ratio).
    """
    n = _checked(x)
    centred = without_mean(x)
    length = (centred**2).sum(1)
    if only_rounding(abs(centred).max(0), abs(x).max(0), precision or rounding(x.dtype)):
        return Estimate(np.nan, n=n, note="all vectors are equal")
    code = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    if code.max() < 3:
        return Estimate(np.nan, n=n, note="fewer than 4 groups")
    total, square = _between_groups(centred, length, code)
    if not square[0] > 0:
        return Estimate(np.nan, n=n, note="too few vectors for so many dimensions")
    of_total = np.nan_to_num(standard_error(length[None] * n / (n - 1), code)[0][0]) ** 2
    value = (total[0] ** 2 - of_total) / square[0]
    ratio = total**2 / np.where(square > 0, square, np.nan)
    influence = -code.max() * ((ratio[1:] / ratio[0]) ** 2 - 1) / 2
    error, _ = standard_error(influence[None])
    half = reach(1 + degrees(influence), level) * float(error[0])
    low, high = np.clip(value * np.sqrt(np.maximum(0, [1 - 2 * half, 1 + 2 * half])), 1, x.shape[1])
    return Estimate(float(value), float(np.minimum(value, low)), float(np.maximum(value, high)), n)


def _between_groups(centred: np.ndarray, length: np.ndarray, code: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unbiased traces of the covariance and of its square, from pairs of vectors of different groups only.

    The trace of the square is the mean of (x·y)² - 2 (x·y)(x·z) + (x·y)(z·w) over vectors x, y, z, w of four different
    groups; each mean is over all such pairs, triples and quadruples.

    Returns
    -------
    total, square : np.ndarray
        The traces of all vectors, and of those without each group, (1 + groups,) each.
    """
    size = np.bincount(code).astype(np.float64)
    sums = np.zeros((len(size), centred.shape[1]))
    np.add.at(sums, code, centred)
    own = length**2  # squared products with the vectors of the own group
    if len(size) < len(code):
        order = np.argsort(code, kind="stable")
        for rows in np.split(order, np.cumsum(size[:-1]).astype(np.int64)):
            own[rows] = ((centred[rows] @ centred[rows].T) ** 2).sum(1)
    pairs = np.bincount(code, _squared_products(centred) - own)
    one, two, three = _of_different_groups(centred, sums, code)
    numbers = _of_different_groups(np.ones((len(code), 1)), size[:, None], code)
    mean = (length.sum() - np.append(0, np.bincount(code, length))) / (len(code) - np.append(0, size))
    with np.errstate(invalid="ignore", divide="ignore"):  # 3 groups have no quadruples
        square = (pairs.sum() - 2 * np.append(0, pairs)) / numbers[0] - 2 * two / numbers[1] + three / numbers[2]
    return mean - one / numbers[0], square


def _of_different_groups(x: np.ndarray, s: np.ndarray, code: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of x·y, of (x·y)(x·z) and of (x·y)(z·w) over vectors of different groups, (1 + groups,) each.

    x (n, d), and their sums by group s (groups, d). The first number is over all vectors, the others without each
    group.
    """

    def by(values: np.ndarray) -> np.ndarray:
        return np.bincount(code, values)

    own = (x * s[code]).sum(1)
    across = x @ s.sum(0) - own
    triples = across**2 - (_squares(x, s) - own**2)
    inner, rows = (s**2).sum(1), by(across)
    squares = _squares(s, s) - inner**2
    lost = by(triples) + 2 * (s @ (across @ x) - by(across * own)) - 2 * (_squares(s, x) - by(own**2))
    of_rows = (rows**2).sum() - np.append(0, rows**2 + 2 * (s @ (rows @ s) - inner * rows) - squares)
    one = across.sum() - 2 * np.append(0, rows)
    return one, triples.sum() - np.append(0, lost), one**2 + 2 * squares.sum() - 4 * np.append(0, squares) - 4 * of_rows


def _squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """For each row of x (n, d), the sum of its squared inner products with all rows of y (m, d), (n,)."""
    found: np.ndarray = ((x @ (y.T @ y)) * x).sum(1) if x.shape[1] <= len(y) else ((x @ y.T) ** 2).sum(1)
    return found


def intrinsic_dimension(
    x: np.ndarray, *, groups: np.ndarray | None = None, discard: float = 0.1, level: float = 0.95, seed: int = 0
) -> Estimate:
    """Estimate the intrinsic dimension of vectors (n, d) with TwoNN, from the two nearest neighbours of each.

    If the density hardly changes between neighbours, the ratio of their distances :math:`μ = r_2 / r_1` has
    :math:`P(μ > m) = m^{-D}` in D dimensions, whatever the density. D is the maximum-likelihood estimate from the
    ratios; the largest are only counted as large, since they come from regions where the density changes.

    Parameters
    ----------
    x : np.ndarray
        (n, d). Of equal vectors, one is kept.
    groups : np.ndarray, optional
        (n,), vectors that are not independent: the neighbours of a vector are the nearest ones among one vector, drawn
        at random, of each other group.
    discard : float
        The proportion of the largest ratios that are only counted as large.
    level : float
        Coverage of the interval.
    seed : int
        Of the draw of one vector of each group.

    Returns
    -------
    Estimate
        NaN with fewer than 4 different vectors.

    Notes
    -----
    Neighbourhoods of 1,000 or 10,000 vectors are not small in many dimensions: estimates above about 10 are too low,
    and the more the higher they are (a 20-dimensional cube is estimated as 15 from 1,000 vectors). The interval
    describes the sampling error only. Compare layers with the same number of vectors.

    References
    ----------
    Facco, d'Errico, Rodriguez & Laio 2017, "Estimating the intrinsic dimension of datasets by a minimal neighborhood
    information", Scientific Reports 7 (the ratios, and discarding a tenth); Denti, Doimo, Laio & Mira 2022, Scientific
    Reports 12 (maximum likelihood).
    """
    if not 0 <= discard < 1:
        raise UsageError(f"discard is {discard:g}; expected a proportion from 0 to below 1.")
    everything, kept = len(x), np.sort(np.unique(np.ascontiguousarray(x), axis=0, return_index=True)[1])
    note = f"{everything - len(kept):,} copies of other vectors left out" if len(kept) < everything else ""
    x, groups = without_mean(x[kept]), None if groups is None else groups[kept]
    nearest, second, who = _two_nearest(x, groups, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(second / nearest)
    there = np.isfinite(ratio)
    n = int(there.sum())
    if n < 4:
        return Estimate(np.nan, n=n, note="fewer than 4 different vectors with two neighbours")
    ratio = ratio[there]
    if (tied := float((ratio < EQUALLY_FAR).mean())) > TIED:
        said = f"{tied:.0%} of the vectors have two nearest neighbours equally far away, which raises the estimate"
        note = f"{note}; {said}" if note else said
    cut = np.sort(ratio)[max(1, int(np.ceil(n * (1 - discard)))) - 1]
    seen, log_ratio = (ratio <= cut).astype(np.float64), np.minimum(ratio, cut)
    if not log_ratio.sum() > 0:
        return Estimate(np.nan, n=n, note="all neighbours are equally far")
    value = (seen.sum() - 1) / log_ratio.sum()
    influence = (seen - value * log_ratio) / (value * log_ratio.mean())
    units = np.arange(len(x)) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    half = _shared_error(influence, units[np.flatnonzero(there)[:, None]], units[who[there]])
    half *= reach(len(np.unique(units[there])), level)
    return Estimate(float(value), float(value * np.exp(-half)), float(value * np.exp(half)), n, note)


def _shared_error(influence: np.ndarray, own: np.ndarray, near: np.ndarray) -> float:
    """The standard error of a mean whose terms depend on each other if they share a vector (or its group).

    own (n, 1), near (n, 2) : the units of each vector and of its neighbours. The covariances of all pairs of terms that
    share a unit are added up, as if they were neighbours in time (Chen & Shao 2004, local dependence).
    """
    from scipy import sparse

    n, columns = len(influence), np.concatenate([own, near], axis=1)
    if len(np.unique(columns)) < FEWEST:
        return float("nan")
    uses = sparse.csr_array((np.ones(columns.size), (np.repeat(np.arange(n), 3), columns.ravel())))
    shares = uses @ uses.T
    shares.data[:] = 1
    centred = influence - influence.mean()
    return float(np.sqrt(max(centred @ (shares @ centred), (centred**2).sum()) / n**2))


def _two_nearest(x: np.ndarray, groups: np.ndarray | None, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distances to the two nearest vectors, (n,) each, and which vectors, (n, 2): of one of each other group.

    Infinite if there are too few. Without groups, each vector is one. Among all vectors of other groups, near copies
    would be neighbours of each other's neighbours: the ratio would be that of the distances to two copies.
    """
    n, squared = len(x), (x**2).sum(1)
    code, chosen = np.arange(n), np.arange(n)
    if groups is not None:
        code = np.unique(groups, return_inverse=True)[1].reshape(-1)
        mixed = np.random.default_rng(seed).permutation(n)
        chosen = np.sort(mixed[np.unique(code[mixed], return_index=True)[1]])
    out, who = np.full((2, n), np.inf), np.zeros((n, 2), dtype=np.int64)
    take = min(len(chosen) - 1, NEAREST + 1)
    if take < 2:
        return out[0], out[1], who
    step = max(1, BLOCK // max(len(chosen), take * x.shape[1]))
    for start in range(0, n, step):
        rows = np.arange(start, min(n, start + step))
        far = squared[rows, None] + squared[chosen] - 2 * x[rows] @ x[chosen].T
        far[code[rows, None] == code[chosen]] = np.inf
        near = chosen[np.argpartition(far, take - 1, axis=1)[:, :take]]
        again = np.linalg.norm(x[rows, None] - x[near], axis=2)
        again[code[near] == code[rows, None]] = np.inf
        order = np.argsort(again, axis=1, kind="stable")[:, :2]
        out[:, rows], who[rows] = np.take_along_axis(again, order, axis=1).T, np.take_along_axis(near, order, axis=1)
    return out[0], out[1], who


def mean_cosine(x: np.ndarray, *, groups: np.ndarray | None = None, level: float = 0.95) -> Estimate:
    """Estimate the mean cosine between two random vectors, a measure of anisotropy: 0 if no direction is preferred.

    It is the exact mean over all pairs of vectors from different groups.

    Parameters
    ----------
    x : np.ndarray
        (n, d); vectors of length 0 are left out.
    groups : np.ndarray, optional
        (n,), vectors that are not independent.
    level : float
        Coverage of the interval.

    Returns
    -------
    Estimate
        The interval is the jackknife's.

    References
    ----------
    Ethayarajh 2019, "How contextual are contextualized word representations?", section 3.2.
    """
    _checked(x)
    length = np.linalg.norm(x.astype(np.float64, copy=False), axis=1)
    there = length > 0
    n = int(there.sum())
    note = f"{len(x) - n:,} vectors of length 0 left out" if n < len(x) else ""
    code = np.arange(n) if groups is None else np.unique(groups[there], return_inverse=True)[1].reshape(-1)
    if n < 4 or code.max() < 1:
        return Estimate(np.nan, n=n, note=note or "all vectors are of one group")
    unit = x[there] / length[there, None]
    by_group = np.zeros((code.max() + 1, x.shape[1]))
    np.add.at(by_group, code, unit)
    size = np.bincount(code)
    each = unit @ by_group.sum(0) - (unit * by_group[code]).sum(1)  # sums over the vectors of other groups
    pairs = n * n - (size**2).sum()
    value = each.sum() / pairs
    influence = 2 * n * (each - value * (n - size[code])) / pairs
    ends = interval(value, influence, None if groups is None else code, level=level, within=(-1.0, 1.0))
    return Estimate(float(value), *ends, n, note)


def all_but_the_top(x: np.ndarray, top: int) -> np.ndarray:
    """Vectors (n, d) without their mean and without their ``top`` first principal components.

    References
    ----------
    Mu & Viswanath 2018, "All-but-the-top", ICLR, algorithm 1.
    """
    if not 0 <= top < min(x.shape):
        raise UsageError(
            f"top is {top}; {x.shape[0]} vectors of {x.shape[1]} dimensions allow 0 to {min(x.shape) - 1}."
        )
    centred = without_mean(x)
    if not top:
        return centred
    n, d = x.shape
    if d <= n:
        directions = np.linalg.eigh(centred.T @ centred)[1][:, -top:]
        return centred - centred @ directions @ directions.T
    scores = np.linalg.eigh(centred @ centred.T)[1][:, -top:]
    return centred - scores @ (scores.T @ centred)


def _checked(x: np.ndarray) -> int:
    """The number of vectors; UsageError for fewer than 4."""
    if len(x) < 4:
        raise UsageError(f"the geometry of vectors needs 4 or more of them, not {len(x)}.")
    return len(x)


def _squared_products(centred: np.ndarray) -> np.ndarray:
    """For each row, the sum of its squared inner products with all rows, (n,)."""
    n, d = centred.shape
    if d <= n:
        return ((centred @ (centred.T @ centred)) * centred).sum(1)
    return ((centred @ centred.T) ** 2).sum(1)
