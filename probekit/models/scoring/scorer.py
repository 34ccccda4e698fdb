"""Scores of sentences by a language model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probekit.errors import TruncationError, UsageError
from probekit.models.scoring.head import Head
from probekit.models.scoring.reading import Query, Reading, causal_queries, masked_queries, read
from probekit.runtime import Progress, no_progress

LOGITS_AT_ONCE = 1 << 26
ROWS_AT_ONCE = 256
"""Numbers in the logits that are held at once; on a processor at most so many rows, which stay in its cache."""


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
        prefixes: Sequence[str] | None = None,
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
        prefixes : sequence of str, optional
            n texts that stand before the sentences, as in :meth:`continuations`.
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
        wanted = tuple(dict.fromkeys(self._own(score) for score in scores or self.scores))
        readings = self._readings(texts, prefixes, start=start)
        sums = self._sums(readings, wanted, layers=layers, progress=progress)
        if not self.causal:
            return dict(zip(wanted, sums, strict=True))
        pieces = np.array([len(one.wanted) for one in readings])[:, None]
        return {score: sums[0] / pieces if score is Score.MEAN else sums[0] for score in wanted}

    def continuations(
        self,
        prefixes: Sequence[str],
        continuations: Sequence[str],
        score: Score | str | None = None,
        *,
        start: bool = True,
        progress: Progress = no_progress,
    ) -> np.ndarray:
        """The score of each continuation after its prefix, such as " Yes" after a question.

        Prefix and continuation are cut into pieces together, as one text. The pieces of the continuation are those with
        at least one of its characters. So a space between the two may stand at the end of the prefix or the beginning
        of the continuation, and a piece that reaches over the boundary counts as a whole.

        Parameters
        ----------
        prefixes, continuations : sequence of str
            n texts each; a prefix may be "".
        score : Score, optional
            By default "log-probability", the sum over the pieces of the continuation given all pieces before them; for
            masked models "pll", where each of them is masked in turn.
        start : bool, default True
            As for :meth:`score`; a prefix that begins with the piece for the beginning, as chat templates do, gets no
            second one.
        progress : callable
            Receives the number of sequences that were read.

        Returns
        -------
        np.ndarray
            float64 (n,), nats.

        Raises
        ------
        UsageError
            For a score of another kind of models, and a continuation without a piece to predict.
        TruncationError
            If both together have more pieces than the model reads.

        Examples
        --------
        >>> scorer.continuations(["2 + 2 = 4?"] * 2, [" Yes", " No"])  # doctest: +SKIP
        """
        wanted = self._own(score or self.scores[0])
        found = self.score(continuations, [wanted], prefixes=prefixes, start=start, progress=progress)
        return found[wanted][:, 0]

    def scored(self, texts: Sequence[str], prefixes: Sequence[str] | None = None, *, start: bool = True) -> np.ndarray:
        """How many pieces of each sentence are predicted, int64 (n,); 0 if the model cannot score it.

        It cannot score a sentence that is longer than it reads, or has no piece to predict.
        """
        found = self._read(texts, prefixes, start=start)
        return np.array([0 if one.problem else len(one.wanted) for one in found], dtype=np.int64)

    def _own(self, name: Score | str) -> Score:
        if name not in self.scores:
            kind = "causal" if self.causal else "masked"
            raise UsageError(f"{name} is not a score of {kind} language models; they have {', '.join(self.scores)}.")
        return Score(name)

    def _read(self, texts: Sequence[str], prefixes: Sequence[str] | None, *, start: bool) -> list[Reading]:
        since = None if prefixes is None else [len(before) for before in prefixes]
        whole = texts if prefixes is None else [before + text for before, text in zip(prefixes, texts, strict=True)]
        return read(self.tokenizer, whole, self.max_length, causal=self.causal, start=start, since=since)

    def _readings(self, texts: Sequence[str], prefixes: Sequence[str] | None, *, start: bool) -> list[Reading]:
        found = self._read(texts, prefixes, start=start)
        for text, one in zip(texts, found, strict=True):
            if one.problem:
                error = UsageError if not one.wanted else TruncationError
                raise error(f"the text {text[:60]!r}{' …' * (len(text) > 60)} {one.problem}; leave it out.")
        return found

    def _sums(
        self, readings: Sequence[Reading], scores: Sequence[Score], *, layers: bool, progress: Progress
    ) -> np.ndarray:
        """The summed log-probabilities, float64 (scores or 1 if causal, texts, layers)."""
        nats = np.zeros((1 if self.causal else len(scores), len(readings), self.head.depth + 1 if layers else 1))
        for query, found in self._queried(readings, scores, layers=layers, progress=progress):
            for sums, counts in zip(nats, query.counts.T, strict=True):
                for layer, of_layer in enumerate(found):
                    sums[:, layer] += np.bincount(query.text, of_layer[:, 0] * counts, len(sums))
        return nats

    def pieces(
        self,
        readings: Sequence[Reading],
        score: Score | str,
        *,
        among: np.ndarray | None = None,
        progress: Progress = no_progress,
    ) -> list[np.ndarray]:
        """The log-probability of each wanted piece of each reading, float64 (wanted, 1), in nats.

        Parameters
        ----------
        readings : sequence of Reading
            The sequences, none of which has a problem.
        score : Score or str
            How pieces of a masked model are masked; for causal models any of theirs.
        among : np.ndarray, optional
            Pieces of the vocabulary; the second column, (wanted, 2), is then the log-probability that one of them
            stands in the place.
        progress : callable
            Receives the number of sequences that were read.
        """
        found = [np.empty((len(one.wanted), 1 if among is None else 2)) for one in readings]
        for query, nats in self._queried(readings, [self._own(score)], among=among, progress=progress):
            for text in np.unique(query.text).tolist():
                mine = query.text == text
                place = np.searchsorted(readings[text].wanted, query.at[mine] + self.causal)
                found[text][place] = nats[0, mine]
        return found

    def _queried(
        self,
        readings: Sequence[Reading],
        scores: Sequence[Score],
        *,
        layers: bool = False,
        among: np.ndarray | None = None,
        progress: Progress,
    ) -> Iterator[tuple[Query, np.ndarray]]:
        """Each batch, and the log-probabilities of its pieces, float64 (layers, m, 1 or 2)."""
        most, queries = self.batch_tokens, list[Query]()
        if self.causal:
            queries += causal_queries(readings, most, alike=self.head.by_length)
        else:
            whole = [score is Score.PLL_WORD for score in scores]
            queries += masked_queries(readings, int(self.tokenizer.mask_token_id), most, whole)
        device, total, done = self.head.model.device, sum(len(query.ids) for query in queries), 0
        some = None if among is None else torch.from_numpy(among).to(device)
        for query in queries:
            with torch.inference_mode():
                states = self.head.layers(torch.from_numpy(query.ids).to(device), last_only=not layers)
                row, at, piece = (torch.from_numpy(x).to(device) for x in (query.row, query.at, query.piece))
                found = np.stack([self._predicted(layer[row, at], piece, some).numpy() for layer in states])
            yield query, found
            done += len(query.ids)
            progress("sequences", done, total)

    def _predicted(self, states: Tensor, piece: Tensor, among: Tensor | None) -> Tensor:
        """The log-probability of a piece for each state, float64 (m, 1); with ``among`` also that of any of these."""
        step = max(1, LOGITS_AT_ONCE // self.head.config.vocab_size)
        step = min(step, ROWS_AT_ONCE) if states.device.type == "cpu" else step
        parts = []
        for some, wanted in zip(states.split(step), piece.split(step), strict=True):
            logits = self.head.logits(some)
            logits -= logits.amax(1, keepdim=True)  # so that sizes of logits are not rounded into their differences
            own = logits.gather(1, wanted[:, None])[:, 0].cpu().double()
            size = logits.exp_().sum(1).cpu().double().log()
            any_of = [] if among is None else [logits[:, among].sum(1).cpu().double().log() - size]
            parts.append(torch.stack([own - size, *any_of], 1))
        return torch.cat(parts)
