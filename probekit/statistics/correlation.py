"""Does distance explain adaptation? Correlations of a few points, or of two matrices, with intervals and p-values.

Table 6 of Peters, Ruder & Smith (2019) compares five domains with their distance from the pretraining text; training on
each domain and testing on each other one gives twenty points. Approximations do not hold for so few points: p-values
come from permutations, from all of them if possible, and undetermined numbers are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations as all_orders
from math import factorial

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from probekit.errors import UsageError
from probekit.statistics.options import LEAST

FEW = 5  # with fewer points or domains, coverage of intervals is far too low
TIE = 1e-12  # tolerance for equal correlations: sums in another order differ by rounding
ALL = 7  # up to this many points, all orders are enumerated by default
BLOCK = 1 << 21  # numbers held at once
VECTORISED = 200  # with more points, Kendall's n² signs of a sample cost more than SciPy's n log n
POWER, LARGE = 0.8, 0.5  # Cohen (1988): conventional power, and a large correlation


class Adjust(StrEnum):
    """The adjustment of matrices before they are correlated; see :func:`matrix_relation`."""

    NONE = "none"
    IN_DOMAIN = "in-domain"
    EFFECTS = "effects"


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation with its interval and p-value.

    Attributes
    ----------
    value : float
        NaN if x or y is constant; then all other numbers are NaN, too.
    low, high : float
        BCa bootstrap interval; NaN with fewer than 5 points or domains, without resamples, or if fewer than half of the
        resamples are defined or all agree.
    p : float
        Two-sided p-value from permutations.
    n : int
        Points.
    exact : bool
        Whether all permutations were used.
    undefined : int
        Number of resamples with constant x or y, which are left out.
    """

    value: float
    low: float
    high: float
    p: float
    n: int
    exact: bool
    undefined: int


