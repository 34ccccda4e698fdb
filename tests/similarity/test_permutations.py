"""The null distribution: cyclic permutations by Fourier transforms equal permutations one by one."""

from __future__ import annotations

from functools import partial

import naive
import numpy as np
import pytest

from probekit.similarity.chance import judged
from probekit.similarity.features import read
from probekit.similarity.layer_pairs import layer_pairs
from probekit.similarity.matrices import linear
from probekit.similarity.options import SimilarityOptions
from probekit.similarity.orders import exchange
from probekit.similarity.products import correlated, permuted, products, workers

GROUPS = {
    "rows": None,
    "pairs": np.repeat(np.arange(20), 2),
    "two sizes": np.repeat(np.arange(32), np.repeat([1, 2], 16)),
    "a rest": np.repeat(np.arange(51), np.repeat([1, 2, 3], [46, 3, 2])),
}


def layers(rng, n, count, d=5):
    arrays = [rng.standard_normal((n, d)) for _ in range(count)]
    return read([lambda x=x: x for x in arrays], np.arange(n))


@pytest.mark.parametrize(
    ("kind", "n"), [("rows", 41), *((kind, len(of)) for kind, of in GROUPS.items() if of is not None)]
)
def test_shifts_are_permutations(kind, n):
    rng = np.random.default_rng(0)
    groups = GROUPS[kind]
    a, b = linear(layers(rng, n, 2)), linear(layers(rng, n, 3))
    cycles = exchange(groups, n).cycles(60, rng)
    assert cycles.draws >= 60
    assert len(cycles.rest) == (26 if kind == "a rest" else 0)
    np.testing.assert_array_equal(np.sort([*cycles.classes.ravel(), *cycles.rest]), np.arange(n))
    with workers(2) as run:
        found = products(a, b, cycles, run)
    v = correlated(a.vector, b.vector, cycles)
    orders = naive.cyclic_orders(cycles.classes, cycles.cosets, cycles.rest, cycles.rests)
    assert len({tuple(order) for order in orders}) == len(orders) == len(v)
    for k in range(0, len(orders), len(orders) // 12):
        order = orders[k]
        if groups is not None:  # whole clusters move
            assert {frozenset(groups[order[groups == c]]) for c in groups} == {frozenset({c}) for c in groups}
        for i in range(2):
            for j in range(3):
                x, y = (m.tile(at, np.arange(n), np.arange(n)) for m, at in ((a, i), (b, j)))
                h, diagonal = naive.permuted_product(x, y, order)
                assert found.null[k, i, j] == pytest.approx(h, abs=1e-11 * n * n)  # rounding of sums of n² terms
                assert v[k, i, j] == pytest.approx(diagonal, abs=1e-11 * n)
    np.testing.assert_allclose(found.null[0], found.ab.sum(0), rtol=1e-10)


def unrelated(rng, n, d, groups=None, count=7):
    """Layers of two models that know nothing of each other, each a random walk; near copies within groups."""
    models = []
    for _ in range(2):
        layers = [np.zeros((n, d))]
        for _ in range(count):
            step = rng.standard_normal((n, d))
            if groups is not None:
                step = step[groups] + 0.1 * step
            layers.append(0.8 * layers[-1] + step)
        models.append([lambda x=x: x for x in layers[1:]])
    return models


def false_positives(runs, n, d, measure="cka", groups=None, told=True, seed=0):
    """Share of experiments in which some of 7 × 7 pairs has an adjusted p of .05 or less."""
    found = 0
    for run in range(runs):
        a, b = unrelated(np.random.default_rng([seed, run]), n, d, groups)
        options = SimilarityOptions(measures=(measure,), draws=199, resamples=0, seed=run, threads=1, neighbours=5)
        one = layer_pairs(a, b, options=options, groups=groups if told else None)[measure]
        assert one.value.shape == (7, 7)
        found += one.p_adjusted.min() <= 0.05
    return found / runs


@pytest.mark.parametrize(("n", "d"), [(20, 40), pytest.param(60, 8, marks=pytest.mark.slow)])
def test_adjusted_p_of_unrelated_models(n, d):
    assert 0 < false_positives(100, n, d) <= 0.1  # .05 + 2.3 standard errors


CLUSTERS = [
    np.repeat(np.arange(20), 3),
    np.repeat(np.arange(30), [1, 2, 3, 1, 3, 2] * 5),
    np.repeat(np.arange(66), np.repeat([1, 3, 4, 5], [60, 3, 2, 1])),  # a third moves from coset to coset only
]


@pytest.mark.slow
@pytest.mark.parametrize("groups", CLUSTERS)
def test_clusters_are_permuted_as_a_whole(groups):
    assert false_positives(50, len(groups), 6, groups=groups) <= 0.12  # .05 + 2.5 standard errors
    assert false_positives(15, len(groups), 6, groups=groups, told=False) > 0.3  # copies exchanged one by one


@pytest.mark.parametrize(("n", "distinct"), [(100, 2), pytest.param(300, 15, marks=pytest.mark.slow)])
def test_neighbours_that_tie_are_no_common_neighbours(n, distinct):
    """Unrelated layers with few different vectors: .05 + 2.3 standard errors of 100 experiments."""
    found = []
    for run in range(100):
        rng = np.random.default_rng([run, distinct])
        x, y = (rng.standard_normal((distinct, 6))[rng.integers(distinct, size=n)] for _ in range(2))
        options = SimilarityOptions(measures=("mutual-knn",), draws=199, resamples=0, seed=run, threads=1)
        found.append(
            layer_pairs(*([partial(np.asarray, z)] for z in (x, y)), options=options)["mutual-knn"].p[0, 0] <= 0.05
        )
    assert np.mean(found) <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["cka", "cka-rbf", "rsa-spearman", "cca-r2", "mutual-knn", "linear-predictivity"])
