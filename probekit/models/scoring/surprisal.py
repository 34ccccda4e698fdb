"""Log-probabilities of the pieces of texts of any length, and of the words that they make up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.models.scoring.reading import Reading, Window, cut_texts, windows
from probekit.models.scoring.scorer import Score, Scorer
from probekit.models.transformers.tokens import between_blanks
from probekit.runtime import Progress, no_progress


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
    window: Window,
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
    cut = cut_texts(scorer.tokenizer, texts, causal=scorer.causal)
    among = _beginning(scorer) if spaces else None
    bos = scorer.tokenizer.bos_token_id if scorer.causal and window.start else None
    readings, places = list[Reading](), list[tuple[int, np.ndarray]]()
    for i, text in enumerate(cut):
        for reading, place in windows(text, window, scorer.max_length, causal=scorer.causal, bos=bos, more=spaces):
            readings.append(reading)
            places.append((i, place))
    nats = [np.full((len(text.ids) + spaces, 1 + spaces), np.nan) for text in cut]
    for (i, place), found in zip(places, scorer.pieces(readings, score, among=among, progress=progress), strict=True):
        nats[i][place] = found
    return [
        Pieces(
            np.array(text.ids, dtype=np.int64), text.start, text.end, between_blanks(whole, text.start, text.end),
            found[: len(text.ids), 0], found[:, 1] if spaces else None,
        )
        for whole, text, found in zip(texts, cut, nats, strict=True)
    ]  # fmt: skip


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