def relation(
    x: np.ndarray, y: np.ndarray, *, draws: int = 10_000, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> dict[str, Correlation]:
    """Correlations of n points: "pearson", "spearman" and "kendall" (tau-b), as SciPy defines them.

    Parameters
    ----------
    x, y : ndarray
        (n,), finite, n of at least 3. Values that are equal when rounded to 1e-12 of the largest are ties in ranks. Or
        (n, k), such as k tasks for each of n models: then each correlation is the mean of those of the k columns.
    draws : int
        Permutations: all n! if they are not more than this (n <= 7 by default), otherwise this many random ones.
    resamples : int
        Bootstrap resamples; 0 for no interval.
    level : float
        Coverage of the interval.
    seed : int
        Seed for permutations and resamples.

    Returns
    -------
    dict of Correlation
        Correlations by name.

    Raises
    ------
    UsageError
        If there are fewer than 3 points, lengths differ, or values are not finite.

    Notes
    -----
    The p-value is the proportion of permutations with |r| at least as large as the measured one, including the
    identity: exact, or (b + 1)/(m + 1) from m random ones. Permutations and resamples move all columns of a point
    together, so columns need not be independent.

    The interval draws points with replacement (BCa). In simulation (tests/statistics/test_correlation.py: normal, true
    r 0, 0.5 and 0.9, 95 %, among intervals that are defined) BCa covered it in 90 to 96 % of simulations with 5 to
    20 points (Pearson; percentiles in 84 to 92 %) and in 94 to 100 % (Spearman, Kendall); of 3 and 4 points in 46 to
    94 %, so these have no interval. With five points the interval covers nearly all of [-1, 1]. Points in perfect order
    have no interval for ranks, because all resamples agree (one sample in four with five points and a true r of 0.9).
    Kendall's tau is slow: 5 s for all three with 400 points, nearly all of it for tau.

    References
    ----------
    Phipson & Smyth (2010), "Permutation p-values should never be zero"; Efron & Tibshirani (1993), "An
    Introduction to the Bootstrap", chapter 14.

    Examples
    --------
    >>> import numpy as np
    >>> found = relation(np.arange(5.0), np.array([0.0, 1, 2, 4, 3]), resamples=0)
    >>> round(found["spearman"].value, 2), round(found["spearman"].p, 3), found["spearman"].exact
    (0.9, 0.083, True)
    """
    x, y = (np.asarray(v, dtype=np.float64) for v in (x, y))
    if x.ndim not in (1, 2) or x.shape != y.shape or len(x) < 3 or not x.size:
        raise UsageError(f"expected x and y for the same 3 or more points, got the shapes {x.shape} and {y.shape}.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise UsageError("a correlation needs finite numbers; leave out points with NaN or infinity.")
    _check(draws, resamples, level)
    n = len(x)
    x, y = (np.stack([_tied(column) for column in v.reshape(n, -1).T]) for v in (x, y))
    orders, exact = _orders(n, draws, np.random.default_rng([seed, 0]))
    drawn = np.random.default_rng([seed, 1]).integers(0, n, (resamples, n))
    return _related(
        (x[:, None], y[:, None]),
        ((x[:, None], y[:, at]) for at in _blocks(orders, n, len(x))),
        ((x[:, at], y[:, at]) for at in _blocks(drawn, n, len(x))),
        [(np.delete(x, i, 1)[:, None], np.delete(y, i, 1)[:, None]) for i in range(n)],
        exact,
        level,
    )


def matrix_relation(
    x: np.ndarray,
    y: np.ndarray,
    *,
    adjust: Adjust | str = Adjust.NONE,
    draws: int = 10_000,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Correlation]:
    """Correlations, as in :func:`relation`, of the d(d - 1) off-diagonal entries of two matrices.

    Parameters
    ----------
    x : ndarray
        (d, d), a divergence (of one direction or both), d of at least 3. The diagonal is never read.
    y : ndarray
        (d, d), trained on i and evaluated on j; finite off the diagonal. The diagonal is used for "in-domain" only.
    adjust : Adjust or str
        Removes associations of x and y other than those of pairs. "none": nothing; a domain that is far from all others
        and hard to test on also causes a correlation. "in-domain": y[i, j] - y[j, j], the loss from training elsewhere:
        this removes the difficulty of a test domain, but not the usefulness of a training domain, and a column shares
        the error of y[j, j]. "effects": row and column effects of x and of y (least squares; the round-robin design).
        The rest is specific to pairs: is i nearer to j, and better for j, than both are to others? d of at least 4;
        with five domains 11 of 20 degrees of freedom are left in y, and 5 of 10 in x.
    draws, resamples, level, seed
        As in :func:`relation`; they refer to domains.

    Returns
    -------
    dict of Correlation
        Correlations by name.

    Raises
    ------
    UsageError
        If there are too few domains, the matrices have other shapes, or values are not finite.

    Notes
    -----
    Entries of one row or column are not independent. The p-value therefore permutes the *domains* of y, rows and
    columns together, and is exact for up to 7 domains; all three adjustments commute with the permutations, so it is
    exact for each if domains are exchangeable.

    The interval also resamples domains; entries between two copies of the same domain are filled with a random pair.
    The fewer domains, the larger this artificial part of the resample (one pair in five for five domains). In
    simulation with 5 and 10 domains (tests/statistics/test_correlation.py) 95 % intervals of Pearson's r covered it in
    89 to 92 % ("none"; 83 to 89 % where some domains are far from all, hard, and of little use), 88 to 96 %
    ("in-domain") and 97 to 98 % ("effects"). With no relation but 5 domains, p <= 0.05 came in 4, 4 and 4 %. Where far
    domains were hard ones, it came in 32 and 15 % of the first two, and in 4 % with "effects", which pays for it: a
    relation found in 52 % and 67 % of simulations was found in 34 %.

    References
    ----------
    Mantel (1967), "The detection of disease clustering and a generalized regression approach", and Hubert's quadratic
    assignment; Warner, Kenny & Stoto (1979), "A new round robin analysis of variance for social interaction data";
    Snijders & Borgatti (1999), "Non-parametric standard errors and tests for network statistics".
    """
    x, y = (np.asarray(v, dtype=np.float64) for v in (x, y))
    adjust = _adjustment(adjust)
    d, least = len(x), 4 if adjust is Adjust.EFFECTS else 3
    if x.shape != (d, d) or x.shape != y.shape or d < least:
        raise UsageError(f"expected two square matrices for {least} or more domains, got {x.shape} and {y.shape}.")
    _check(draws, resamples, level)
    i, j = np.nonzero(~np.eye(d, dtype=bool))
    read = y if adjust is Adjust.IN_DOMAIN else y[i, j]
    if not (np.isfinite(x[i, j]).all() and np.isfinite(read).all()):
        where = "and, in-domain, on that of y" if adjust is Adjust.IN_DOMAIN else "of both matrices"
        raise UsageError(f"expected finite numbers off the diagonal {where}; leave out domains without them.")
    if adjust is Adjust.IN_DOMAIN:
        y = _rounded(y - np.diag(y), y)
    left = _without_effects if adjust is Adjust.EFFECTS else np.asarray
    x, y = (
        _square(left(v[i, j]), d) for v in (x, y)
    )  # effects go first: a random pair between copies would hold others
    fill = np.random.default_rng([seed, 2])
    orders, exact = _orders(d, draws, np.random.default_rng([seed, 0]))
    drawn = np.random.default_rng([seed, 1]).integers(0, d, (resamples, d))

    def copies(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        a, b = at[:, i], at[:, j]
        same = np.nonzero(a == b)
        other = fill.integers(0, len(i), len(same[0]))
        a[same], b[same] = i[other], j[other]
        return left(x[a, b]), left(y[a, b])

    def others(k: int) -> tuple[np.ndarray, np.ndarray]:
        kept = (i != k) & (j != k)
        return left(x[i, j][kept]), left(y[i, j][kept])

    return _related(
        (x[i, j], y[i, j]),
        ((x[i, j], y[at[:, i], at[:, j]]) for at in _blocks(orders, len(i))),
        (copies(at) for at in _blocks(drawn, len(i))),
        [others(k) for k in range(d)] if d > least else [],
        exact,
        level,
    )


def caution(points: int, *, domains: int | None = None, level: float = 0.05) -> str:
    """The limits of so few points, in words: the smallest possible p, and the smallest r with p below ``level``.

    For ranks without ties if all orders can be enumerated (up to 7 points); for Pearson's r, and its detectable effect
    with a power of 0.8, for bivariate normal points and Student's t.

    Parameters
    ----------
    points : int
        Number of independent points, or of entries in a matrix with ``domains`` domains.

    Raises
    ------
    UsageError
        If there are fewer than 3 of either.
    """
    n = points if domains is None else domains
    if min(n, points) < 3:
        raise UsageError(f"there are {min(n, points)} points or domains; expected at least 3.")
    if domains is not None:
        many = factorial(domains)
        floor = f", and no p-value is below {1 / many:.2g} (1 of {many:,} orders)" if domains <= ALL else ""
        return (
            f"{points} points from {domains} domains are not {points} independent ones: permutations and resamples use "
            f"domains{floor}."
        )
    t = float(stats.t.ppf(1 - level / 2, n - 2))
    least = t / (n - 2 + t * t) ** 0.5
    found = brentq(lambda r: _power(r, n, t) - POWER, 0, 0.9999)
    takes, facts = {"Pearson": f"|r| > {least:.3f}"}, []
    orders, exact = _orders(n, factorial(ALL), np.random.default_rng(0))
    if exact:
        facts.append(f"no p-value can be below {1 / len(orders):.2g}, none of ranks below {2 / len(orders):.2g}")
        for name in ("spearman", "kendall"):
            null = np.abs(STATISTICS[name](np.arange(n)[None], orders))
            enough = [r for r in np.sort(null) if (null >= r - TIE).mean() < level]
            if enough:
                takes[name.capitalize()] = f">= {enough[0]:.3f}"
    if factorial(n) > 1 / level:
        facts.append(f"p < {level:g} takes {', '.join(f'{what} ({name})' for name, what in takes.items())}")
        facts.append(
            f"only true correlations above {found:.2f} are found four times in five by the t-test of Pearson's r, "
            "and fewer by permutation"
        )
    few = f"{n} points carry little" if found > LARGE else f"What {n} points can carry"
    return f"{few}: {'; '.join(facts)}. A non-significant result is not evidence of no relation."


def _power(r: float, n: int, t: float) -> float:
    """The probability that Student's t for n bivariate normal points with correlation r exceeds t."""
    spread = stats.chi2.ppf((np.arange(200) + 0.5) / 200, n - 1)  # of x: given it, t is noncentral
    return float(stats.nct.sf(t, n - 2, r * np.sqrt(spread / (1 - r * r))).mean())


def _adjustment(adjust: Adjust | str) -> Adjust:
    try:
        return Adjust(adjust)
    except ValueError:
        raise UsageError(f"adjust is {adjust!r}; expected one of {', '.join(Adjust)}.") from None


def _check(draws: int, resamples: int, level: float) -> None:
    if draws < 19 or resamples < 0 or 0 < resamples < LEAST or not 0 < level < 1:
        raise UsageError(
            f"expected at least 19 permutations, {LEAST} resamples (or 0) and a level between 0 and 1, got "
            f"{draws}, {resamples} and {level}."
        )


def _orders(n: int, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, bool]:
    """All orders of n items, or ``draws`` random ones, int64 (m, n); and whether they are all."""
    if factorial(n) <= draws:
        return np.array(list(all_orders(range(n)))), True
    return rng.permuted(np.tile(np.arange(n), (draws, 1)), axis=1), False


def _blocks(at: np.ndarray, n: int, columns: int = 1) -> Iterator[np.ndarray]:
    """Rows of ``at`` in blocks: each row is a sample of n points, whose pairs Kendall's tau counts in each column."""
    step = max(1, BLOCK // (columns * (n * n if n <= VECTORISED else n)))
    return (at[k : k + step] for k in range(0, len(at), step))


Points = tuple[np.ndarray, np.ndarray]


def _related(
    points: Points,
    shuffled: Iterable[Points],
    drawn: Iterable[Points],
    without: Iterable[Points],
    exact: bool,
    level: float,
) -> dict[str, Correlation]:
    """Each correlation for the points, permuted points, resampled points, and with one unit left out."""
    (value,), null, again, jackknife = (_each(samples) for samples in ([points], shuffled, drawn, without))
    n = points[0].shape[-1]
    correlations = {}
    for k, name in enumerate(STATISTICS):
        if np.isnan(value[k]):
            correlations[name] = Correlation(np.nan, np.nan, np.nan, np.nan, n, exact, int(np.isnan(again[:, k]).sum()))
            continue
        extreme = int((np.abs(null[:, k]) >= abs(value[k]) - TIE).sum())
        p = extreme / len(null) if exact else (extreme + 1) / (len(null) + 1)
        low, high = bca(value[k], again[:, k], jackknife[:, k], level) if len(jackknife) >= FEW else (np.nan, np.nan)
        correlations[name] = Correlation(float(value[k]), low, high, p, n, exact, int(np.isnan(again[:, k]).sum()))
    return correlations


def _each(samples: Iterable[Points]) -> np.ndarray:
    """The correlations of each sample, the mean over columns if it has some, float64 (samples, statistics)."""
    pairs = ((np.atleast_2d(x), np.atleast_2d(y)) for x, y in samples)
    found = [np.stack([np.atleast_2d(f(x, y)).mean(0) for f in STATISTICS.values()], axis=1) for x, y in pairs]
    return np.concatenate([np.empty((0, len(STATISTICS))), *found])


def bca(value: float, again: np.ndarray, jackknife: np.ndarray, level: float) -> tuple[float, float]:
    """Bias-corrected and accelerated interval (Efron 1987); NaN if the resamples do not determine it."""
    defined = again[~np.isnan(again)]
    if not len(defined) or 2 * len(defined) < len(again) or np.ptp(defined) <= TIE:
        return np.nan, np.nan
    below = ((defined < value - TIE).mean() + (defined <= value + TIE).mean()) / 2  # ties count half
    bias = stats.norm.ppf(np.clip(below, 0.5 / len(defined), 1 - 0.5 / len(defined)))
    influence = (
        np.nanmean(jackknife) - jackknife[~np.isnan(jackknife)] if not np.isnan(jackknife).all() else np.zeros(1)
    )
    spread = float((influence**2).sum())
    skew = float((influence**3).sum()) / (6 * spread**1.5) if spread > TIE else 0.0
    z = bias + stats.norm.ppf([(1 - level) / 2, (1 + level) / 2])
    low, high = np.quantile(defined, stats.norm.cdf(bias + z / (1 - skew * z)))
    return float(low), float(high)


def _pearson(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = (np.where(np.ptp(v, axis=-1, keepdims=True) > 0, v - v.mean(-1, keepdims=True), 0) for v in (x, y))
    with np.errstate(invalid="ignore"):
        r = (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.clip(r, -1, 1)


def _spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _pearson(stats.rankdata(x, axis=-1), stats.rankdata(y, axis=-1))


def _kendall(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Tau-b (Kendall 1945): concordant minus discordant pairs, normalised for ties."""
    n = x.shape[-1]
    if n > VECTORISED:
        x, y = np.broadcast_arrays(x, y)
        pairs = zip(x.reshape(-1, n), y.reshape(-1, n), strict=True)
        return np.array([stats.kendalltau(a, b).statistic for a, b in pairs]).reshape(x.shape[:-1])
    i, j = np.triu_indices(n, 1)
    x, y = (np.sign(v[..., i] - v[..., j]) for v in (x, y))
    with np.errstate(invalid="ignore"):
        return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))


STATISTICS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}
"""Correlations of samples, each of x and y (..., n), with 1 for m samples, to (...); NaN if either is constant."""


def _without_effects(pairs: np.ndarray) -> np.ndarray:
    """Pairs (..., d(d - 1)), by rows, minus mean, row and column effects: Warner, Kenny & Stoto (1979)."""
    n = pairs.shape[-1]
    d = round((1 + (1 + 4 * n) ** 0.5) / 2)
    i, j = np.nonzero(~np.eye(d, dtype=bool))
    square = _square(pairs, d)
    row, column = square.sum(-1) / (d - 1), square.sum(-2) / (d - 1)
    mean = pairs.mean(-1, keepdims=True)
    a = ((d - 1) ** 2 * row + (d - 1) * column) / (d * (d - 2)) - (d - 1) / (d - 2) * mean
    b = ((d - 1) ** 2 * column + (d - 1) * row) / (d * (d - 2)) - (d - 1) / (d - 2) * mean
    return _rounded(pairs - mean - a[..., i] - b[..., j], pairs)


def _square(pairs: np.ndarray, d: int) -> np.ndarray:
    """Pairs (..., d(d - 1)) as matrices (..., d, d), 0 on the diagonal."""
    square = np.zeros((*pairs.shape[:-1], d, d))
    square[..., ~np.eye(d, dtype=bool)] = pairs
    return square


def _tied(values: np.ndarray) -> np.ndarray:
    """The values, where those equal up to rounding errors (differences of 5 in 408, say) are replaced by the first."""
    _, first, which = np.unique(_rounded(values, values), return_index=True, return_inverse=True)
    return np.asarray(values[first][which])


def _rounded(values: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Round values so that those equal up to rounding errors tie in ranks."""
    unit = 1e-12 * np.nanmax(np.abs(of))
    return np.round(values / unit) * unit if unit else values
