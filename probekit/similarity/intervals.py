"""Bootstrap intervals over examples or clusters, from the influence of each example.

Resampling rows puts copies of an example beside each other: their similarity is perfect in both layers, and kernels,
distances and neighbours of a resample are more alike than those of the sample. So the linearised statistic is resampled
(Davison & Hinkley 1997, section 2.7.2): influences are computed once, and drawn with replacement.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from probekit.statistics.bootstrap import FEWEST, draws, freedom, intervals

__all__ = ["bootstrapped"]

SAME = 1e-6  # values so near to 1 are those of equal layers
PAIRS = 64  # pairs of layers whose replicates are held at once


def bootstrapped(
    value: np.ndarray,
    influence: np.ndarray,
    units: np.ndarray | None,
    *,
    resamples: int,
    level: float,
    seed: int,
    fisher: bool = True,
    heavy: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Studentised bootstrap intervals (Efron & Tibshirani 1993, section 12.5) of all pairs of layers.

    Parameters
    ----------
    value : ndarray
        (layers a, layers b).
    influence : ndarray
        (n, layers a, layers b): change of the value if the weight of an example grows from 1 to 2, linearised.
    units : ndarray, optional
        (n,) code of each example's cluster.
    resamples, level, seed
        As in the options. All pairs have the same draws.
    fisher : bool
        Intervals on the scale of Fisher's z, for values in [-1, 1].
    heavy : bool
        Whether influences have heavy tails, as those of squared distances do: the standard error then has the degrees
        of freedom of the examples (clusters) that carry most of it, by which intervals are wider.

    Returns
    -------
    tuple of ndarray
        Lower and upper ends; NaN if there are fewer than five clusters, or the influence is 0 throughout, unless the
        value is 1 but for rounding: equal layers are equal in all resamples.
    """
    flat = influence.reshape(len(influence), -1)
    count = len(flat) if units is None else int(units.max()) + 1
    ends = np.full((2, flat.shape[1]), np.nan)
    if count < FEWEST:
        return ends[0].reshape(value.shape), ends[1].reshape(value.shape)
    for start in range(0, flat.shape[1], PAIRS):
        columns = slice(start, start + PAIRS)
        part = flat[:, columns] - flat[:, columns].mean(0)
        if units is not None:
            part = np.stack([np.bincount(units, column, count) for column in part.T], axis=1)
        ends[:, columns] = _ends(value.ravel()[columns], part, resamples, level, seed, fisher, heavy)
    return ends[0].reshape(value.shape), ends[1].reshape(value.shape)


def _ends(
    value: np.ndarray, part: np.ndarray, resamples: int, level: float, seed: int, fisher: bool, heavy: bool
) -> tuple[np.ndarray, np.ndarray]:
    count = len(part)
    error = np.sqrt((part**2).sum(0) * count / (count - 1))
    ratios = []
    for w in draws(count, resamples, seed):
        w = w.astype(np.float64)
        away = w @ part
        ratios.append(away / np.sqrt(np.maximum(w @ part**2 - away**2 / count, 1e-300)))
    t = intervals(np.concatenate(ratios).T, level=level)
    wider = np.full(part.shape[1], np.sqrt(count / (count - 1)))
    if heavy:
        wider = stats.t.ppf((1 + level) / 2, freedom(part.T)) / stats.norm.ppf((1 + level) / 2)
    known = error > 1e-12
    with np.errstate(invalid="ignore", divide="ignore"):
        z, slope = (np.arctanh(value), 1 / (1 - value**2)) if fisher else (value, np.ones_like(value))
        low, high = (z - wider * t[:, side] * error * slope for side in (1, 0))
        if fisher:
            low, high = np.tanh(low), np.tanh(high)
    known &= np.isfinite(z) & np.isfinite(slope)
    same = np.where(np.abs(value - 1) <= SAME, value, np.nan)
    return np.where(known, low, same), np.where(known, high, same)
