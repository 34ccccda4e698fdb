"""Log-probabilities of the pieces of texts of any length, and of the words that they make up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.models.scoring.reading import Reading
from probekit.models.scoring.scorer import Score, Scorer
from probekit.models.transformers.tokens import between_blanks, finds_words
from probekit.runtime import Progress, no_progress


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


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a text, without those that are added.

    Attributes
    ----------
    ids, start, end : np.ndarray
        Int (t,): the pieces, and their characters in the text.
    word : np.ndarray
        Int (t,), the word of each piece, where words are what white space separates; see
        :func:`~probekit.models.transformers.tokens.between_blanks`.
    nats : np.ndarray
        float64 (t,), the log-probability of each piece; NaN where the model has no prediction.
    spaces : np.ndarray, optional
        float64 (t + 1,), before each piece and after the last one, the log-probability that a piece follows which
        begins with a space.
    """

    ids: np.ndarray
    start: np.ndarray
    end: np.ndarray
    word: np.ndarray
    nats: np.ndarray
    spaces: np.ndarray | None = None

    def words(self) -> np.ndarray:
        """The log-probability of each word, float64 (words,); NaN without pieces, or if one of them has none.

        With ``spaces``, the space after a word counts with it, and the one before it does not: log p(word) is the sum
        over its pieces, plus log p(space) after it, minus log p(space) before it; the first word has none before it
        (Oh & Schuler 2024; Pimentel & Meister 2024).
        """
        count = int(self.word.max(initial=-1)) + 1
        found = np.full(count, np.nan)
        known = self.word >= 0
        some = np.unique(self.word[known])
        found[some] = np.bincount(self.word[known], self.nats[known], count)[some]
        if self.spaces is not None:
            first = np.searchsorted(self.word, some, side="left")
            after = np.searchsorted(self.word, some, side="right")
            before = np.where(first > 0, self.spaces[first], 0.0)
            found[some] += self.spaces[after] - before
        return found


def predicted(
    scorer: Scorer,
    texts: Sequence[str],
    score: Score,
    window: Window = Window(),
    *,
    spaces: bool = False,
    progress: Progress = no_progress,
) -> list[Pieces]:
    """The pieces of each text with their log-probabilities.

    A text that is longer than the window is read several times, with the window moved on, and each piece is predicted
    once: by a causal model in the first window with it, so that at least ``size - stride`` pieces stand before it; by a
    masked one where it is farther from the window's ends.

    Parameters
    ----------
    scorer : Scorer
        The model.
    texts : sequence of str
        The texts.
    score : Score
        For masked models, which pieces are masked together.
    window : Window
        How long texts are read.
    spaces : bool
        Whether ``spaces`` of the pieces is wanted, of a causal model whose pieces begin with spaces.
    progress : callable
        Receives the number of sequences that were read.

    Raises
    ------
    UsageError
        If the window does not fit the model, or its pieces do not begin with spaces.
    """
    cut = [_cut(scorer, text) for text in texts]
    among = _beginning(scorer) if spaces else None
    readings, places = list[Reading](), list[tuple[int, np.ndarray]]()
    for i, text in enumerate(cut):
        for reading, place in _windows(scorer, text, window, spaces=spaces):
            readings.append(reading)
            places.append((i, place))
    nats = [np.full((len(text.ids) + spaces, 1 + spaces), np.nan) for text in cut]
    for (i, place), found in zip(places, scorer.pieces(readings, score, among=among, progress=progress), strict=True):
        nats[i][place] = found
    return [
        Pieces(
            np.array(text.ids, dtype=np.int64), text.start, text.end, text.word, found[: len(text.ids), 0],
            found[:, 1] if spaces else None,
        )
        for text, found in zip(cut, nats, strict=True)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Cut:
    """A text in pieces: those that a tokenizer adds before and after it, and what words the tokenizer sees."""

    ids: list[int]
    start: np.ndarray
    end: np.ndarray
    word: np.ndarray
    own: list[int | None]
    before: list[int]
    after: list[int]


def _cut(scorer: Scorer, text: str) -> _Cut:
    backend = scorer.tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    one = backend.encode(text, add_special_tokens=not scorer.causal)
    added = np.array(one.special_tokens_mask, dtype=bool) & (not scorer.causal)
    inside = np.flatnonzero(~added)
    first, last = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (len(added), len(added))
    start, end = np.array(one.offsets[first:last], dtype=np.int64).reshape(-1, 2).T
    word = between_blanks(text, start, end)
    own = one.word_ids[first:last] if finds_words(backend) else word.tolist()
    return _Cut(one.ids[first:last], start, end, word, own, one.ids[:first], one.ids[last:])


def _windows(scorer: Scorer, text: _Cut, window: Window, *, spaces: bool) -> Iterator[tuple[Reading, np.ndarray]]:
    """Each window of a text as a reading, and the places in the text of the pieces that it predicts."""
    added = len(text.before) + len(text.after) + spaces  # a piece more, of which only the state before it is read
    most = scorer.max_length - added
    size = most if window.size is None else window.size
    if not 2 <= size <= most:
        raise UsageError(f"the window has {size} pieces; {scorer.spec['model']} reads 2 to {most} at once.")
    stride = max(1, size // 2) if window.stride is None else window.stride
    if stride >= size:
        raise UsageError(f"the window is moved on by {stride} pieces, but has {size}; give a smaller stride.")
    bos = scorer.tokenizer.bos_token_id if scorer.causal and window.start else None
    n = len(text.ids)
    for begin, end, low, high in _spans(n, size, stride, causal=scorer.causal):
        start = [bos] if bos is not None and not begin and text.ids[:1] != [bos] else []
        before = [*text.before, *start]
        last = [text.ids[-1]] if spaces and end == n else []  # any piece: a causal model never reads its last one
        ids = [*before, *text.ids[begin:end], *last, *text.after]
        place = np.arange(low, high + len(last))
        place = place[len(before) + place - begin >= scorer.causal]
        if len(place):
            words = [*(None for _ in before), *text.own[begin:end], *(None for _ in (*last, *text.after))]
            yield Reading(ids, (len(before) + place - begin).tolist(), words, ""), place


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


def _beginning(scorer: Scorer) -> np.ndarray:
    """The pieces of the vocabulary that begin with the tokenizer's mark of a space, such as ``Ġthe`` and ``▁the``."""
    tokenizer: Any = scorer.tokenizer
    ids = tokenizer(" ", add_special_tokens=False)["input_ids"]
    mark = tokenizer.convert_ids_to_tokens(ids[0])[:1] if ids else ""
    if not scorer.causal or mark not in ("Ġ", "▁"):
        raise UsageError(
            f"{scorer.spec['model']} has no pieces that begin with a space, or is no causal model; leave out "
            "--space-after."
        )
    return np.array(sorted(i for piece, i in tokenizer.get_vocab().items() if piece[:1] == mark), dtype=np.int64)
