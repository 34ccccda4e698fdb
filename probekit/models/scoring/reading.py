"""Texts as the sequences that a language model reads, and the pieces that it predicts in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.models.transformers.tokens import between_blanks, finds_words


@dataclass(frozen=True, slots=True)
class Reading:
    """One text.

    Attributes
    ----------
    ids : list of int
        Its pieces, with those that are added.
    wanted : list of int
        The places in ``ids`` of the pieces to predict.
    words : list of int or None
        The word of each piece; None for added ones.
    problem : str
        Why the model cannot predict them; "" if it can.
    """

    ids: list[int]
    wanted: list[int]
    words: list[int | None]
    problem: str


def read(
    tokenizer: Any, texts: Sequence[str], max_length: int, *, causal: bool, start: bool, since: Sequence[int] | None
) -> list[Reading]:
    """The reading of each text.

    A causal model reads the text after its piece for the beginning of a text (with ``start``, if the tokenizer has one
    and the text does not begin with it). It predicts each piece from those before it, so it never reads the last one.
    A masked model reads the text with the pieces that its tokenizer adds.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerFast
        The model's.
    texts : sequence of str
        n texts.
    max_length : int
        Pieces that the model reads.
    causal, start : bool
        What is added.
    since : sequence of int, optional
        For each text, the character from which it is predicted: the pieces with a character there or later are wanted.
        Default: all pieces.
    """
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    found, divided = [], finds_words(backend)
    bos = tokenizer.bos_token_id if causal and start else None
    encodings = backend.encode_batch(list(texts), add_special_tokens=not causal)
    for text, one, first in zip(texts, encodings, since or [-1] * len(texts), strict=True):
        before = [] if bos is None or one.ids[:1] == [bos] else [bos]
        ids, words = [*before, *one.ids], [*(None for _ in before), *(one.word_ids if divided else _words(text, one))]
        added = [*(True for _ in before), *(special and not causal for special in one.special_tokens_mask)]
        ends = [*(0 for _ in before), *(end for _, end in one.offsets)]
        wanted = [t for t in range(causal, len(ids)) if not added[t] and ends[t] > first]
        problem = "" if wanted else "has no piece to predict"
        if (size := len(ids) - causal) > max_length:
            problem = f"has {size} pieces, but the model reads {max_length}"
        found.append(Reading(ids, wanted, words, problem))
    return found


def _words(text: str, one: Any) -> list[int | None]:
    """The words of a text's pieces, where white space separates them; None for added pieces."""
    start, end = np.array(one.offsets, dtype=np.int64).reshape(-1, 2).T
    words = between_blanks(text, start, end).tolist()
    return [None if added else word for word, added in zip(words, one.special_tokens_mask, strict=True)]


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
