"""The spans that labels are about, as rows of a cache's token vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probekit.activations.pooling import TokenLevel
from probekit.activations.ragged import Ragged, starting_again
from probekit.errors import UsageError

if TYPE_CHECKING:
    from probekit.activations.cache import ActivationCache


@dataclass(frozen=True, slots=True)
class TokenRows:
    """What is known of t rows of vectors of pieces or words.

    Attributes
    ----------
    start, length : np.ndarray
        int64 (n,), or (n, 2) for pairs that are read separately: the first row of each sequence, and its rows.
    word, char_start, char_end : np.ndarray
        int64 (t,), as in :class:`~probekit.models.encoder.Tokens`.
    second : np.ndarray
        Bool (t,), whether a row is of the second text of a pair that is read as one sequence.
    truncated : np.ndarray
        Bool (n,), whether an example was truncated.
    """

    start: np.ndarray
    length: np.ndarray
    word: np.ndarray
    char_start: np.ndarray
    char_end: np.ndarray
    second: np.ndarray
    truncated: np.ndarray


@dataclass(frozen=True, slots=True)
class Targets:
    """m spans, or pairs of spans, of the examples of a cache, in the order of the task.

    Attributes
    ----------
    first, last : np.ndarray
        int64 (m, 1 or 2), the first and the last row of ``/tokens`` of each span; the rows between belong to it.
    labels : np.ndarray
        int64 (m,), -1 if unlabelled, or bool (m, label names) if several labels can hold at once.
    example : np.ndarray
        int64 (m,), the row of the example that each target belongs to.
    left_out : int
        Number of targets that are not here because the model did not read their spans: the text was truncated.
    """

    first: np.ndarray
    last: np.ndarray
    labels: np.ndarray
    example: np.ndarray
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.example)


def targets(cache: ActivationCache) -> Targets:
    """The targets of a cache; see :attr:`ActivationCache.targets`."""
    if not cache.spec["tokens"]:
        raise UsageError(f"{cache.path} has no token vectors; create a cache with --tokens.")
    if cache.spec["kind"] == "sequence-labelling":
        row, labels, sentence = cache.word_rows, cache.word_labels, cache.word_sentence
        known = labels >= 0
        row = row[known][:, None]
        return Targets(row, _last_pieces(cache, row) if _by_piece(cache) else row, labels[known], sentence[known])
    example, bounds, second, labels, words = cache.stored_targets()
    first, last, read = span_rows(_token_rows(cache), example, bounds, second, words)
    return Targets(first[read], last[read], labels[read], example[read], int((~read).sum()))


def word_rows(cache: ActivationCache, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last row of ``/tokens`` of each word of sentences of ``count`` words, (n,); int64 (words,).

    -1 for words that the model did not read.
    """
    example = np.repeat(np.arange(len(count)), count)
    word = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    every = np.ones(len(word), dtype=bool)
    return _rows(_token_rows(cache), example, np.stack([word, word + 1], axis=1), ~every, every)


