"""Joint counts, their expectation and shuffled labels, against slow twins."""

from __future__ import annotations

from itertools import permutations

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_mutual_info_score

from probekit.information.hashing import _kernels as kernels
from probekit.information.hashing.null import expected_information, log_factorials, measure, xlogx

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in scalar")  # wanted, where numba is off

counts = st.lists(st.integers(1, 12), min_size=1, max_size=6)


def pairs():
    of_size = st.integers(2, 40).map(lambda n: st.lists(st.integers(0, 4), min_size=n, max_size=n))
    two = of_size.flatmap(lambda column: st.tuples(column, column))
    return two.map(lambda two: tuple(np.unique(v, return_inverse=True)[1].astype(np.int32) for v in two))


@settings(deadline=None, max_examples=60)
@given(pairs())
def test_raw_entropy_and_null_mean_of_one_grid(two):
    a, b = two
    found = measure(a[None], b)
    assert found.raw == pytest.approx(naive.information(a, b), abs=1e-12)
    assert found.entropy == pytest.approx(naive.label_entropy(b), abs=1e-12)
    assert found.top == pytest.approx(min(naive.label_entropy(a), naive.label_entropy(b)), abs=1e-12)
    expected = naive.expected_information(np.bincount(a), np.bincount(b))
    assert found.null_mean == pytest.approx(expected, abs=1e-12)
    assert found.buckets == a.max() + 1
    assert found.labels == b.max() + 1


def test_stretched_information_is_scikit_learns_adjusted_one():
    a, b = np.random.default_rng(0).integers(0, (4, 3), size=(50, 2)).astype(np.int32).T
    found = measure(a[None], b)
    assert found.stretched == pytest.approx(adjusted_mutual_info_score(a, b, average_method="min") * found.top)


@settings(deadline=None, max_examples=30)
@given(counts, st.integers(0, 2**31))
def test_expected_information_does_not_depend_on_which_is_shuffled(a, seed):
    n = sum(a)
    b = np.bincount(np.random.default_rng(seed).integers(0, 3, n))
    assert expected_information(a, b) == pytest.approx(expected_information(b, a), abs=1e-12)


def test_expected_information_is_the_mean_over_all_orders():
    a, b = [0, 0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 2, 0, 1]
    every = [naive.information(a, order) for order in permutations(b)]
    assert expected_information(np.bincount(a), np.bincount(b)) == pytest.approx(np.mean(every), abs=1e-12)


