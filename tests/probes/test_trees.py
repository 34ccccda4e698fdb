"""Structural probes: the authors' code on the same inputs, closed forms, planted trees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from scipy.stats import spearmanr

from probekit.errors import UsageError
from probekit.probes.trees.fit import FitOptions, StructuralProbe, Trees, _batches, fit, loss_and_gradient, predict
from probekit.probes.trees.gold import chain, depths, distances
from probekit.probes.trees.scores import (
    PUNCTUATION,
    edges,
    mean_over_lengths,
    root_hits,
    row_spearman,
    spearman,
    uuas_counts,
)

GOLDEN = Path(__file__).parents[2] / "../shared/goldens/structural_probe/structural_probe.npz"


def tree(n: int, rng: np.random.Generator) -> np.ndarray:
    """The heads of a random tree of n words."""
    order = rng.permutation(n)
    heads = np.zeros(n, dtype=np.int64)
    for i in range(1, n):
        heads[order[i]] = order[rng.integers(i)] + 1
    return heads


@settings(deadline=None)  # kernels are compiled
@given(n=st.integers(1, 30), seed=st.integers(0, 999))
def test_distances_and_depths_are_shortest_paths(n: int, seed: int) -> None:
    heads = tree(n, np.random.default_rng(seed))
    graph = np.zeros((n, n))
    for word, head in enumerate(heads):
        if head:
            graph[word, head - 1] = 1
    expected = shortest_path(graph, directed=False)
    np.testing.assert_array_equal(distances(heads), expected)
    np.testing.assert_array_equal(depths(heads), expected[np.flatnonzero(heads == 0)[0]])
    found = edges(expected)
    assert {tuple(sorted(pair)) for pair in found.tolist()} == {
        tuple(sorted((word, head - 1))) for word, head in enumerate(heads) if head
    }
    assert uuas_counts(expected, expected, np.ones(n, dtype=bool)) == (n - 1, n - 1)


@settings(deadline=None)  # kernels are compiled
@given(n=st.integers(2, 12), seed=st.integers(0, 999))
def test_edges_are_a_minimum_spanning_tree(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = rng.random((n, n)) + 0.1
    d = d + d.T
    total = sum(d[i, j] for i, j in edges(d).tolist())
    assert total == pytest.approx(minimum_spanning_tree(d).sum())


def test_spearman_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, (2, 20, 9)).astype(float)
    np.testing.assert_allclose(row_spearman(a, b), [spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)])
    sums = spearman([np.eye(4), np.eye(6)], [np.eye(4), -np.eye(6)])
    assert mean_over_lengths(sums, np.array([4, 6]))[0] == pytest.approx(-1)  # length 4 does not count
    assert np.isnan(mean_over_lengths(sums[:1], np.array([4])))[0]


def test_words_between_punctuation_stay_connected() -> None:
    heads = np.array([2, 0, 2])  # the middle word is punctuation, and the root
    counted = np.array([True, False, True])
    assert uuas_counts(chain(3), distances(heads), counted) == (1, 1)
    assert not root_hits(depths(heads), 1, counted)


@pytest.mark.skipif(not GOLDEN.exists(), reason=f"the recorded outputs are not at {GOLDEN}")
@pytest.mark.parametrize("kind", ["two", "one"])
def test_the_authors_code_gives_the_same(kind: str) -> None:
    """Losses to 1e-5 (measured 6e-7), gradients 1e-5 (2e-6), predictions 1e-5 relative (8e-6 of 60); counts equal."""
    g = np.load(GOLDEN)
    length = g["lengths"]
    heads = [g["heads"][i, :n] for i, n in enumerate(length)]
    gold = [distances(h) if kind == "two" else depths(h) for h in heads]
    recorded = g["distance_labels" if kind == "two" else "depth_labels"]
    for i, n in enumerate(length):
        np.testing.assert_array_equal(gold[i], recorded[(i, *[slice(n)] * gold[i].ndim)])
    x = np.concatenate([g["embeddings"][i, :n] for i, n in enumerate(length)])
    trees, projection = Trees(length, gold), g[f"{kind}_psd/proj"]
    loss, gradient = 0.0, torch.zeros(projection.shape)
    for batch in _batches(trees, 100):
        one, its = loss_and_gradient(torch.from_numpy(x), torch.from_numpy(projection), batch, trees.kind)
        loss, gradient = loss + float(one), gradient + its
    assert loss / len(length) == pytest.approx(float(g[f"{kind}_psd/loss"]), abs=1e-5)
    np.testing.assert_allclose(gradient / len(length), g[f"{kind}_psd/grad_proj"], atol=1e-5)
    ours = predict(StructuralProbe(projection, trees.kind, np.zeros(8, np.float32)), x, length)
    theirs = [g[f"{kind}_psd/pred"][(i, *[slice(n)] * gold[i].ndim)] for i, n in enumerate(length)]
    noisy = [g[f"{kind}_psd/gold_noisy/pred"][(i, *[slice(n)] * gold[i].ndim)] for i, n in enumerate(length)]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    counted = [~np.isin(g["xpos"][i, :n], PUNCTUATION) for i, n in enumerate(length)]
    for name, said in (("pred", theirs), ("gold", gold), ("gold_noisy", noisy)):
        key = f"{kind}_psd/{name}"
        mean = mean_over_lengths(spearman(said, gold), length)[0]
        assert mean == pytest.approx(float(g[f"{key}/spearman_5_50_mean"]), abs=1e-6)
        if kind == "two":
            hits, total = np.sum([uuas_counts(*one) for one in zip(said, gold, counted, strict=True)], 0)
            assert hits / total == float(g[f"{key}/uuas"])
        else:
            roots = [int(np.flatnonzero(h == 0)[0]) for h in heads]
            hits = sum(root_hits(*one) for one in zip(said, roots, counted, strict=True))
            assert hits == g[f"{key}/root_acc"][1] if f"{key}/root_acc" in g else True


@pytest.mark.parametrize("kind", ["distance", "depth"])
def test_the_gradient_is_that_of_autograd(kind: str) -> None:
    rng = np.random.default_rng(1)
    heads = [tree(n, rng) for n in (1, 4, 4, 7)]
    trees = Trees(np.array([1, 4, 4, 7]), [(distances if kind == "distance" else depths)(h) for h in heads])
    x, b = torch.randn(16, 5, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    start = np.cumsum(trees.length) - trees.length
    total = torch.zeros((), dtype=torch.float64)
    for at, n, gold in zip(start, trees.length, trees.gold, strict=True):
        z = x[at : at + n] @ b
        said = ((z[:, None] - z) ** 2).sum(2) if kind == "distance" else (z * z).sum(1)
        total = total + (said - torch.from_numpy(gold)).abs().sum() / n**gold.ndim
    total.backward()
    loss, gradient = 0.0, torch.zeros(5, 3, dtype=torch.float64)
    for batch in _batches(trees, 8):
        one, its = loss_and_gradient(x, b.detach(), batch, trees.kind)
        loss, gradient = loss + float(one), gradient + its
    assert loss == pytest.approx(float(total.detach()), rel=1e-6)
    np.testing.assert_allclose(gradient, b.grad, rtol=1e-5, atol=1e-7)  # gold and weights are float32


def planted(sentences: int, d: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Vectors in which the squared distance of two words is that in the tree, turned, and beside it noise.

    Each edge adds a random direction of its own, so distances are exact in expectation (Hewitt & Manning 2019, A.1).
    """
    rng = np.random.default_rng(seed)
    length = rng.integers(4, 12, sentences)
    turn = np.linalg.qr(np.random.default_rng(7).normal(size=(d, d)))[0]
    rows, heads = [], []
    for n in length:
        h = tree(int(n), rng)
        z = np.zeros((n, d))
        for word in np.argsort(depths(h), kind="stable"):
            if h[word]:
                step = np.zeros(d)
                step[rng.integers(20)] = rng.choice((-1, 1))  # one of 20 directions for each edge
                z[word] = z[h[word] - 1] + step
        z[:, 20:] = rng.normal(size=(n, d - 20)) * 2
        rows.append(z @ turn)
        heads.append(h)
    return np.concatenate(rows).astype(np.float32), length, heads


