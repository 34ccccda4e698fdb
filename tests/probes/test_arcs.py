"""Biaffine arcs beside loops over words, planted trees found, and the best trees beside all trees."""

from __future__ import annotations

from itertools import product

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probekit.errors import UsageError
from probekit.probes.trees import arcs
from probekit.probes.trees.arcs import ArcOptions, ArcProbe, fit_arcs, parse
from probekit.probes.trees.decoding import best_tree
from probekit.tasks.treebank import not_a_tree

TREES = {n: np.array([h for h in product(range(n + 1), repeat=n) if not not_a_tree(h)]) for n in range(1, 6)}


def test_there_are_as_many_trees_as_cayley_says() -> None:
    assert [len(TREES[n]) for n in TREES] == [n ** (n - 1) for n in TREES]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.booleans())
def test_the_best_tree_is_the_best_of_all_trees(n: int, seed: int, ties: bool) -> None:
    scores = np.random.default_rng(seed).normal(size=(n, n + 1)) * 3
    scores = np.round(scores) if ties else scores
    totals = scores[np.arange(n), TREES[n]].sum(1)
    heads = best_tree(scores)
    assert not not_a_tree(heads.tolist())
    assert scores[np.arange(n), heads].sum() == pytest.approx(totals.max(), abs=1e-9)


