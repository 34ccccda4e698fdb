"""Mutual information by binning every unit, to reproduce Saxe et al. (2018): each pattern of bins is a symbol."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

from probekit.errors import NonFiniteError, UsageError
from probekit.information.estimate import Information, p_value
from probekit.information.grouping import FEWEST, grouped
from probekit.information.response import Response, entropy

ROWS = 4096  # rows that are binned at a time
HIDDEN = 0.5  # largest share of the maximum that shuffled labels may reach before the value is undetermined


def binning(
    x: np.ndarray,
    y: Response,
    *,
    bins: int = 30,
    span: tuple[float, float] | None = None,
    label_bins: int = 10,
    groups: np.ndarray | None = None,
    draws: int = 100,
    seed: int = 0,
) -> Information:
    """I(T; Y) = H(T) - H(T | Y) in bits, T being the pattern of bins that the units of a row fall into.

    With tens of units, nearly all patterns differ, and each identifies its label, even a random one. The value is then
    H(Y) (Peters, Ruder & Smith 2019, footnote 6), and is reported as ``undetermined``. No bias is subtracted.

    Parameters
    ----------
    x : np.ndarray
        float32 or float64 (n, d).
    y : Response
        Classes, or numbers, which are cut into ``label_bins`` bins of equal mass.
    bins : int, default 30
        Number of bins of equal width for each unit, from its smallest to its largest value, or within ``span`` ((-1, 1)
        for tanh in Saxe et al. 2018, section 2, with 30 bins). Values outside fall into the outermost bins.
    groups : np.ndarray, optional
        (n,), groups to shuffle as wholes; equal vectors always form a group.
    draws : int, default 100
        Shuffles of the labels for ``null`` and ``p``; ``null_mean`` is exact (expected mutual information of two
        partitions, Vinh, Epps & Bailey 2010).

    Raises
    ------
    UsageError
        For fewer than 2 bins and an invalid span.
    NonFiniteError
        For NaN and infinity.
    """
    if min(bins, label_bins) < 2 or (span is not None and not -math.inf < span[0] < span[1] < math.inf):
        raise UsageError(f"bins must be 2 or more and span (low, high), not {bins}, {label_bins} and {span}.")
    rng = np.random.default_rng(seed)
    codes, n = classes_of(y, label_bins), len(y)
    seen = patterns(x, bins, span)
    table = contingency_matrix(seen, codes, sparse=True)
    ours, theirs = np.bincount(seen), np.bincount(codes)
    both = entropy(ours) + entropy(theirs)
    raw = both - entropy(table.data)
    if (whole := grouped(groups, x, n)) is None:
        null = np.array([both - entropy(_joint(seen, rng.permutation(codes))) for _ in range(draws)])
        expected = float(expected_mutual_information(table, n)) / math.log(2)
    else:
        drawn = [codes[order] for order in whole.orders(max(draws, FEWEST), seed)]
        null = np.array([entropy(ours) + entropy(np.bincount(own)) - entropy(_joint(seen, own)) for own in drawn])
        null, expected = null[:draws], float(null.mean())
    value, undetermined, warning = verdict(raw, expected, entropy(theirs), n, f"{len(ours)} patterns of {n} differ")
    return Information(
        value=value,
        raw=raw,
        entropy=entropy(theirs),
        n=n,
        estimator="binning",
        null=null,
        null_mean=expected,
        p=p_value(raw, null),
        buckets=float(len(ours)),
        bins=0 if y.codes is not None else label_bins,
        undetermined=undetermined,
        warning=warning,
        view=f"{x.shape[1]} columns, {bins} bins each",
    )


def verdict(raw: float, noise: float, h: float, n: int, why: str) -> tuple[float, str, str]:
    """Value, reason why it is undetermined, and warning of an estimator that subtracts no bias.

    Parameters
    ----------
    noise : float
        Mean under shuffled labels; NaN if unknown.
    h : float
        Entropy of the labels.
    why : str
        The reason to report.
    """
    bound = min(h, math.log2(n))
    if noise > HIDDEN * bound:
        return math.nan, f"shuffled labels give {noise:.2f} of {bound:.2f} bits: {why}", ""
    high = f"too high by about {noise:.2f} bits, which shuffled labels give as well" if noise > 0.05 * bound else ""
    return min(max(raw, 0.0), bound), "", high


def classes_of(y: Response, bins: int) -> np.ndarray:
    """int64 (n,): the classes, or the cells of numbers (n, m), each column cut into bins of equal mass."""
    if y.codes is not None:
        return y.codes
    ranks = (rankdata(y.numbers, axis=0) - 0.5) / len(y)
    return _symbols((ranks * bins).astype(np.int64).clip(0, bins - 1))


def patterns(x: np.ndarray, bins: int, span: tuple[float, float] | None = None) -> np.ndarray:
    """int64 (n,): rows that fall into the same bin in every column have the same number."""
    with np.errstate(invalid="ignore"):
        low, high = (np.asarray(f(0), dtype=np.float64) for f in (x.min, x.max))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        column = int((~(np.isfinite(low) & np.isfinite(high))).argmax())
        raise NonFiniteError(f"the vectors contain NaN or infinity, first in column {column}.")
    if span is not None:
        low, high = np.full_like(low, span[0]), np.full_like(high, span[1])
    scale = np.divide(bins, high - low, out=np.zeros_like(low), where=high > low)
    out = np.empty(x.shape, dtype=np.uint8 if bins <= 256 else np.int32)
    for start in range(0, len(x), ROWS):
        out[start : start + ROWS] = ((x[start : start + ROWS] - low) * scale).clip(0, bins - 1)
    return _symbols(out)


def _symbols(rows: np.ndarray) -> np.ndarray:
    """Equal rows as equal numbers, from 0."""
    rows = np.ascontiguousarray(rows)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    return np.unique(whole, return_inverse=True)[1].ravel()


def _joint(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Counts of each pair of symbols."""
    return np.unique(a * (int(b.max()) + 1) + b, return_counts=True)[1]