def uuas(probe: StructuralProbe, x: np.ndarray, length: np.ndarray, heads: list[np.ndarray]) -> float:
    said = predict(probe, x, length)
    counts = [uuas_counts(p, distances(h), np.ones(len(h), dtype=bool)) for p, h in zip(said, heads, strict=True)]
    hits, total = np.sum(counts, 0)
    return float(hits / total)


def test_planted_trees_are_found_and_shuffled_ones_are_not() -> None:
    x, length, heads = planted(600)
    x_dev, length_dev, heads_dev = planted(100, seed=1)
    options = FitOptions(epochs=40, learning_rate=0.01, batch=128)
    narrow, wide = fit(x, Trees(length, [distances(h) for h in heads]), [3, 20], options=options)
    assert uuas(wide, x_dev, length_dev, heads_dev) > 0.85
    assert uuas(narrow, x_dev, length_dev, heads_dev) < uuas(wide, x_dev, length_dev, heads_dev) - 0.1
    rng = np.random.default_rng(2)
    wrong = Trees(length, [distances(tree(int(n), rng)) for n in length])
    (none,) = fit(x, wrong, [20], options=options)
    chance = np.mean([uuas_counts(distances(tree(len(h), rng)), distances(h), np.ones(len(h), bool))[0] / (len(h) - 1)
                      for h in heads_dev])  # fmt: skip
    assert uuas(none, x_dev, length_dev, heads_dev) < chance + 0.1


def test_each_sentence_counts_alike_however_long() -> None:
    """120 short sentences have their distances in feature 0, 30 long ones, with most words and steps, in feature 1."""
    rng, length = np.random.default_rng(0), np.array([3] * 120 + [30] * 30)
    x, start = rng.normal(size=(int(length.sum()), 6)).astype(np.float32), np.cumsum(length) - length
    gold = [np.square(z[:, None] - z).astype(np.float32)
            for n, s in zip(length, start, strict=True) for z in [x[s : s + n, int(n == 30)]]]  # fmt: skip
    (probe,) = fit(x, Trees(length, gold), [1], options=FitOptions(epochs=60, learning_rate=3e-2, batch=96))
    np.testing.assert_allclose(np.abs(probe.projection[:, 0]), [1, 0, 0, 0, 0, 0], atol=0.02)


def test_the_same_seed_gives_the_same_bytes() -> None:
    x, length, heads = planted(60)
    trees = Trees(length, [depths(h) for h in heads])
    a, b = (fit(x, trees, [4], options=FitOptions(epochs=2))[0] for _ in range(2))
    assert a.projection.tobytes() == b.projection.tobytes()
    assert a.kind == "depth"


def test_ranks_and_words_that_do_not_fit_are_refused() -> None:
    x, length, heads = planted(5)
    trees = Trees(length, [distances(h) for h in heads])
    with pytest.raises(UsageError, match="from 1 to the width 40, not 41"):
        fit(x, trees, [41])
    with pytest.raises(UsageError, match="vectors, but the trees have"):
        fit(x[1:], trees, [2])
