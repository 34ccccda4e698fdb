"""Shares of a variance: the numbers of least squares, dependent predictors, and p where nothing is there."""

from __future__ import annotations

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.statistics.regression import partial_effects


def test_a_predictor_that_others_determine_carries_nothing():
    x = np.random.default_rng(0).normal(size=(80, 2))
    y = x @ [1, 0.5]
    found = partial_effects(np.column_stack([x, x.sum(1)]), y, flips=19, resamples=100)
    np.testing.assert_allclose(found.value, [0, 0, 0, 1], atol=1e-8)
    assert np.isnan(found.p).all()


@pytest.mark.parametrize("by_group", [False, True])
def test_without_effects_p_is_as_rare_as_it_says(by_group):
    rejected = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        size = rng.integers(2, 9, 30) if by_group else np.ones(40, int)
        group = np.repeat(np.arange(len(size)), size)
        x = np.column_stack([size[group] + 0.1 * rng.normal(size=len(group)), rng.normal(size=len(size))[group]])
        y = rng.normal(size=len(size))[group] + 0.3 * rng.normal(size=len(group))
        found = partial_effects(x, y, group if by_group else None, flips=39, resamples=0, seed=seed)
        rejected += int(found.p_adjusted.min() <= 0.05)
    assert rejected <= 20  # 5 % of 200, and three standard errors


def test_too_few_or_constant():
    with pytest.raises(UsageError, match="4 rows are too few for a regression on 2 predictors; give 5 or more"):
        partial_effects(np.eye(4)[:, :2], np.arange(4.0))
    with pytest.raises(UsageError, match="constant"):
        partial_effects(np.ones((9, 1)), np.arange(9.0))
