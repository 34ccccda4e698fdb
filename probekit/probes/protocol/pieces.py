"""Inputs from the pieces of texts and words without a model: bags, lengths, word types, and keys of equal texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from scipy import sparse

from probekit.errors import UsageError


class Pieces(Protocol):
    """Pieces of n texts or words: item i is ``values[start[i] : start[i] + length[i]]``.

    A cache's ``pieces`` has one for each text of an example; its ``word_pieces`` is one for all words.

    Attributes
    ----------
    values : np.ndarray
        Int (t,).
    start, length : np.ndarray
        int64 (n,).
    """

    values: np.ndarray
    start: np.ndarray
    length: np.ndarray


def keys(parts: Sequence[Pieces]) -> list[tuple[bytes, ...]]:
    """A key for each example, equal for equal texts: the bytes of the pieces of its texts.

    Parameters
    ----------
    parts : Sequence[Pieces]
        One for each text of an example. Keys are comparable between caches with the same tokenizer.
    """
    return list(zip(*map(_bytes, parts), strict=True))


def _bytes(pieces: Pieces) -> list[bytes]:
    flat, wide = pieces.values.tobytes(), pieces.values.itemsize
    start, stop = wide * pieces.start, wide * (pieces.start + pieces.length)
    return [flat[a:b] for a, b in zip(start.tolist(), stop.tolist(), strict=True)]


def word_types(*words: Pieces) -> list[np.ndarray]:
    """A number for each word's sequence of pieces, int64 (w,) for each argument; equal words have equal numbers.

    Parameters
    ----------
    *words
        Pieces of the words of train, dev …, from the same tokenizer. If the tokenizer marks the blank before a word
        (RoBERTa, GPT-2), the first word of a sentence has another type than the same word later.
    """
    codes: dict[bytes, int] = {}
    return [np.array([codes.setdefault(key, len(codes)) for key in _bytes(w)], dtype=np.int64) for w in words]


def length(parts: Sequence[Pieces]) -> np.ndarray:
    """The number of pieces of each text of an example, and ln(1 + number): float32 (n, 2 × texts)."""
    counts = np.stack([p.length for p in parts], axis=1).astype(np.float32)
    return np.stack([counts, np.log1p(counts)], axis=2).reshape(len(counts), -1)


def bag_of_pieces(
    train: Sequence[Pieces], dev: Sequence[Pieces], *, binary: bool = True
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Bags of the pieces that occur in train, float32 csr (n_train, v) and (n_dev, v).

    Pieces that train lacks are left out of dev.

    Parameters
    ----------
    train, dev : Sequence[Pieces]
        One Pieces for each text of an example. Two texts u and v become [u; v; |u - v|; u * v] with 4 v columns, like
        the vectors of pairs (Conneau et al. 2017, section 3.1); three or more are concatenated.
    binary : bool, default True
        Record whether a piece occurs instead of its count, which suits short texts better (Wang & Manning 2012).
    """
    if len(train) != len(dev):
        raise UsageError(f"train has {len(train)} texts per example, dev has {len(dev)}.")
    vocabulary = np.unique(np.concatenate([p.values[_rows(p)] for p in train]))
    return _joined(train, vocabulary, binary), _joined(dev, vocabulary, binary)


COLUMNS = 20_000
"""The most frequent unigrams and bigrams of a text that tf-idf has, at most."""


def tfidf_of_pieces(
    train: Sequence[Pieces], dev: Sequence[Pieces]
) -> tuple[sparse.csr_matrix, sparse.csr_matrix] | None:
    """Tf-idf of the unigrams and bigrams of pieces that at least two texts of train have; None without any.

    As scikit-learn's ``TfidfVectorizer(ngram_range=(1, 2), min_df=2, max_features=20_000)`` on the pieces: columns and
    weights are those of train. Float32 csr (n_train, v) and (n_dev, v).

    Parameters
    ----------
    train, dev : Sequence[Pieces]
        One Pieces for each text of an example; pairs become [u; v; |u - v|; u * v], as in :func:`bag_of_pieces`.
    """
    from sklearn.feature_extraction.text import TfidfTransformer

    of_train, of_dev = ([(*_ngrams(p), len(p.start)) for p in parts] for parts in (train, dev))
    vocabulary = np.unique(np.concatenate([codes for codes, *_ in of_train]))
    counts = sparse.vstack([_counts(*one, vocabulary) for one in of_train], format="csr")
    often = np.flatnonzero(counts.getnnz(0) >= 2)
    total = np.asarray(counts.sum(0)).ravel()[often]
    often = np.sort(often[np.argsort(-total, kind="stable")[:COLUMNS]])
    if not len(often):
        return None
    weights, kept = TfidfTransformer().fit(counts[:, often]), vocabulary[often]
    found = [[weights.transform(_counts(*one, kept)) for one in parts] for parts in (of_train, of_dev)]
    return _side_by_side(found[0]), _side_by_side(found[1])


def _ngrams(pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
    """A number for each unigram and bigram of some texts, and the text that it stands in."""
    values = pieces.values[_rows(pieces)].astype(np.int64)
    row = np.repeat(np.arange(len(pieces.start)), pieces.length)
    within = row[1:] == row[:-1]
    bigrams = (((values[:-1] + 1) << 32) + values[1:])[within]
    return np.concatenate([values, bigrams]), np.concatenate([row, row[1:][within]])


def _rows(pieces: Pieces) -> np.ndarray:
    """The indices in ``values`` of the pieces of all items, in the order of the items."""
    count = pieces.length
    return np.arange(int(count.sum())) + np.repeat(pieces.start - (np.cumsum(count) - count), count)


def _joined(parts: Sequence[Pieces], vocabulary: np.ndarray, binary: bool) -> sparse.csr_matrix:
    bags = [_counts(p.values[_rows(p)], np.repeat(np.arange(len(p.start)), p.length), len(p.start), vocabulary)
            for p in parts]  # fmt: skip
    for bag in bags if binary else ():
        bag.data[:] = 1
    return _side_by_side(bags)


def _side_by_side(parts: Sequence[sparse.csr_matrix]) -> sparse.csr_matrix:
    """What is read of the texts of examples: of two, u and v, [u; v; |u - v|; u * v]."""
    u, *rest = parts
    compared = [abs(u - rest[0]), u.multiply(rest[0])] if len(rest) == 1 else []
    return sparse.hstack([*parts, *compared], format="csr", dtype=np.float32)


def _counts(values: np.ndarray, row: np.ndarray, n: int, vocabulary: np.ndarray) -> sparse.csr_matrix:
    """How often each number of a sorted vocabulary stands in each of n rows; others are left out."""
    v = len(vocabulary)
    column = np.minimum(np.searchsorted(vocabulary, values), max(v - 1, 0))
    known = vocabulary[column] == values if v else np.zeros(len(values), dtype=bool)
    ones = np.ones(int(known.sum()), dtype=np.float32)
    counts = sparse.csr_matrix((ones, (row[known], column[known])), shape=(n, v))
    counts.sum_duplicates()
    return counts
