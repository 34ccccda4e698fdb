"""Multiple testing: p-values and intervals that hold for all hypotheses together."""

from __future__ import annotations

import numpy as np
from scipy import stats


def tails(observed: np.ndarray, null: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tail probabilities under the null: for the observed statistics, (K,), and for each draw, (K, R).

    They are proportions of all R + 1 values, since under the null the observed value is another draw. So they are
    p-values (Davison & Hinkley 1997, equation 4.11), and comparable across statistics. An undefined value is NaN if it
    is observed, and counts as large if it is drawn.
    """
    every = np.concatenate([observed[:, None], np.nan_to_num(null, nan=np.inf)], axis=1)
    shares = np.empty_like(every)
    for share, values in zip(shares, every, strict=True):
        share[:] = (len(values) - np.searchsorted(np.sort(values), values - 1e-9)) / len(values)
    shares[np.isnan(observed)] = np.nan
    return shares[:, 0], shares[:, 1:]


def adjust(p: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Step-down min-p p-values (K,), from p-values (K,) and those of each draw under the null, (K, R).

    The smallest p is compared with the smallest of all in each draw, the next one with the smallest of the remaining
    ones, and so on; adjusted p-values keep the order (Westfall & Young 1993, algorithm 2.8; Ge, Dudoit & Speed 2003,
    box 4). A layer with a very discrete metric, such as that of a probe that rarely predicts a class, does not reduce
    the power for others: its p is rarely small by chance, while its t would often be large. NaN stays NaN.
    """
    order = np.argsort(np.where(np.isnan(p), np.inf, p), kind="stable")
    least = np.fmin.accumulate(null[order][::-1], axis=0)[::-1]
    share = (1 + (least <= p[order][:, None] + 1e-9).sum(1)) / (1 + null.shape[1])
    out = np.empty_like(p)
    out[order] = np.maximum.accumulate(share)
    return np.where(np.isnan(p), np.nan, out)


def critical(p: np.ndarray, null: np.ndarray, alpha: float) -> np.ndarray:
    """The p below which each hypothesis is rejected by :func:`adjust` at ``alpha``, (K,).

    ``adjust(p, null) <= alpha`` exactly where ``p`` is below it by more than 1e-9. Hypotheses are rejected in the order
    of their p until the first that is not; its limit holds for all after it. 0 for NaN, and if there are too few draws
    to reject any.
    """
    out = np.zeros(len(p))
    order = np.argsort(np.where(np.isnan(p), np.inf, p), kind="stable")[: np.isfinite(p).sum()]
    allowed = int(np.floor(alpha * (1 + null.shape[1]) + 1e-9)) - 1
    if allowed < 0 or not len(order):
        return out
    least = np.fmin.accumulate(null[order][::-1], axis=0)[::-1]
    limits = np.sort(least, axis=1)[:, allowed]
    kept = np.flatnonzero(p[order] + 1e-9 >= limits)
    out[order] = limits[np.minimum(np.arange(len(order)), kept[0] if len(kept) else len(order))]
    return out


def holm(p: np.ndarray) -> np.ndarray:
    """p-values (K,) with Holm's correction (Holm 1979); NaN (not tested) does not count."""
    order = np.argsort(p, kind="stable")
    left = np.isfinite(p).sum() - np.arange(len(p))
    steps = np.maximum.accumulate(np.minimum(1, p[order] * left))
    out = np.empty_like(p)
    out[order] = steps
    return out


def widened(value: np.ndarray, end: np.ndarray, count: np.ndarray | int, *, level: float = 0.95) -> np.ndarray:
    """The end of an interval that holds for the best of ``count`` values (Bonferroni), from that of one value.

    As for a normal distribution, on the side of this end.

    Examples
    --------
    >>> float(widened(np.array(0.5), np.array(0.41), 6).round(3))
    0.379
    """
    one, every = stats.norm.isf((1 - level) / 2), stats.norm.isf((1 - level) / 2 / np.asarray(count))
    return np.asarray(value - (value - end) * every / one)


def joint_level(replicated: np.ndarray, level: float) -> float:
    """The level at which K intervals have simultaneous coverage ``level``.

    At this level the proportion ``level`` of the replicates (K, R) is within all K percentile intervals (Beran 1990,
    section 2).
    """
    count = np.maximum(np.isfinite(replicated).sum(1, keepdims=True), 1)
    share = (stats.rankdata(replicated, axis=1, nan_policy="omit") - 0.5) / count
    tail = np.fmin.reduce(2 * np.minimum(share, 1 - share), axis=0)
    tail = tail[np.isfinite(tail)]
    return max(level, 1 - float(np.quantile(tail, 1 - level))) if len(tail) else level
