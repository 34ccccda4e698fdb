"""The difference of a mean between two disjoint sets of examples, with an interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

FEWEST = 5
"""With fewer units in one of the sets there is no interval."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Means of two sets and their difference.

    Attributes
    ----------
    first, second : float
        The means.
    value : float
        first - second.
    ci_low, ci_high : float
        Its interval; NaN if it cannot be had.
    """

    first: float
    second: float
    value: float
    ci_low: float
    ci_high: float


def mean_difference(
    values: np.ndarray, chosen: np.ndarray, groups: np.ndarray | None = None, *, level: float = 0.95
) -> Difference:
    """The mean of the chosen examples minus that of the others.

    The interval is Welch's; for shares (values 0 and 1) Agresti and Caffo's (2000), which adds two successes and two
    failures. If examples come in groups, the variance is that of sums over groups, never less than without groups.

    Parameters
    ----------
    values : np.ndarray
        (n,), NaN for examples without a value.
    chosen : np.ndarray
        bool (n,).
    groups : np.ndarray, optional
        (n,), the same for examples that are not independent.
    level : float
        Coverage.

    Examples
    --------
    >>> mean_difference(np.arange(20.0), np.arange(20) < 10).value
    -10.0
    """
    known = ~np.isnan(values)
    y, s = np.asarray(values, dtype=np.float64)[known], np.asarray(chosen, dtype=bool)[known]
    sizes = int(s.sum()), int((~s).sum())
    if not all(sizes):
        one, two = (float(y[part].mean()) if part.any() else float("nan") for part in (s, ~s))
        return Difference(one, two, float("nan"), float("nan"), float("nan"))
    one, two = float(y[s].mean()), float(y[~s].mean())
    nothing = Difference(one, two, one - two, float("nan"), float("nan"))
    code = np.arange(len(y)) if groups is None else np.unique(groups[known], return_inverse=True)[1].reshape(-1)
    units = [len(np.unique(code[part])) for part in (s, ~s)]
    if min(units) < FEWEST:
        return nothing
    share = bool(np.isin(y, (0.0, 1.0)).all())
    residual = np.where(s, y - one, y - two)
    scaled = residual / np.where(s, np.sqrt(sizes[0] * (sizes[0] - 1.0)), -np.sqrt(sizes[1] * (sizes[1] - 1.0)))
    parts = [float((scaled[part] ** 2).sum()) for part in (s, ~s)]
    independent = sum(parts)
    grouped = float((np.bincount(code, weights=scaled) ** 2).sum())
    inflation = max(1.0, grouped / independent) if independent else 1.0
    if share:
        adjusted = [(y[part].sum() + 1) / (size + 2) for part, size in zip((s, ~s), sizes, strict=True)]
        variance = sum(p * (1 - p) / (size + 2) for p, size in zip(adjusted, sizes, strict=True)) * inflation
        centre, factor = adjusted[0] - adjusted[1], float(stats.norm.ppf((1 + level) / 2))
    else:
        if not independent:
            return nothing
        freedom = independent**2 / sum(v**2 / (u - 1) for v, u in zip(parts, units, strict=True))
        variance, centre, factor = independent * inflation, one - two, float(stats.t.ppf((1 + level) / 2, freedom))
    half = factor * float(np.sqrt(variance))
    low, high = (max(centre - half, -1.0), min(centre + half, 1.0)) if share else (centre - half, centre + half)
    return Difference(one, two, one - two, low, high)
