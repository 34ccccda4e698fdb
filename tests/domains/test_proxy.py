"""Proxy A-distance: at its limits, between them, and against a classifier whose error is known."""

import numpy as np
import pytest

from probekit.domains.proxy import proxy_distance
from probekit.errors import UsageError


def documents(p, n, rng, length=30):
    return rng.multinomial(length, p, size=n)


def test_domains_without_common_terms_are_told_apart():
    rng = np.random.default_rng(0)
    a, b = documents([0.5, 0.5, 0, 0], 30, rng), documents([0, 0, 0.3, 0.7], 50, rng)
    found = proxy_distance(a, b, (30, 50))
    assert (found.value, found.error, found.high, found.n) == (2, 0, 2, 80)
    assert 1.7 < found.low < 2


def test_one_domain_cannot_be_told_from_itself():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(40))
    found = proxy_distance(documents(p, 300, rng), documents(p, 60, rng), (300, 60))
    assert abs(found.value) < 0.45  # four standard errors of the error rates, times 4
    assert found.low < 0 < found.high
    assert found.value == pytest.approx(2 * (1 - 2 * found.error))


def test_it_comes_near_the_best_error():
    """Two terms: the best classifier has a threshold on the count of one, and its error is a sum of binomials."""
    from scipy.stats import binom

    rng = np.random.default_rng(2)
    found = proxy_distance(documents([0.4, 0.6], 1500, rng, 20), documents([0.6, 0.4], 1500, rng, 20), (1500, 1500))
    k = np.arange(21)
    best = np.minimum(binom.pmf(k, 20, 0.4), binom.pmf(k, 20, 0.6)).sum() / 2
    assert found.error == pytest.approx(best, abs=4 * np.sqrt(best * (1 - best) / 3000))
    assert found.low < 2 * (1 - 2 * best) < found.high


def test_it_is_the_same_again():
    rng = np.random.default_rng(3)
    a, b = documents([0.4, 0.6], 50, rng), documents([0.5, 0.5], 40, rng)
    assert proxy_distance(a, b, (50, 40), seed=1) == proxy_distance(a, b, (50, 40), seed=1)
    assert proxy_distance(a, b, (50, 40), seed=1) != proxy_distance(a, b, (50, 40), seed=2)


def test_blocks_hold_about_as_many_documents():
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.ones(20))
    found = proxy_distance(documents(p, 200, rng), documents(p, 200, rng).reshape(20, 10, 20).sum(1), (200, 200))
    assert found.n == 40


def test_too_few_blocks():
    rng = np.random.default_rng(5)
    a = documents([0.5, 0.5], 100, rng)
    with pytest.raises(UsageError, match="domain 2: 1 of its blocks contain a term"):
        proxy_distance(a, a[:1], (100, 1))
    with pytest.raises(UsageError, match=r"1 and 2 blocks of similar size; testing a classifier needs two of each"):
        proxy_distance(a, a.reshape(2, 50, 2).sum(1), (50, 100))
