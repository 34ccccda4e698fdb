"""The expected best of n trials: enumeration of all draws, simulation, and what is biased."""

from itertools import combinations, product

import numpy as np
import pytest

from probekit.statistics.trials import expected_best, expected_best_unbiased


@pytest.mark.parametrize("values", [[0.3], [1.0, 0.0], [0.2, 0.9, 0.5, 0.5], [-1.0, 4.0, 2.0, 0.5, 0.5]])
def test_both_equal_the_enumeration_of_all_draws(values):
    mean, sd = expected_best(np.array(values))
    unbiased = expected_best_unbiased(np.array(values))
    for n in range(1, len(values) + 1):
        again = [max(draw) for draw in product(values, repeat=n)]
        assert mean[n - 1] == pytest.approx(np.mean(again))
        assert sd[n - 1] == pytest.approx(np.std(again), abs=1e-12)
        assert unbiased[n - 1] == pytest.approx(np.mean([max(c) for c in combinations(values, n)]))
    assert unbiased[-1] == pytest.approx(max(values))


def test_the_bias_of_each_on_uniform_trials():
    """The best of n uniform numbers is n / (n + 1) in expectation; 4,000 searches of 20 trials, error < .004."""
    rng = np.random.default_rng(0)
    searches = rng.random((4000, 20))
    with_replacement = np.mean([expected_best(one)[0] for one in searches], axis=0)
    without = np.mean([expected_best_unbiased(one) for one in searches], axis=0)
    n = np.arange(1, 21)
    assert np.abs(without - n / (n + 1)).max() < 0.004
    assert with_replacement[-1] < 20 / 21 - 0.015  # too low, as Tang et al. (2020) show
