"""Texts as the sequences that a language model reads, whole or in windows, and the pieces that it predicts in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probekit.errors import UsageError
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


@dataclass(frozen=True, slots=True)
class Cut:
    """A text in pieces.

    Attributes
    ----------
    ids : list of int
        Its t own pieces.
    start, end : np.ndarray
        Int (t,), the characters of each.
    words : list of int or None
        The word of each: what the tokenizer divides the text into, or else what white space separates.
    before, after : list of int
        The pieces that the tokenizer adds.
    """

    ids: list[int]
    start: np.ndarray
    end: np.ndarray
    words: list[int | None]
    before: list[int]
    after: list[int]

    def reading(
        self, begin: int, end: int, place: np.ndarray, start: Sequence[int], last: Sequence[int] = ()
    ) -> Reading:
        """Some of the pieces in a row as a reading, after ``start`` and before ``last``; place : those to predict."""
        before, after = [*self.before, *start], [*last, *self.after]
        words = [*(None for _ in before), *self.words[begin:end], *(None for _ in after)]
        wanted = (len(before) + place - begin).tolist()
        return Reading([*before, *self.ids[begin:end], *after], wanted, words, "")

    def beginning(self, bos: int | None) -> list[int]:
        """The piece for the beginning of a text, unless the text begins with it."""
        return [] if bos is None or self.ids[:1] == [bos] else [bos]


def cut_texts(tokenizer: Any, texts: Sequence[str], *, causal: bool) -> list[Cut]:
    """Texts in pieces; a causal model reads none that its tokenizer adds."""
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    found, divided = [], finds_words(backend)
    for text, one in zip(texts, backend.encode_batch(list(texts), add_special_tokens=not causal), strict=True):
        own = np.flatnonzero(~np.array(one.special_tokens_mask, dtype=bool) | causal)
        first, last = (int(own[0]), int(own[-1]) + 1) if len(own) else (len(one.ids), len(one.ids))
        start, end = np.array(one.offsets[first:last], dtype=np.int64).reshape(-1, 2).T
        words = one.word_ids[first:last] if divided else between_blanks(text, start, end).tolist()
        found.append(Cut(one.ids[first:last], start, end, words, one.ids[:first], one.ids[last:]))
    return found


def read(
    tokenizer: Any, texts: Sequence[str], max_length: int, *, causal: bool, start: bool, since: Sequence[int] | None
) -> list[Reading]:
    """The reading of each whole text.

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
    found, bos = [], tokenizer.bos_token_id if causal and start else None
    for text, first in zip(cut_texts(tokenizer, texts, causal=causal), since or [-1] * len(texts), strict=True):
        before = text.beginning(bos)
        place = np.flatnonzero(text.end > first)
        one = text.reading(0, len(text.ids), place[len(before) + place >= causal], before)
        problem = "" if one.wanted else "has no piece to predict"
        if (size := len(one.ids) - causal) > max_length:
            problem = f"has {size} pieces, but the model reads {max_length}"
        found.append(replace(one, problem=problem))
    return found


@dataclass(frozen=True, slots=True)
class Window:
    """How a text is read that may be longer than the model reads.

    Attributes
    ----------
    start : bool
        Whether a causal model reads its piece for the beginning before the text, if its tokenizer has one.
    size : int, optional
        Pieces that are read at once, without those that are added (default: as many as the model reads).
    stride : int, optional
        By how many pieces a window is moved on (default: half of ``size``).
    """

    start: bool = True
    size: int | None = None
    stride: int | None = None


def windows(
    text: Cut, window: Window, max_length: int, *, causal: bool, bos: int | None, more: bool = False
) -> Iterator[tuple[Reading, np.ndarray]]:
    """Each window of a text as a reading, and the places in the text of the pieces that it predicts.

    Parameters
    ----------
    text : Cut
        The text in pieces.
    window : Window
        How much is read at once.
    max_length : int
        Pieces that the model reads.
    causal : bool
        Whether the model predicts the next piece.
    bos : int, optional
        The piece for the beginning, which stands before a text.
    more : bool
        Whether what follows the last piece is predicted, too: its place is the number of pieces.

    Raises
    ------
    UsageError
        If the window does not fit the model.
    """
    most = max_length - len(text.before) - len(text.after) - more  # a piece of which only the state before it is read
    size = most if window.size is None else window.size
    if not 2 <= size <= most:
        raise UsageError(f"the window has {size} pieces; the model reads 2 to {most} at once.")
    stride = max(1, size // 2) if window.stride is None else window.stride
    if stride >= size:
        raise UsageError(f"the window is moved on by {stride} pieces, but has {size}; give a smaller stride.")
    n = len(text.ids)
    for begin, end, low, high in _spans(n, size, stride, causal=causal):
        start = [] if begin else text.beginning(bos)
        last = [text.ids[-1]] if more and end == n else []  # any piece: a causal model never reads its last one
        place = np.arange(low, high + len(last))
        place = place[len(text.before) + len(start) + place - begin >= causal]
        if len(place):
            yield text.reading(begin, end, place, start, last), place


def _spans(n: int, size: int, stride: int, *, causal: bool) -> Iterator[tuple[int, int, int, int]]:
    """The windows of a text of n pieces: the first piece and the one after the last, of those read and of those
    predicted.

    Examples
    --------
    >>> list(_spans(10, 4, 3, causal=True))
    [(0, 4, 0, 4), (3, 7, 4, 7), (6, 10, 7, 10)]
    >>> list(_spans(10, 4, 2, causal=False))
    [(0, 4, 0, 3), (2, 6, 3, 5), (4, 8, 5, 7), (6, 10, 7, 10)]
    """
    if not n:
        return
    ends = [min(size, n)]
    while ends[-1] < n:
        ends.append(min(ends[-1] + stride, n))
    begins = [max(0, end - size) for end in ends]
    cuts = [end if causal else (begin + end + 1) // 2 for end, begin in zip(ends, begins[1:], strict=False)]
    yield from zip(begins, ends, [0, *cuts], [*cuts, n], strict=True)


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
