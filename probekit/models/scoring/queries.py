"""Batches of sequences for a language model to read, and the pieces to predict from each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from probekit.models.scoring.reading import Reading

__all__ = ["Query", "causal_queries", "masked_queries"]


@dataclass(frozen=True, slots=True)
class Query:
    """Sequences that are read together.

    Attributes
    ----------
    ids : np.ndarray
        int64 (b, t).
    row, at, piece, text : np.ndarray
        int64 (m,): ``piece[k]``, of the text ``text[k]``, is predicted from the state at the place ``at[k]`` of the
        sequence ``row[k]``.
    counts : np.ndarray
        bool (m, s): for which of the s sums a prediction counts.
    """

    ids: np.ndarray
    row: np.ndarray
    at: np.ndarray
    piece: np.ndarray
    text: np.ndarray
    counts: np.ndarray


def causal_queries(readings: Sequence[Reading], most: int, *, alike: bool) -> Iterator[Query]:
    """Each text once, without its last piece; equal sequences, such as questions with several answers, are read once.

    Texts of similar length share a batch. Shorter ones are filled up at their end, which a causal model reads last, so
    it changes no prediction, unless it looks at the length of the whole.

    Parameters
    ----------
    readings : sequence of Reading
        The texts.
    most : int
        Pieces in a batch.
    alike : bool
        Whether only texts of one length share a batch.
    """
    for some in _batches([len(one.ids) - 1 for one in readings], most, alike=alike):
        chosen = [readings[i] for i in some]
        filled = np.zeros((len(some), len(chosen[-1].ids) - 1), dtype=np.int64)
        for row, one in zip(filled, chosen, strict=True):
            row[: len(one.ids) - 1] = one.ids[:-1]
        ids, row = np.unique(filled, axis=0, return_inverse=True)
        many = [len(one.wanted) for one in chosen]
        at = np.concatenate([one.wanted for one in chosen]) - 1
        piece = np.array([one.ids[t] for one in chosen for t in one.wanted], dtype=np.int64)
        text = np.repeat(np.array(some), many)
        yield Query(ids, np.repeat(row.ravel(), many), at, piece, text, np.ones((len(at), 1), dtype=bool))


def masked_queries(readings: Sequence[Reading], mask: int, most: int, words: Sequence[bool]) -> Iterator[Query]:
    """Each text once for each piece to predict, in which that piece is masked.

    Parameters
    ----------
    readings : sequence of Reading
        The texts.
    mask : int
        The piece for masks.
    most : int
        Pieces in a batch.
    words : sequence of bool
        For each of the s sums, whether the pieces of the same word that follow are masked too (Kauf & Ivanova 2023).
        Sequences that are the same for several sums are read once.
    """
    rows: dict[tuple[int, tuple[int, ...]], list[bool]] = {}
    for i, one in enumerate(readings):
        for t in one.wanted:
            word = one.words[t]
            rest = tuple(u for u in range(t + 1, len(one.ids)) if word is not None and one.words[u] == word)
            for s, whole in enumerate(words):
                rows.setdefault((i, (t, *rest) if whole else (t,)), [False] * len(words))[s] = True
    keys, counts = list(rows), np.array(list(rows.values()), dtype=bool)
    for some in _batches([len(readings[i].ids) for i, _ in keys], most, alike=True):
        chosen, n = [keys[k] for k in some], np.arange(len(some))
        ids = np.array([readings[i].ids for i, _ in chosen], dtype=np.int64)
        at = np.array([hidden[0] for _, hidden in chosen])
        piece = ids[n, at]
        for row, (_, hidden) in enumerate(chosen):
            ids[row, hidden] = mask
        yield Query(ids, n, at, piece, np.array([i for i, _ in chosen]), counts[some])


def _batches(lengths: Sequence[int], most: int, *, alike: bool) -> Iterator[list[int]]:
    """Indices of sequences in batches of at most ``most`` pieces or one sequence, short ones first.

    The sequences of a batch have the same length, or are filled up to that of the last one.
    """
    some: list[int] = []
    for i in np.argsort(np.asarray(lengths), kind="stable").tolist():
        if some and ((alike and lengths[i] > lengths[some[0]]) or (len(some) + 1) * lengths[i] > most):
            yield some
            some = []
        some.append(i)
    if some:
        yield some
