"""Loops over neighbours, against their slow twins."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probekit.similarity.neighbours import LANES, common_neighbours, largest, mean_score, neighbour_influence


def lists(rng, layers, n, k):
    """Neighbours of n examples: k different others, in any order."""
    return np.array(
        [[rng.permutation(np.delete(np.arange(n), i))[:k] for i in range(n)] for _ in range(layers)], np.int32
    )


@given(seed=st.integers(0, 999), n=st.integers(3, 20), k=st.integers(1, 6), ties=st.booleans())
@settings(max_examples=30, deadline=None)
def test_largest_of_each_row(seed, n, k, ties):
    rng = np.random.default_rng(seed)
    k = min(k, n - 1)
    similar = rng.integers(3, size=(n, n)).astype(float) if ties else rng.standard_normal((n, n))
    first = int(rng.integers(n // 2))
    part = similar[first : first + n // 2]
    out = np.zeros((len(part), k), np.int32)
    largest(part, first, out)
    for i, row in enumerate(part):
        others = (first + i + np.arange(1, n)) % n  # the next ones first
        assert out[i].tolist() == others[np.argsort(-row[others], kind="stable")][:k].tolist()


@given(seed=st.integers(0, 999), n=st.integers(6, 15), k=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_common_neighbours_of_permuted_layers(seed, n, k):
    rng = np.random.default_rng(seed)
    ours, theirs, order = lists(rng, 2, n, k), lists(rng, 3, n, k), rng.permutation(n)
    found = common_neighbours(ours, theirs, order)
    place = np.argsort(order)  # example j of the other side stands at place[j]
    for a in range(2):
        for b in range(3):
            common = [len(set(ours[a, i]) & set(place[theirs[b, order[i]]])) for i in range(n)]
            np.testing.assert_array_equal(found[a, b, 1:], np.bincount(common, minlength=k + 1)[1:])


def test_ranks_under_an_order():
    rng = np.random.default_rng(0)
    n, k = 12, 4
    ours, theirs, order = lists(rng, 2, n, k), lists(rng, 3, n, k), rng.permutation(n)
    place = np.argsort(order)
    moved = place[theirs[:, order]]  # the lists of the other side as they stand beside ours
    found = mean_score("knn-rank", ours, theirs, order)
    assert found == pytest.approx(mean_score("knn-rank", ours, moved.astype(np.int32), np.arange(n)))
    assert mean_score("knn-rank", ours, ours, np.arange(n))[0, 0] == pytest.approx(1)


def test_more_layers_than_marks_fit_into_a_number():
    rng = np.random.default_rng(0)
    theirs = lists(rng, LANES + 6, 8, 3)
    found = common_neighbours(theirs[:1], theirs, np.arange(8))
    for b in (0, LANES - 1, LANES, LANES + 5):
        np.testing.assert_array_equal(found[:, b], common_neighbours(theirs[:1], theirs[b : b + 1], np.arange(8))[:, 0])
    assert found[0, 0, 3] == 8


@given(seed=st.integers(0, 999), n=st.integers(6, 12), k=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_influence_of_a_neighbour(seed, n, k):
    rng = np.random.default_rng(seed)
    ours, theirs = lists(rng, 1, n, k)[0], lists(rng, 1, n, k)[0]
    theirs[::2] = ours[::2]  # some agree
    common = np.arange(k + 1)
    for score in (common / k, common / (2 * k - common)):
        out = np.zeros(n)
        neighbour_influence(ours, theirs, score, out)
        np.testing.assert_allclose(out, naive.neighbour_influence(ours.tolist(), theirs.tolist(), score), atol=1e-12)