def span_rows(
    tokens: TokenRows, example: np.ndarray, bounds: np.ndarray, second: np.ndarray, words: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first and the last row of the spans of m targets, int64 (m, k), and whether they were read, bool (m,).

    Parameters
    ----------
    tokens : TokenRows
        The rows.
    example, bounds, second, words : np.ndarray
        The targets: ``example``, ``spans``, ``second`` and ``in_words`` of :func:`~probekit.activations.label_sets`.
    """
    places = [_rows(tokens, example, bounds[:, 2 * k : 2 * k + 2], second[:, k], words) for k in range(second.shape[1])]
    first, last = (np.stack([place[i] for place in places], 1) for i in (0, 1))
    return first, last, np.asarray((first >= 0).all(1) & (last >= first).all(1))


def span_pieces(cache: ActivationCache, found: Targets) -> tuple[Ragged, ...]:
    """The ids of the pieces of each target's first span and, of pairs, of its second: a Ragged of m items for each.

    In a cache of vectors of words, an item has the first piece of each word.
    """
    ids = cache.row_pieces()
    return tuple(Ragged(ids, a, b - a + 1) for a, b in zip(found.first.T, found.last.T, strict=True))


def _by_piece(cache: ActivationCache) -> bool:
    return cache.spec["tokens"] in (TokenLevel.PIECE, TokenLevel.WORD_PIECES, TokenLevel.CHOSEN)


def _last_pieces(cache: ActivationCache, row: np.ndarray) -> np.ndarray:
    """The last piece of the word whose first piece is in each row."""
    word = cache.index("word_index")
    starts = np.flatnonzero(np.append(word[1:] != word[:-1], True))  # the last row of each run of equal words
    return starts[np.searchsorted(starts, row)]


def _token_rows(cache: ActivationCache) -> TokenRows:
    names = "word_index", "char_start", "char_end"
    word, char_start, char_end = (cache.index(name).astype(np.int64) for name in names)
    second = np.zeros(len(word), dtype=bool)
    if cache.spec["pairs"] == "joint":
        content = np.flatnonzero(word >= 0)
        second[content] = _second(cache, content)
    start, length = cache.index("start"), cache.index("length")
    return TokenRows(start, length, word, char_start, char_end, second, cache.truncated)


def _rows(
    tokens: TokenRows, example: np.ndarray, bounds: np.ndarray, second: np.ndarray, words: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The first and last row of each span, -1 where the model did not read all of it."""
    start, length = tokens.start, tokens.length
    begins = np.unique(start[length > 0])
    word, char_start, char_end = tokens.word, tokens.char_start, tokens.char_end
    content = np.flatnonzero(word >= 0)
    text = 2 * (np.searchsorted(begins, content, side="right") - 1) + tokens.second[content]
    separate = start.ndim == 2
    at = start[example, second.astype(int)] if separate else start[example]
    some = (length[example, second.astype(int)] if separate else length[example]) > 0
    of = 2 * np.searchsorted(begins, at) + (0 if separate else second)
    far = 1 + max(int(a.max(initial=0)) for a in (word, char_end, bounds))
    left, right = of * far + bounds[:, 0], of * far + bounds[:, 1]
    base = text * far
    cut = tokens.truncated[example]
    first, last = np.full(len(example), -1), np.full(len(example), -1)
    for chosen, lows, highs in ((words, word, word + 1), (~words, char_start, char_end)):
        low, high = base + lows[content], base + highs[content]
        a = np.searchsorted(high, left[chosen], side="right")  # the first piece that ends after the span begins
        b = np.searchsorted(low, right[chosen], side="left") - 1  # the last that begins before it ends
        whole = some[chosen] & (a <= b) & (a < len(content))
        a, b = np.minimum(a, len(content) - 1), np.maximum(b, 0)
        whole &= (text[a] == of[chosen]) & (text[b] == of[chosen])
        whole &= (high[b] >= right[chosen]) | ~cut[chosen]
        first[chosen], last[chosen] = np.where(whole, content[a], -1), np.where(whole, content[b], -1)
    return first, last


def _second(cache: ActivationCache, content: np.ndarray) -> np.ndarray:
    """Which of these pieces, not special, belong to the second text of a pair that was read as one sequence."""
    if cache.spec["tokens"] == TokenLevel.CHOSEN:
        return cache.second_rows()[content]
    if cache.spec["tokens"] != TokenLevel.PIECE:
        raise UsageError(
            f"{cache.path} holds vectors of {cache.spec['tokens']}, which do not say which text of a pair they belong "
            "to; create the cache with --token-level piece, or with --pairs separate."
        )
    second = cache.second_pieces()[content]
    if second.any():
        return second
    length, start = cache.index("length"), cache.index("start")  # nothing between the texts: characters begin again
    begins = np.unique(start[length > 0])
    sequence = np.searchsorted(begins, content, side="right") - 1
    return starting_again(sequence, cache.index("char_start")[content])