@pytest.mark.slow
def test_expected_information_with_large_counts_leaves_nothing_out():
    """Terms far from the mean are skipped; here 2 of 40,000 remain of each, and the closed form is the naive sum."""
    a, b = [30_000, 9_000, 1_000], [20_000, 19_990, 10]
    assert expected_information(a, b) == pytest.approx(naive.expected_information(a, b), rel=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_shuffled_labels_are_those_of_the_generator(classes):
    rng = np.random.default_rng(3)
    n, grids, draws = 60, 3, 40  # more than are counted side by side
    buckets = np.stack([np.unique(rng.integers(0, 5, n), return_inverse=True)[1] for _ in range(grids)])
    buckets, y = buckets.astype(np.int32), rng.integers(0, classes, n).astype(np.int32)
    found = measure(buckets, y, draws=draws, seed=11)
    states = np.random.default_rng(11).integers(2**64, size=draws, dtype=np.uint64)
    for state, value in zip(states, found.null, strict=True):
        own = naive.shuffled(y, int(state))
        assert value == pytest.approx(np.mean([naive.information(b, own) for b in buckets]), abs=1e-12)


def test_shuffled_numbers_keep_their_bins_in_each_grid():
    rng = np.random.default_rng(4)
    n = 50
    buckets = np.stack([np.unique(rng.integers(0, 4, n), return_inverse=True)[1] for _ in range(2)]).astype(np.int32)
    lookup = np.stack([np.arange(n) // 10, (np.arange(n) + 5) // 10]).astype(np.int32)
    found = measure(buckets, np.arange(n), lookup, draws=5, seed=1)
    assert found.raw == pytest.approx(np.mean([naive.information(*v) for v in zip(buckets, lookup, strict=True)]))
    states = np.random.default_rng(1).integers(2**64, size=5, dtype=np.uint64)
    for state, value in zip(states, found.null, strict=True):
        rows = naive.shuffled(range(n), int(state))
        assert value == pytest.approx(
            np.mean([naive.information(b, look[rows]) for b, look in zip(buckets, lookup, strict=True)]), abs=1e-12
        )


def test_the_mean_of_shuffled_labels_is_the_closed_form():
    rng = np.random.default_rng(5)
    b, y = rng.integers(0, 20, 300).astype(np.int32), rng.integers(0, 3, 300)
    found = measure(b[None], y, draws=500, seed=2)
    assert found.null.mean() == pytest.approx(found.null_mean, abs=5 * found.null.std() / np.sqrt(500))
    assert found.raw < found.null.mean() + 5 * found.null.std()  # y knows nothing of b


def test_shuffles_are_uniform():
    """Each of the 24 orders of four values comes about equally often: chi-squared, 23 degrees, 0.1 % point 49.7."""
    seen = {}
    for state in np.random.default_rng(0).integers(2**64, size=4800, dtype=np.uint64):
        values = np.arange(4)
        kernels.shuffle(values, state)
        seen[tuple(values)] = seen.get(tuple(values), 0) + 1
    assert len(seen) == 24
    assert sum((c - 200) ** 2 / 200 for c in seen.values()) < 49.7


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 3), st.integers(1, 30), st.integers(0, 2**31))
def test_cells(q, n, seed):
    rng = np.random.default_rng(seed)
    z, shift = rng.normal(0, 2, (n, q)), rng.random(q)
    out = np.empty(n, dtype=np.int32)
    count = kernels.grid(z, shift, out)
    assert out.tolist() == naive.cells(z, shift)
    assert count == len(set(out.tolist()))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 20), st.integers(1, 5), st.integers(0, 2**31))
def test_sums(n, d, seed):
    rng = np.random.default_rng(seed)
    x, centre, group = rng.normal(3, 2, (n, d)), rng.normal(3, 2, d), rng.integers(0, 3, n)
    total, squares, groups = np.zeros(d), np.zeros(d), np.zeros((3, d))
    kernels.column_sums(x, centre, total, squares)
    kernels.group_sums(x, centre, group, groups)
    np.testing.assert_allclose(total, (x - centre).sum(0), atol=1e-12)
    np.testing.assert_allclose(squares, ((x - centre) ** 2).sum(0), atol=1e-12)
    np.testing.assert_allclose(groups, np.eye(3)[group].T @ (x - centre), atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**31))
def test_row_keys(d, n, seed):
    rng = np.random.default_rng(seed)
    x, centre, first, second = rng.normal(3, 2, (n, d)), rng.normal(3, 2, d), rng.normal(size=d), rng.normal(size=d)
    keys = np.empty((2, n))
    kernels.row_keys(x, centre, first, second, keys)
    np.testing.assert_allclose(keys, [(x - centre) @ first, (x - centre) @ second], atol=1e-9)


def test_bias_shrinks_with_the_cells_that_dependence_empties():
    """20 classes sent through a channel: of 400 cells some stay empty, and less than the null's mean is taken off."""
    rng = np.random.default_rng(6)
    a = rng.integers(0, 20, 2000).astype(np.int32)
    same, noise = measure(a[None], a), measure(a[None], rng.integers(0, 20, 2000))
    assert same.spread == 0
    assert same.value == pytest.approx(same.entropy, abs=1e-12)
    assert noise.spread == pytest.approx(1, abs=0.02)
    assert abs(noise.value) < 0.03
    cells = np.mean([len(set(zip(a, rng.permutation(a), strict=True))) for _ in range(300)])
    expected = kernels.expected_information(*[np.bincount(a)] * 2, *(f(2000) for f in (log_factorials, xlogx)))[1]
    assert expected == pytest.approx(cells, abs=0.5)  # the spread over shuffles is about 2
