"""Distances on the globe against vectors in space, and intervals against direct resampling."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import r2_score

from probekit.statistics.distances import (
    EARTH,
    centroid,
    great_circle,
    mean_interval,
    median_interval,
    on_sphere,
    r2_interval,
)


def test_distances_are_angles_of_vectors() -> None:
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(-90, 90, size=(2, 50)), rng.uniform(-180, 180, size=(2, 50))
    phi, turn = np.radians(lat), np.radians(lon)
    v = np.stack([np.cos(phi) * np.cos(turn), np.cos(phi) * np.sin(turn), np.sin(phi)])
    angle = np.arctan2(np.linalg.norm(np.cross(v[:, 0].T, v[:, 1].T), axis=1), (v[:, 0] * v[:, 1]).sum(0))
    np.testing.assert_allclose(great_circle(lat[0], lon[0], lat[1], lon[1]), EARTH * angle, rtol=1e-9)
    assert great_circle(90.0, 0.0, -90.0, 0.0) == pytest.approx(np.pi * EARTH)


def test_longitudes_wrap_and_latitudes_end_at_the_poles() -> None:
    lat, lon = on_sphere(np.array([-100.0, 45.0]), np.array([-190.0, 540.0]))
    assert (lat.tolist(), lon.tolist()) == ([-90.0, 45.0], [170.0, -180.0])
    middle = centroid(np.array([10.0, 10.0]), np.array([179.0, -179.0]))
    assert abs(middle[1]) == pytest.approx(180)
    assert 10 < middle[0] < 10.01


def test_intervals_resample_whole_groups() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=80)
    value, low, high = mean_interval(values)
    assert value == pytest.approx(values.mean())
    assert (high - low) == pytest.approx(2 * 1.96 * values.std() / np.sqrt(80), rel=0.1)
    twice = np.tile(values, 2)
    assert mean_interval(twice, np.tile(np.arange(80), 2)) == pytest.approx((value, low, high))
    middle, low, high = median_interval(values)
    assert middle == np.sort(values)[39]
    assert low < middle < high
    guess = values + rng.normal(size=80) / 2
    assert r2_interval(values, guess)[0] == pytest.approx(r2_score(values, guess))
    assert np.isnan(mean_interval(values, np.arange(80) // 40)[1])
