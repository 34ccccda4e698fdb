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


def _rows(pieces: Pieces) -> np.ndarray:
    """The indices in ``values`` of the pieces of all items, in the order of the items."""
    count = pieces.length
    return np.arange(int(count.sum())) + np.repeat(pieces.start - (np.cumsum(count) - count), count)


def _joined(parts: Sequence[Pieces], vocabulary: np.ndarray, binary: bool) -> sparse.csr_matrix:
    bags = [_bag(p, vocabulary, binary) for p in parts]
    if len(bags) == 2:
        u, v = bags
        bags += [abs(u - v), u.multiply(v)]
    return sparse.hstack(bags, format="csr", dtype=np.float32)


def _bag(pieces: Pieces, vocabulary: np.ndarray, binary: bool) -> sparse.csr_matrix:
    n, v = len(pieces.start), len(vocabulary)
    values, row = pieces.values[_rows(pieces)], np.repeat(np.arange(n), pieces.length)
    column = np.minimum(np.searchsorted(vocabulary, values), max(v - 1, 0))
    known = vocabulary[column] == values if v else np.zeros(len(values), dtype=bool)
    ones = np.ones(int(known.sum()), dtype=np.float32)
    bag = sparse.csr_matrix((ones, (row[known], column[known])), shape=(n, v))
    bag.sum_duplicates()
    if binary:
        bag.data[:] = 1
    return bag