@pytest.mark.parametrize("n", [12, 30])
def test_long_sentences_beside_networkx(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(5):
        scores = rng.normal(size=(n, n + 1))
        one_root = scores - 1000 * (np.arange(n + 1) == 0)
        graph = networkx.DiGraph()
        graph.add_weighted_edges_from((j, i + 1, one_root[i, j]) for i in range(n) for j in range(n + 1) if j != i + 1)
        theirs = networkx.maximum_spanning_arborescence(graph)
        heads = best_tree(scores)
        assert {(int(h), i + 1) for i, h in enumerate(heads)} == set(theirs.edges)


def test_scores_that_are_no_scores_are_refused() -> None:
    with pytest.raises(UsageError, match=r"shape \(2, 2\); expected \(n, n \+ 1\)"):
        best_tree(np.zeros((2, 2)))
    with pytest.raises(UsageError, match="NaN"):
        best_tree(np.array([[np.nan, 0.0]]))


def random_tree(n: int, rng: np.random.Generator) -> list[int]:
    """The heads of a tree: each word hangs on an earlier one of a random order."""
    order, heads = rng.permutation(n), [0] * n
    for k in range(1, n):
        heads[order[k]] = int(order[rng.integers(k)]) + 1
    return heads


def planted(sentences: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Vectors that hold a random name of the word and that of its head, heads, relations, lengths."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 9, size=sentences)
    vectors, heads = [], []
    for n in length:
        own = random_tree(int(n), rng)
        name = np.concatenate([np.zeros((1, 12)), rng.normal(size=(n, 12))])
        vectors.append(np.hstack([name[1:], name[own]]))
        heads += own
    x, h = np.concatenate(vectors).astype(np.float32), np.array(heads)
    return x, h, np.where(h == 0, 0, 1 + (x[:, 0] > 0)), length


OPTIONS = ArcOptions(width=32, relation_width=8, epochs=15, learning_rate=1e-2, batch=64, dropout=0.1)


@pytest.mark.slow
def test_a_planted_tree_is_found_and_trees_of_other_sentences_are_not() -> None:
    x, heads, relations, length = planted(400, 0)
    new, gold, gold_relations, new_length = planted(100, 1)
    found = parse(fit_arcs(x, heads, relations, length, 3, options=OPTIONS), new, new_length, heads=gold)
    assert np.mean(found.heads == gold) > 0.9
    assert np.mean(found.relations == gold_relations) > 0.9
    assert found.given is not None
    assert np.mean(found.given == gold_relations) >= np.mean(found.relations == gold_relations) - 0.02
    others = np.concatenate([random_tree(int(n), np.random.default_rng(i)) for i, n in enumerate(length)])
    control = parse(fit_arcs(x, others, relations, length, 3, options=OPTIONS), new, new_length)
    assert np.mean(control.heads == gold) < 0.5


def test_every_predicted_sentence_is_a_tree_and_with_best_heads_it_need_not_be() -> None:
    x, heads, relations, length = planted(60, 2)
    probe = fit_arcs(x, heads, relations, length, 3, options=ArcOptions(epochs=1, batch=64))
    trees = np.split(parse(probe, x, length).heads, np.cumsum(length)[:-1])
    assert all(not not_a_tree(one.tolist()) for one in trees)
    free = np.split(parse(probe, x, length, tree=False).heads, np.cumsum(length)[:-1])
    assert any(not_a_tree(one.tolist()) for one in free)


def by_hand(probe: ArcProbe, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of arcs (n, n + 1) and relations (n, n + 1, r) of one sentence, word by word (equations 2 to 6)."""
    layer, bias, root, form, layer_r, bias_r, root_r, form_r = (w.astype(np.float64) for w in probe.weights)
    z = (x.astype(np.float64) - probe.mean) / probe.scale
    n, w, v = len(x), len(root), len(root_r)
    classes = form_r.shape[1] // (v + 1)
    scores, relations = np.full((n, n + 1), -np.inf), np.zeros((n, n + 1, classes))
    for i in range(n):
        d, d_r = (np.maximum(z[i] @ a + b, 0)[:k] for a, b, k in ((layer, bias, w), (layer_r, bias_r, v)))
        for j in range(n + 1):
            heads = ((layer, bias, w, root), (layer_r, bias_r, v, root_r))
            h, h_r = (r if j == 0 else np.maximum(z[j - 1] @ a + b, 0)[k:] for a, b, k, r in heads)
            if j != i + 1:
                scores[i, j] = d @ form[:-1] @ h + form[-1] @ h
            matrices = form_r.reshape(v + 1, classes, v + 1)
            for r in range(classes):
                relations[i, j, r] = np.append(d_r, 1) @ matrices[:, r] @ np.append(h_r, 1)
    return scores, relations


def test_scores_and_losses_equal_those_of_a_loop_over_words() -> None:
    x, heads, relations, length = planted(30, 3)
    probe = fit_arcs(x, heads, relations, length, 3, options=ArcOptions(epochs=2, batch=50, width=8, relation_width=4))
    weights = [torch.from_numpy(w) for w in probe.weights]
    data = torch.from_numpy((x - probe.mean) / probe.scale)
    total, start = 0.0, np.cumsum(length) - length
    for a, n in zip(start, length, strict=True):
        own, theirs = by_hand(probe, x[a : a + n])
        at = np.arange(n), heads[a : a + n]
        total -= (own - np.log(np.exp(own).sum(1, keepdims=True)))[at].sum()
        chosen = theirs[at]
        total -= (chosen - np.log(np.exp(chosen).sum(1, keepdims=True)))[at[0], relations[a : a + n]].sum()
    batches = arcs._batches(length, 100, np.arange(len(length)), heads)
    loss = sum(float(arcs._loss(data, torch.from_numpy(relations), batch, weights)) for batch in batches)
    assert loss == pytest.approx(total, rel=1e-5)  # float32 beside float64; measured 2e-7
    said = parse(probe, x, length, heads=heads, tree=False)
    best = np.concatenate([by_hand(probe, x[a : a + n])[0].argmax(1) for a, n in zip(start, length, strict=True)])
    np.testing.assert_array_equal(said.heads, best)


def test_a_sentence_is_parsed_alone_as_among_others() -> None:
    x, heads, relations, length = planted(40, 4)
    probe = fit_arcs(x, heads, relations, length, 3, options=ArcOptions(epochs=1, batch=64))
    whole = parse(probe, x, length)
    for a, n in zip(np.cumsum(length) - length, length, strict=True):
        alone = parse(probe, x[a : a + n], np.array([n]))
        np.testing.assert_array_equal(alone.heads, whole.heads[a : a + n])
        np.testing.assert_array_equal(alone.relations, whole.relations[a : a + n])


def test_unknown_relations_and_the_same_seed() -> None:
    x, heads, relations, length = planted(30, 5)
    relations = np.where(np.arange(len(relations)) % 5 == 0, -1, relations)
    a, b = (fit_arcs(x, heads, relations, length, 3, options=ArcOptions(epochs=2, batch=64)) for _ in range(2))
    assert a.losses == b.losses
    assert np.isfinite(a.losses).all()
    assert all((p == q).all() for p, q in zip(a.weights, b.weights, strict=True))


def test_what_does_not_fit_is_refused() -> None:
    x, heads, relations, length = planted(10, 6)
    with pytest.raises(UsageError, match="expected the same number"):
        fit_arcs(x[1:], heads, relations, length, 3)
    with pytest.raises(UsageError, match="too few sentences, 1,"):
        fit_arcs(x[: length[0]], heads[: length[0]], relations[: length[0]], length[:1], 3)
    for wrong in ({"width": 0}, {"dropout": 1.0}, {"held_out": 0.0}, {"learning_rate": 0.0}):
        with pytest.raises(UsageError, match="must be"):
            ArcOptions(**wrong)
