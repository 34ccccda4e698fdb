"""Comparison of all pairs of layers with their null distribution: p, correction for all pairs, calibrated values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TIES = 1e-9  # values this near, relative to the largest, are equal


@dataclass(frozen=True, eq=False, slots=True)
class Chance:
    """What the null distribution says of each pair: arrays (layers a, layers b), float64, NaN where it says nothing.

    Attributes
    ----------
    null_mean, null_sd, null_low, null_high : ndarray
        Mean, standard deviation, 2.5 % and 97.5 % quantile of the measure if the examples of one side are permuted;
        of a distance, ``null_high`` is the 2.5 % quantile: the end towards equal layers.
    p, p_adjusted : ndarray
        One-sided: as similar, or more, by chance; adjusted for all pairs (largest standardised value).
    calibrated : ndarray
        0 at the mean of the permutations, 1 for equal layers.
    """

    null_mean: np.ndarray
    null_sd: np.ndarray
    null_low: np.ndarray
    null_high: np.ndarray
    p: np.ndarray
    p_adjusted: np.ndarray
    calibrated: np.ndarray


def judged(null: np.ndarray, *, best: float = 1.0, shown: np.ndarray | None = None, fixed: int = 0) -> Chance:
    """Judge the observed values, which are the first of the permutations.

    Parameters
    ----------
    null : ndarray
        (1 + draws, layers a, layers b), the observed order first.
    best : float
        The value of equal layers: 1, or 0 for a distance, of which small values are evidence.
    shown : ndarray, optional
        The values to calibrate, if they are of more examples than were permuted.
    fixed : int
        The first permutations that leave some examples where they are: they count for p, but do not show chance.

    Notes
    -----
    p is the share of all 1 + draws values that are as large as the observed one, which is among them. The correction
    compares the largest standardised value of all pairs; mean and standard deviation are those of all 1 + draws values,
    so that every permutation is treated like the observed order and the test stays exact (Westfall & Young 1993).
    """
    sign = 1.0 if best else -1.0
    value = sign * null
    mean, sd = value.mean(0), value.std(0)
    near = TIES * np.abs(value).max(0)
    p = (value >= value[0] - near).mean(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.where(sd > 1e-7 * np.abs(value).max(0), (value - mean) / sd, 0.0)
    largest = np.fmax.reduce(z.reshape(len(z), -1), axis=1)
    adjusted = (largest[:, None, None] >= z[0] - TIES * np.abs(z[0])).mean(0)
    draws = null[max(fixed, 1) :]
    centre, spread = draws.mean(0), draws.std(0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        calibrated = ((null[0] if shown is None else shown) - centre) / (best - centre)
    low, high = np.quantile(sign * draws, [0.025, 0.975], axis=0) * sign
    absent = np.isnan(null).any(0)
    found = [np.where(absent, np.nan, one) for one in (centre, spread, low, high, p, adjusted, calibrated)]
    return Chance(*found)
