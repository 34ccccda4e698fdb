"""The information of single units: counts in cells, and none under noise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

from probekit.information.by_unit import unit_information


def test_it_is_the_plug_in_estimate_less_its_mean_under_shuffled_labels():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    x = np.stack([rng.normal(size=200) + y, rng.normal(size=200), rng.integers(2, size=200), np.ones(200)], 1)
    found = unit_information(x, y, bins=5)
    for j in range(4):
        cells = np.unique(np.sort(x[:, j])[[40, 80, 120, 160]])
        bucket = np.array([sum(value >= cell for cell in cells) for value in x[:, j]])
        expected = mutual_info_score(bucket, y) - expected_mutual_information(contingency_matrix(bucket, y), 200)
        assert found[j] == pytest.approx(expected / np.log(2), abs=1e-9)
    assert found[3] == pytest.approx(0, abs=1e-12)


def test_noise_has_none_on_average():
    rng = np.random.default_rng(1)
    found = unit_information(rng.normal(size=(60, 2000)), np.arange(60) % 2)
    assert abs(found.mean()) < 4 * found.std() / 2000**0.5
