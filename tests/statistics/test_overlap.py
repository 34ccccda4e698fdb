"""Rank-biased overlap: the definition summed far, and random orders."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probekit.errors import UsageError
from probekit.statistics.overlap import chance_overlap, mean_of_pairs, rank_biased_overlap


def summed(a, b, p, far=4000):
    """(1 - p) Σ pᵏ⁻¹ |first k of both| / k, where agreement stays that of the whole lists (equations 4 and 32)."""
    total, d = 0.0, len(a)
    for k in range(1, far):
        shared = len(set(a[:k]) & set(b[:k])) / k if k <= d else 1.0
        total += (1 - p) * p ** (k - 1) * shared
    return total


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10**6), st.sampled_from([0.1, 0.5, 0.9, 0.98]))
def test_it_is_the_sum_of_its_definition(d, seed, p):
    a, b = (np.random.default_rng([seed, i]).permutation(d) for i in range(2))
    found = rank_biased_overlap(a, b, p=p)
    assert found == pytest.approx(summed(a.tolist(), b.tolist(), p), abs=1e-9)
    assert found == pytest.approx(rank_biased_overlap(b, a, p=p), abs=1e-12)
    assert rank_biased_overlap(a, a, p=p) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("d", "p"), [(5, 0.5), (40, 0.9)])
def test_chance_is_the_mean_over_random_orders(d, p):
    rng = np.random.default_rng(0)
    found = [rank_biased_overlap(rng.permutation(d), rng.permutation(d), p=p) for _ in range(3000)]
    assert np.mean(found) == pytest.approx(chance_overlap(d, p=p), abs=4 * np.std(found) / 3000**0.5)


def test_what_is_no_order_is_refused():
    for a, b in (([0, 0], [0, 1]), ([], []), ([[0]], [0])):
        with pytest.raises(UsageError, match="an order holds each of 0 … d - 1 once"):
            rank_biased_overlap(a, b)
    with pytest.raises(UsageError, match="two orders of 2 and 3 things"):
        rank_biased_overlap([0, 1], [0, 1, 2])
    with pytest.raises(UsageError, match="p is 1; expected a number between 0 and 1"):
        rank_biased_overlap([0], [0], p=1)


def test_an_interval_needs_three_pairs():
    assert np.isnan(mean_of_pairs([0.2, 0.4])[1:]).all()
    mean, low, high = mean_of_pairs([0.9, 1.0, 1.0, 1.0])
    assert 0 <= low < mean < high == 1
