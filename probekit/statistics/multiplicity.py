"""Several questions at once: p-values and intervals that hold for all of them."""

from __future__ import annotations

import numpy as np
from scipy import stats

__all__ = ["adjust", "holm", "joint_level", "tails"]


def tails(observed: np.ndarray, null: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How rare something as large is by chance: of what was observed (K,), and of each draw of chance, (K, R).

    Shares of all R + 1 values, the observed one being a draw of chance where there is nothing to be found; so they are
    p-values (Davison & Hinkley 1997, equation 4.11), and those of different statistics can be held against each other.
    What is undefined is NaN where observed, and counts as large where drawn.
    """
    every = np.concatenate([observed[:, None], np.nan_to_num(null, nan=np.inf)], axis=1)
    shares = np.empty_like(every)
    for own, values in zip(shares, every, strict=True):
        own[:] = (len(values) - np.searchsorted(np.sort(values), values - 1e-9)) / len(values)
    shares[np.isnan(observed)] = np.nan
    return shares[:, 0], shares[:, 1:]


def adjust(p: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Step-down min-p p-values (K,), from p-values (K,) and those that each draw of chance would have had, (K, R).

    The smallest p is held against the smallest of all in each draw, the next one against the smallest of the rest, and
    so on; no p-value is below that of a smaller one (Westfall & Young 1993, algorithm 2.8; Ge, Dudoit & Speed 2003, box
    4). A layer whose metric jumps, as that of a probe with few calls does, costs the others nothing: its p is seldom
    small by chance, where its t would often be large. NaN stays NaN.
    """
    order = np.argsort(np.where(np.isnan(p), np.inf, p), kind="stable")
    least = np.fmin.accumulate(null[order][::-1], axis=0)[::-1]
    share = (1 + (least <= p[order][:, None] + 1e-9).sum(1)) / (1 + null.shape[1])
    out = np.empty_like(p)
    out[order] = np.maximum.accumulate(share)
    return np.where(np.isnan(p), np.nan, out)


def holm(p: np.ndarray) -> np.ndarray:
    """p-values (K,) corrected for there being K (Holm 1979); NaN, where nothing was tested, is not counted."""
    order = np.argsort(p, kind="stable")
    left = np.isfinite(p).sum() - np.arange(len(p))
    steps = np.maximum.accumulate(np.minimum(1, p[order] * left))
    out = np.empty_like(p)
    out[order] = steps
    return out


def joint_level(replicated: np.ndarray, level: float) -> float:
    """The level at which the intervals of K numbers hold all of them with the probability ``level``.

    That at which so many of the replicates (K, R) lie within all K percentile intervals (Beran 1990, section 2).
    """
    count = np.maximum(np.isfinite(replicated).sum(1, keepdims=True), 1)
    share = (stats.rankdata(replicated, axis=1, nan_policy="omit") - 0.5) / count
    tail = np.fmin.reduce(2 * np.minimum(share, 1 - share), axis=0)
    tail = tail[np.isfinite(tail)]
    return max(level, 1 - float(np.quantile(tail, 1 - level))) if len(tail) else level
