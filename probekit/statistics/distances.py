"""Distances on the globe, and intervals of means, medians and R² over groups of examples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from probekit.statistics.bootstrap import FEWEST, draws

EARTH = 6371.0088
"""Mean radius, km."""
Interval = tuple[float, float, float]


def on_sphere(latitude: np.ndarray, longitude: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predicted coordinates as a place: latitudes cut at the poles, longitudes wrapped into [-180, 180).

    Examples
    --------
    >>> [x.tolist() for x in on_sphere(np.array([95.0]), np.array([190.0]))]
    [[90.0], [-170.0]]
    """
    return np.clip(latitude, -90, 90), (np.asarray(longitude) + 180) % 360 - 180


def great_circle(
    latitude: np.ndarray, longitude: np.ndarray, other_latitude: np.ndarray, other_longitude: np.ndarray
) -> np.ndarray:
    """The distance of places along the surface of a sphere, km, by the haversine formula; coordinates in degrees.

    Examples
    --------
    >>> round(float(great_circle(0.0, 179.0, 0.0, -179.0)))
    222
    """
    phi, other, turn = (np.radians(x) for x in (latitude, other_latitude, np.subtract(other_longitude, longitude)))
    chord = np.sin((other - phi) / 2) ** 2 + np.cos(phi) * np.cos(other) * np.sin(turn / 2) ** 2
    found: np.ndarray = 2 * EARTH * np.arcsin(np.sqrt(np.clip(chord, 0, 1)))
    return found


def centroid(latitude: np.ndarray, longitude: np.ndarray) -> tuple[float, float]:
    """The middle of places on the sphere: the direction of the mean of their unit vectors, degrees."""
    phi, turn = np.radians(latitude), np.radians(longitude)
    x, y, z = (float(v.mean()) for v in (np.cos(phi) * np.cos(turn), np.cos(phi) * np.sin(turn), np.sin(phi)))
    return float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))


def mean_interval(
    values: np.ndarray, groups: np.ndarray | None = None, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The mean, with percentiles over resampled groups."""
    return _percentiles(lambda w: w @ values / w.sum(1), len(values), groups, resamples, level, seed)


def median_interval(
    values: np.ndarray, groups: np.ndarray | None = None, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The (lower) median, with percentiles over resampled groups."""
    order = np.argsort(values, kind="stable")

    def median(w: np.ndarray) -> np.ndarray:
        total = np.cumsum(w[:, order], axis=1)
        found: np.ndarray = values[order][(total < total[:, -1:] / 2).sum(1)]
        return found

    return _percentiles(median, len(values), groups, resamples, level, seed)


def r2_interval(
    gold: np.ndarray, predicted: np.ndarray, groups: np.ndarray | None = None, *, resamples: int = 1000,
    level: float = 0.95, seed: int = 0,
) -> Interval:  # fmt: skip
    """R² = 1 - Σ(y - ŷ)² / Σ(y - ȳ)², with the mean ȳ of the evaluated examples, and percentiles over groups."""
    error, y = (gold - predicted) ** 2, gold - gold.mean()

    def r2(w: np.ndarray) -> np.ndarray:
        spread = w @ y**2 - (w @ y) ** 2 / w.sum(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            found: np.ndarray = np.where(spread > 0, 1 - w @ error / spread, np.nan)
        return found

    return _percentiles(r2, len(gold), groups, resamples, level, seed)


def _percentiles(
    measure: Callable[[np.ndarray], np.ndarray], n: int, groups: np.ndarray | None, resamples: int, level: float,
    seed: int,
) -> Interval:  # fmt: skip
    """A measure of weighted examples (weights (R, n)), with percentiles over resampled groups."""
    code = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    units, value = int(code.max()) + 1, float(measure(np.ones((1, n)))[0])
    if not resamples or units < FEWEST:
        return value, float("nan"), float("nan")
    again = np.concatenate([measure(drawn[:, code].astype(np.float64)) for drawn in draws(units, resamples, seed)])
    low, high = np.nanquantile(again, [(1 - level) / 2, (1 + level) / 2])
    return value, float(low), float(high)
