"""A metric on some of the examples minus the same metric on the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from probekit.statistics._sums import Statistic, UnitSums, scale
from probekit.statistics.bootstrap import BLOCK, FEWEST, draws, statistics
from probekit.statistics.two_samples import Difference

CORRELATIONS = ("pearson", "spearman")


def against_rest(
    chosen: np.ndarray, metric: str, *, resamples: int = 1000, level: float = 0.95, seed: int = 0, **sample: Any
) -> tuple[Difference, float]:
    """The metric on the chosen examples minus that on the others, with an interval, and the two-sided p-value of 0.

    Examples are drawn again on both sides, and groups that are on both have one weight for both. Interval and p are
    those of the normal distribution with the spread of the replicates. For metrics of counts these have pseudo-examples
    on each side, as in :mod:`probekit.statistics.bootstrap`, and the interval is around their mean: for accuracy that
    is Agresti & Caffo's (2000) interval of the difference of two proportions. For other metrics it is Student's t with
    Welch's degrees of freedom. Correlations are compared on Fisher's (1921) scale z, whose intervals Zou's (2007)
    method combines.

    Parameters
    ----------
    chosen : np.ndarray
        Bool (n,), neither all nor none.
    metric : str
        One of :data:`probekit.statistics.bootstrap.METRICS`.
    **sample
        ``gold`` (n,), ``predicted`` (1, n) and further arguments of :func:`probekit.statistics.bootstrap.statistics`.
    """
    groups = sample.get("groups")
    unit = np.arange(len(chosen)) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    sides = [_side(rows, metric, unit, sample) for rows in (chosen, ~chosen)]
    one, other = (float(side.at(np.ones((1, len(units))))[0, 0]) for side, units in sides)
    nothing = Difference(one, other, one - other, np.nan, np.nan), np.nan
    again = np.concatenate([*_replicates(sides, int(unit.max()) + 1, resamples, seed)], axis=1)
    again = again[:, np.isfinite(again).all(0)]
    count = np.array([len(units) for _, units in sides])
    if count.min() < FEWEST or 2 * again.shape[1] < resamples or not np.isfinite(one - other):
        return nothing
    difference = again[0] - again[1]
    centre, variance, degrees = difference.mean(), difference.var(ddof=1), np.inf
    if not _counted(sides):
        values = np.array([one, other])
        if metric in CORRELATIONS:
            values, again = (np.arctanh(np.clip(r, -1 + 1e-12, 1 - 1e-12)) for r in (values, again))
        part = again.var(1) / (count - 1)
        variance = (again[0] - again[1]).var() * count.min() / (count.min() - 1)
        centre = values[0] - values[1]
        degrees = part.sum() ** 2 / (part**2 / (count - 1)).sum() if part.any() else 1.0
    error = float(np.sqrt(variance))
    if error <= 1e-12:
        return nothing
    quantile = float(stats.t.ppf((1 + level) / 2, degrees))
    ends = centre - quantile * error, centre + quantile * error
    if metric in CORRELATIONS:
        ends = _combined(values, quantile * np.sqrt(part * count), float(np.corrcoef(again)[0, 1]))
    found = Difference(one, other, one - other, min(ends[0], one - other), max(ends[1], one - other))
    return found, float(2 * stats.t.sf(abs(centre) / error, degrees))


def _combined(z: np.ndarray, half: np.ndarray, r: float) -> tuple[float, float]:
    """The interval of the difference of two correlations with intervals z ± half that correlate by r (Zou 2007)."""
    value, low, high = np.tanh(z), np.tanh(z - half), np.tanh(z + half)
    down, up = value - low, high - value
    below = np.sqrt(down[0] ** 2 + up[1] ** 2 - 2 * r * down[0] * up[1])
    above = np.sqrt(up[0] ** 2 + down[1] ** 2 - 2 * r * up[0] * down[1])
    difference = value[0] - value[1]
    return float(difference - below), float(difference + above)


def _side(rows: np.ndarray, metric: str, unit: np.ndarray, sample: dict[str, Any]) -> tuple[Statistic, np.ndarray]:
    """The metric on some of the examples, as a function of the weights of their units, and these units."""
    own: dict[str, Any] = {name: x[..., rows] if isinstance(x, np.ndarray) else x for name, x in sample.items()}
    own["scores"] = sample.get("scores") and sample["scores"].rows(rows)
    ((_, one),) = statistics(metric=metric, **own)
    return one, np.unique(unit[rows])


def _counted(sides: list[tuple[Statistic, np.ndarray]]) -> bool:
    return all(isinstance(one, UnitSums) and one.pseudo is not None for one, _ in sides)


def _replicates(
    sides: list[tuple[Statistic, np.ndarray]], units: int, resamples: int, seed: int
) -> Iterator[np.ndarray]:
    """The metric of both sides, (2, R), in blocks of resamples; all units have a weight, the same for both."""
    if not _counted(sides):
        for drawn in draws(units, resamples, seed):
            yield np.concatenate([one.at(drawn[:, own]) for one, own in sides])
        return
    rng, whole = np.random.default_rng([seed, 4]), scale(units)
    for at in range(0, resamples, step := max(1, BLOCK // units)):
        size = min(step, resamples - at)
        weights = np.rint(rng.standard_exponential((size, units), dtype=np.float32) * np.float32(whole))
        found = []
        for one, own in sides:
            assert isinstance(one, UnitSums)
            assert one.pseudo is not None
            mass = np.rint(rng.standard_gamma(one.pseudo.mass, (size, len(one.pseudo.mass))) * whole)
            found += one.posterior(weights[:, own], [(mass, "both")])
        yield np.concatenate(found)