def test_thousand_nulls(measure):
    assert false_positives(1000, 60, 8, measure) <= 0.064  # .05 + 2 standard errors


def test_p_and_calibration_of_a_small_example():
    null = np.array([0.5, 0.1, 0.5, 0.9, -0.1])[:, None, None]
    found = judged(null)
    assert found.p[0, 0] == pytest.approx(3 / 5)  # the observed, its tie, and .9
    assert found.null_mean[0, 0] == pytest.approx(0.35)
    assert found.calibrated[0, 0] == pytest.approx((0.5 - 0.35) / 0.65)
    assert found.p_adjusted[0, 0] == found.p[0, 0]
    distance = judged(1 - null, best=0)
    assert distance.p[0, 0] == found.p[0, 0]
    assert distance.calibrated[0, 0] == pytest.approx(found.calibrated[0, 0])
    both = judged(np.concatenate([null, null[[0, 4, 3, 2, 1]]], axis=2))
    assert (both.p_adjusted >= both.p).all()


def test_permutations_one_by_one():
    rng = np.random.default_rng(0)
    a, b = linear(layers(rng, 30, 2)), linear(layers(rng, 30, 3))
    groups = np.repeat(np.arange(11), [5, 4, 4, 3, 3, 3, 2, 2, 2, 1, 1])
    places = exchange(groups, 30)
    assert places.moving == 25
    orders, reports = places.random(30, rng), []
    with workers(2) as run:
        h, v = permuted(a, b, orders, run, progress=lambda *report, **rates: reports.append((*report, rates)))
    assert reports == [("permutations", done, 31, {"permutations": done}) for done in (20, 31)]
    for k, order in enumerate([np.arange(30), *orders]):
        x, y = (m.tile(1, np.arange(30), np.arange(30)) for m in (a, b))
        off, diagonal = naive.permuted_product(x, y, order)
        assert h[k, 1, 1] == pytest.approx(off, abs=1e-8)
        assert v[k, 1, 1] == pytest.approx(diagonal, abs=1e-9)


def test_nothing_to_permute():
    x = np.random.default_rng(0).standard_normal((15, 3))
    groups = np.repeat(np.arange(5), [1, 2, 3, 4, 5])
    options = SimilarityOptions(measures=("cka", "mutual-knn", "procrustes"), neighbours=3)
    for one in layer_pairs([lambda: x], options=options, groups=groups).values():
        assert one.draws == 0
        assert np.isnan(one.p).all()
        assert "no two clusters have the same size" in " ".join(one.notes)
