"""McNemar's exact test and differences between two sets, against scipy, enumeration and simulation."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from probekit.statistics.mcnemar import mcnemar
from probekit.statistics.two_samples import mean_difference


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (6, 1), (3, 3), (40, 22)])
def test_mcnemar_is_the_binomial_test(gained, lost):
    right = np.array([False] * gained + [True] * lost + [True, False] * 5)
    right_too = np.array([True] * gained + [False] * lost + [True, False] * 5)
    expected = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar(right, right_too) == pytest.approx(expected, rel=1e-10)


def test_mcnemar_of_groups_is_the_enumeration_of_exchanges():
    rng = np.random.default_rng(0)
    for _ in range(20):
        groups = rng.integers(7, size=25)
        one, two = rng.random((2, 25)) < [[0.8], [0.5]]
        net = np.array([(one[groups == g].sum() - two[groups == g].sum()) for g in range(7)], dtype=float)
        sums = np.abs([np.dot(signs, net) for signs in product([-1, 1], repeat=7)])
        assert mcnemar(one, two, groups) == pytest.approx((sums >= abs(net.sum())).mean())


def test_mcnemar_keeps_its_level_with_dependent_examples():
    """Ten copies of each example, 1,000 nulls: at most 5 % + 3 standard errors rejected; many more without groups."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 10)
    found = []
    for _ in range(1000):
        one, two = (rng.random((2, 40)) < 0.7).repeat(10, axis=1)
        found.append((mcnemar(one, two, groups), mcnemar(one, two)))
    rate = (np.array(found) <= 0.05).mean(0)
    assert rate[0] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1000)
    assert rate[1] > 0.3


def test_difference_of_numbers_is_welchs():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=30), rng.normal(1, 3, size=50)
    found = mean_difference(np.r_[x, y], np.arange(80) < 30)
    interval = stats.ttest_ind(x, y, equal_var=False).confidence_interval()
    assert (found.ci_low, found.ci_high) == pytest.approx((interval.low, interval.high))
    assert found.value == pytest.approx(x.mean() - y.mean())


def test_what_cannot_be_had_is_missing():
    few = mean_difference(np.r_[np.arange(3.0), np.arange(9.0)], np.arange(12) < 3)
    assert few.value == -3
    assert np.isnan(few.ci_low)
    none = mean_difference(np.array([np.nan, 1.0, 2.0]), np.array([True, False, False]))
    assert np.isnan(none.first)
    assert none.second == 1.5
    assert np.isnan(mean_difference(np.ones(20) * 0.5, np.arange(20) < 10).ci_low)


@pytest.mark.parametrize("grouped", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("kind", ["share", "number"])
def test_intervals_cover(kind, grouped):
    """Coverage of 95 % in 1,000 samples, Monte Carlo error .007; groups of 1 to 5 share half of their variance."""
    rng = np.random.default_rng(0)
    n, covered = 150, 0
    truth = 0.2 if kind == "share" else 1.0
    for _ in range(1000):
        groups = np.repeat(np.arange(60), rng.integers(1, 6, size=60))[:n] if grouped else np.arange(n)
        size = len(groups)
        shared = rng.normal(size=groups.max() + 1)[groups]
        noise = np.sqrt(0.5) * (shared + rng.normal(size=size)) if grouped else rng.normal(size=size)
        chosen = rng.random(size) < 0.3
        if kind == "share":
            limit = stats.norm.ppf(np.where(chosen, 0.8, 0.6))
            values = (noise < limit).astype(float)
        else:
            values = noise + chosen
        found = mean_difference(values, chosen, groups)
        covered += found.ci_low <= truth <= found.ci_high
    assert 0.93 <= covered / 1000 <= 0.98
