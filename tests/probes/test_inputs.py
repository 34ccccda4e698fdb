"""Bags, lengths and word types against plain Python; sparse probes against their optimum and dense twins."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from probekit.analyses.vectors import pair_features
from probekit.errors import UsageError
from probekit.probes.protocol.baselines import type_majority
from probekit.probes.protocol.pieces import bag_of_pieces, keys, length, tfidf_of_pieces, word_types
from probekit.probes.solvers.sparse import sparse_path, sparse_ridge
from probekit.statistics.folds import duplicates


def pieces(*texts):
    """Pieces of texts that are given as lists of numbers; laid out backwards, with a gap, equal texts once."""
    distinct = sorted({tuple(t) for t in texts}, reverse=True)
    start = dict(zip(distinct, 3 + np.cumsum([0, *map(len, distinct)]), strict=False))
    values = np.array([99, 99, 99, *(i for t in distinct for i in t)], dtype=np.int32)
    return SimpleNamespace(
        values=values,
        start=np.array([start[tuple(t)] for t in texts], dtype=np.int64),
        length=np.array([len(t) for t in texts], dtype=np.int64),
    )


TOL = 5e-3  # nats; measured up to 1.7e-3, where the probability is 1e-8 and C is 10

A = pieces([5, 7, 5], [], [9], [5, 7, 5])
B = pieces([7, 8], [5], [9], [9, 9])


def test_keys_tell_examples_apart():
    assert duplicates(keys([A]), keys([B])).tolist() == [False, False, True, False]
    assert len(set(keys([A]))) == 3
    assert len(set(keys([A, B]))) == 4
    one, other = [pieces([1, 2]), pieces([3])], [pieces([1]), pieces([2, 3])]
    assert keys(one) != keys(other)  # the same pieces, cut elsewhere


def test_word_types_are_the_same_in_train_and_dev():
    train, dev = word_types(A, B)
    assert train.tolist() == [0, 1, 2, 0]
    assert dev.tolist() == [3, 4, 2, 5]


def test_length():
    np.testing.assert_allclose(length([A, B])[:2], [[3, np.log(4), 2, np.log(3)], [0, 0, 1, np.log(2)]], rtol=1e-6)
    assert length([A]).shape == (4, 2)


@pytest.mark.parametrize("binary", [True, False])
def test_bag_of_pieces(binary):
    train, dev = bag_of_pieces([A], [B], binary=binary)  # columns: 5, 7, 9
    many = 1 if binary else 2
    assert train.toarray().tolist() == [[many, 1, 0], [0, 0, 0], [0, 0, 1], [many, 1, 0]]
    assert dev.toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, many]]
    assert train.dtype == np.float32


def test_tfidf_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    texts = [rng.integers(9, size=rng.integers(1, 12)).tolist() for _ in range(60)]
    train, dev = tfidf_of_pieces([pieces(*texts[:40])], [pieces(*texts[40:])])
    theirs = TfidfVectorizer(ngram_range=(1, 2), min_df=2, token_pattern=r"\S+")
    words = [" ".join(map(str, text)) for text in texts]
    theirs.fit(words[:40])
    order = sorted(theirs.vocabulary_, key=lambda gram: [len(gram.split()), *map(int, gram.split())])
    columns = [theirs.vocabulary_[gram] for gram in order]
    np.testing.assert_allclose(train.toarray(), theirs.transform(words[:40]).toarray()[:, columns], atol=1e-6)
    np.testing.assert_allclose(dev.toarray(), theirs.transform(words[40:]).toarray()[:, columns], atol=1e-6)
    assert tfidf_of_pieces([pieces([1], [2])], [pieces([1])]) is None  # nothing occurs twice
    pairs, _ = tfidf_of_pieces([A, B], [A, B])
    u, v, apart, product = np.split(pairs.toarray(), 4, axis=1)
    np.testing.assert_allclose((apart, product), (abs(u - v), u * v), atol=1e-6)


def test_bag_of_pairs_is_that_of_vectors():
    train, _ = bag_of_pieces([A, B], [A, B], binary=False)
    vocabulary = [5, 7, 8, 9]
    uv = np.array([[[*t].count(v) for part in (A, B) for t in [item(part, i)] for v in vocabulary] for i in range(4)])
    assert train.toarray().tolist() == pair_features(uv).tolist()
    with pytest.raises(UsageError, match="2 texts per example, dev has 1"):
        bag_of_pieces([A, B], [A])


def item(part, i):
    return part.values[part.start[i] : part.start[i] + part.length[i]].tolist()


def toy(classes, n=400, d=60, seed=0):
    rng = np.random.default_rng(seed)
    x = sparse.random(n, d, 0.1, random_state=rng, format="csr", data_rvs=np.ones, dtype=np.float32)
    return x, (x @ np.random.default_rng(9).normal(size=(d, classes)) + rng.gumbel(size=(n, classes))).argmax(1)


@pytest.mark.parametrize("classes", [2, 4])
def test_sparse_path_reaches_the_optimum(classes):
    x, codes = toy(classes)
    codes[::9] = -1
    cs = (0.01, 10.0, 1.0)  # in any order
    path = sparse_path(x, codes, classes, cs)
    dense, known = x.toarray().astype(float), codes >= 0
    for c, got in zip(cs, path.log_proba(x), strict=True):
        twin = LogisticRegression(C=c, tol=1e-10, max_iter=10000).fit(dense[known], codes[known])
        np.testing.assert_allclose(got, twin.predict_log_proba(dense), atol=TOL)
    assert path.converged.all()
    assert path.log_proba(x).dtype == np.float32
    gold = path.log_proba(x)[:, np.flatnonzero(known), codes[known]].mean(1)
    assert gold[0] < gold[2] < gold[1]  # the weaker the penalty, the better the fit of train


def test_shuffled_labels_leave_nothing_to_say_of_new_texts():
    (x, codes), (x_dev, y_dev) = toy(4), toy(4, seed=1)
    shuffled = np.random.default_rng(0).permutation(codes)
    right, wrong = (
        sparse_path(x, y, 4, [0.1]).log_proba(x_dev)[0, np.arange(400), y_dev].mean() for y in (codes, shuffled)
    )
    prior = np.log(np.bincount(codes) / 400)[y_dev].mean()
    assert wrong < prior + 0.01 < right - 0.05


def test_sparse_path_of_a_class_that_never_occurs():
    x, codes = toy(2)
    out = sparse_path(x, codes * 2, 3, [1.0]).log_proba(x)
    assert np.isneginf(out[0, :, 1]).all()
    np.testing.assert_allclose(out[..., [0, 2]], sparse_path(x, codes, 2, [1.0]).log_proba(x), atol=1e-6)
    with pytest.raises(UsageError, match="a probe needs two"):
        sparse_path(x, np.zeros(400, int), 2)
    with pytest.raises(UsageError, match="0 … 1"):
        sparse_path(x, codes + 1, 2)
    with pytest.raises(UsageError, match="positive"):
        sparse_path(x, codes, 2, [0.0])


def test_sparse_ridge():
    x, _ = toy(2)
    y = np.asarray(x.sum(1)).ravel() + np.random.default_rng(0).normal(size=400)
    y[::8] = np.nan
    known = ~np.isnan(y)
    path = sparse_ridge(x, y, (0.1, 100.0))
    for alpha, got in zip((0.1, 100.0), path.predict(x), strict=True):
        twin = Ridge(alpha=alpha).fit(x.toarray()[known], y[known])
        np.testing.assert_allclose(got, twin.predict(x.toarray()), atol=1e-4)


def test_type_majority():
    types, codes = np.array([4, 4, 4, 8, 8, 6, 6]), np.array([1, 1, 0, 2, 1, -1, -1])
    probe = type_majority(types, codes, 4)
    out = np.exp(probe.log_proba(np.array([4, 8, 6, 99])))
    prior = np.array([1, 3, 1, 0]) / 5
    np.testing.assert_allclose(out[0], (prior + np.array([1, 2, 0, 0])) / 4, rtol=1e-6)
    np.testing.assert_allclose(out[1], (prior + np.array([0, 1, 1, 0])) / 3, rtol=1e-6)
    np.testing.assert_allclose(out[2:], [prior, prior], rtol=1e-6)  # unlabelled, and unseen
    assert out.argmax(1).tolist() == [1, 1, 1, 1]
    with pytest.raises(UsageError, match="no word"):
        type_majority(types, np.full(7, -1), 4)


def test_type_majority_solves_any_labelling_of_types():
    rng = np.random.default_rng(0)
    types = rng.integers(0, 50, 2000)
    of_type, of_token = rng.integers(0, 3, 50)[types], rng.integers(0, 3, 2000)
    right = [(type_majority(types, y, 3).log_proba(types).argmax(1) == y).mean() for y in (of_type, of_token)]
    assert right[0] == 1
    assert right[1] < 0.5  # the control: labels that types do not tell; .33, and what 40 words a type give by chance
