"""Scores of sentences by a language model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probekit.errors import TruncationError, UsageError
from probekit.models.scoring.head import Head
from probekit.runtime import Progress, no_progress

__all__ = ["Score", "Scorer"]

LOGITS_AT_ONCE = 1 << 26
"""Numbers in the log-probabilities that are held at once."""


class Score(StrEnum):
    """How a sentence gets a number, from the log-probabilities of its pieces (nats)."""

    LOG_PROBABILITY = "log-probability"  # causal: the sum
    MEAN = "mean-log-probability"  # causal: per piece
    PLL = "pll"  # masked: each piece masked in turn, summed (Salazar et al. 2020)
    PLL_WORD = "pll-word"  # and with it the pieces of its word that follow (Kauf & Ivanova 2023)

    @property
    def causal(self) -> bool:
        """Whether causal models have it; the others are for masked models."""
        return self in (Score.LOG_PROBABILITY, Score.MEAN)


@dataclass(frozen=True, slots=True)
class _Query:
    """Sequences of one length to read, and pieces to predict: ``piece[k]`` from state ``at[k]`` of ``row[k]``."""

    ids: np.ndarray
    row: np.ndarray
    at: np.ndarray
    piece: np.ndarray
    text: np.ndarray


class Scorer:
    """A language model that scores sentences; made by :func:`probekit.models.scoring.load_scorer`.

    Attributes
    ----------
    head : Head
        The model, whose head can be applied to each layer.
    causal : bool
        Whether it predicts the next piece; otherwise it predicts masked pieces.
    spec : mapping
        What identifies the model.
    """

    def __init__(
        self, head: Head, tokenizer: Any, max_length: int, *, causal: bool, spec: Mapping[str, Any], batch_tokens: int
    ) -> None:
        self.head, self.tokenizer, self.max_length = head, tokenizer, max_length
        self.causal, self.spec, self.batch_tokens = causal, dict(spec), batch_tokens

    @property
    def scores(self) -> tuple[Score, ...]:
        """The scores that this model has."""
        return tuple(score for score in Score if score.causal is self.causal)

    def score(
        self,
        texts: Sequence[str],
        scores: Sequence[Score | str] | None = None,
        *,
        layers: bool = False,
        start: bool = True,
        progress: Progress = no_progress,
    ) -> dict[Score, np.ndarray]:
        """Scores of sentences, in nats.

        Parameters
        ----------
        texts : sequence of str
            n sentences.
        scores : sequence of Score, optional
            Which scores (default: all that the model has).
        layers : bool, default False
            Whether the model's head also reads the states of each layer (the logit lens).
        start : bool, default True
            Whether a causal model reads its piece for the beginning first, if its tokenizer has one, so that the first
            piece of the sentence has a probability too; otherwise it is given.
        progress : callable
            Receives the number of sequences that were read.

        Returns
        -------
        dict
            By score: float64 (n, 1), or with ``layers`` (n, L + 1), from layer 0; the last column is the model's own.

        Raises
        ------
        UsageError
            For a score of another kind of models, and a sentence without a piece to predict.
        TruncationError
            If a sentence has more pieces than the model reads.
        """
        wanted = tuple(dict.fromkeys(Score(score) for score in scores or self.scores))
        for score in wanted:
            if score.causal is not self.causal:
                kind = "causal" if self.causal else "masked"
                raise UsageError(
                    f"{score} is not a score of {kind} language models; they have {', '.join(self.scores)}."
                )
        if self.causal:
            nats, count = self._sums(self._causal(texts, start=start), len(texts), layers=layers, progress=progress)
            found = {Score.LOG_PROBABILITY: nats, Score.MEAN: nats / count[:, None]}
            return {score: found[score] for score in wanted}
        masked = {}
        for score in wanted:
            queries = self._masked(texts, words=score is Score.PLL_WORD)
            masked[score], _ = self._sums(queries, len(texts), layers=layers, progress=progress)
        return masked

    def readable(self, texts: Sequence[str], *, start: bool = True) -> np.ndarray:
        """Which sentences the model can score, bool (n,): not longer than it reads, and with a piece to predict."""
        first = 1 if self.causal and start and self.tokenizer.bos_token_id is not None else 0
        found = self._encoded(texts, special=not self.causal)
        given = [sum(map(bool, one.special_tokens_mask)) for one in found]
        least = [2 - first if self.causal else given_pieces + 1 for given_pieces in given]
        return np.array(
            [low <= len(one.ids) <= self.max_length - first for low, one in zip(least, found, strict=True)], dtype=bool
        )

    def _encoded(self, texts: Sequence[str], *, special: bool) -> list[Any]:
        backend = self.tokenizer.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        return list(backend.encode_batch(list(texts), add_special_tokens=special))

    def pieces(self, texts: Sequence[str], *, special: bool) -> list[Any]:
        """The encoding of each text; raises TruncationError if one is too long."""
        found = self._encoded(texts, special=special)
        room = self.max_length - (0 if special else 1)
        for text, one in zip(texts, found, strict=True):
            if len(one.ids) > room:
                raise TruncationError(
                    f"a sentence has {len(one.ids)} pieces, but the model reads {room}: {text[:60]!r} … Leave it out."
                )
        return found

    def _causal(self, texts: Sequence[str], *, start: bool) -> Iterator[_Query]:
        """Each sentence once; state t predicts piece t + 1."""
        first = self.tokenizer.bos_token_id if start else None
        before = [] if first is None else [int(first)]
        sequences = [np.array([*before, *one.ids], dtype=np.int64) for one in self.pieces(texts, special=False)]
        for text, ids in zip(texts, sequences, strict=True):
            if len(ids) < 2:
                raise UsageError(f"the sentence {text!r} has no piece to predict after the first one; leave it out.")
        for some in _batches([len(ids) for ids in sequences], self.batch_tokens):
            ids = np.stack([sequences[i] for i in some])
            row = np.repeat(np.arange(len(some)), ids.shape[1] - 1)
            at = np.tile(np.arange(ids.shape[1] - 1), len(some))
            yield _Query(ids[:, :-1], row, at, ids[row, at + 1], np.array(some)[row])

    def _masked(self, texts: Sequence[str], *, words: bool) -> Iterator[_Query]:
        """Each sentence once for each of its pieces, which is masked; with ``words`` the rest of its word is too."""
        mask, found = int(self.tokenizer.mask_token_id), self.pieces(texts, special=True)
        rows: list[tuple[int, int, list[int]]] = []
        for i, one in enumerate(found):
            places = [t for t, special in enumerate(one.special_tokens_mask) if not special]
            if not places:
                raise UsageError(f"the sentence {texts[i]!r} has no piece to predict; leave it out.")
            for t in places:
                word = one.word_ids[t]
                rest = [u for u in places if u > t and word is not None and one.word_ids[u] == word] if words else []
                rows.append((i, t, [t, *rest]))
        for some in _batches([len(found[i].ids) for i, _, _ in rows], self.batch_tokens):
            chosen = [rows[k] for k in some]
            ids = np.array([found[i].ids for i, _, _ in chosen], dtype=np.int64)
            at = np.array([t for _, t, _ in chosen])
            piece = ids[np.arange(len(ids)), at]
            for row, (_, _, hidden) in enumerate(chosen):
                ids[row, hidden] = mask
            yield _Query(ids, np.arange(len(ids)), at, piece, np.array([i for i, _, _ in chosen]))

    def _sums(
        self, queries: Iterator[_Query], n: int, *, layers: bool, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """The summed log-probabilities of the pieces of each text, (n, layers), and their number (n,)."""
        nats = np.zeros((n, self.head.depth + 1 if layers else 1))
        count, every, done = np.zeros(n), list(queries), 0
        device = self.head.model.device
        total = sum(len(query.ids) for query in every)
        with torch.inference_mode():
            for query in every:
                states = self.head.layers(torch.from_numpy(query.ids).to(device), last_only=not layers)
                row, at, piece = (torch.from_numpy(x).to(device) for x in (query.row, query.at, query.piece))
                for layer, of_layer in enumerate(states):
                    found = self._predicted(of_layer[row, at], piece)
                    np.add.at(nats[:, layer], query.text, found.double().cpu().numpy())
                np.add.at(count, query.text, 1)
                done += len(query.ids)
                progress("sequences", done, total)
        return nats, count

    def _predicted(self, states: Tensor, piece: Tensor) -> Tensor:
        """The log-probability of a piece for each state, (m,)."""
        step = max(1, LOGITS_AT_ONCE // self.head.model.config.vocab_size)
        parts = [
            self.head.log_probabilities(states[i : i + step]).gather(1, piece[i : i + step, None])[:, 0]
            for i in range(0, len(states), step)
        ]
        return torch.cat(parts)


def _batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Indices of sequences of one length, at most ``most`` pieces (or one sequence) together; short ones first."""
    order = np.argsort(np.asarray(lengths), kind="stable")
    at = 0
    while at < len(order):
        n = lengths[order[at]]
        size = max(1, most // max(n, 1))
        some = [int(i) for i in order[at : at + size] if lengths[i] == n]
        yield some
        at += len(some)
