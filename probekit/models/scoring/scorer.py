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
from probekit.models.transformers.tokens import between_blanks, finds_words
from probekit.runtime import Progress, no_progress


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
        wanted = tuple(dict.fromkeys(self._own(score) for score in scores or self.scores))
        readings = self._readings(texts, start=start)
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
        texts = [before + after for before, after in zip(prefixes, continuations, strict=True)]
        readings = self._readings(texts, start=start, since=[len(before) for before in prefixes])
        found = self._sums(readings, [wanted], layers=False, progress=progress)[0, :, 0]
        return found / [len(one.wanted) for one in readings] if wanted is Score.MEAN else found

    def readable(self, texts: Sequence[str], *, start: bool = True) -> np.ndarray:
        """Which sentences the model can score, bool (n,): not longer than it reads, and with a piece to predict."""
        found = read(self.tokenizer, texts, self.max_length, causal=self.causal, start=start, since=None)
        return np.array([not one.problem for one in found], dtype=bool)

    def _own(self, name: Score | str) -> Score:
        if name not in self.scores:
            kind = "causal" if self.causal else "masked"
            raise UsageError(f"{name} is not a score of {kind} language models; they have {', '.join(self.scores)}.")
        return Score(name)

    def _readings(self, texts: Sequence[str], *, start: bool, since: Sequence[int] | None = None) -> list[Reading]:
        found = read(self.tokenizer, texts, self.max_length, causal=self.causal, start=start, since=since)
        for text, one in zip(texts, found, strict=True):
            if one.problem:
                error = UsageError if not one.wanted else TruncationError
                raise error(f"the text {text[:60]!r}{' …' * (len(text) > 60)} {one.problem}; leave it out.")
        return found

    def _sums(
        self, readings: Sequence[Reading], scores: Sequence[Score], *, layers: bool, progress: Progress
    ) -> np.ndarray:
        """The summed log-probabilities, float64 (scores or 1 if causal, texts, layers)."""
        most, queries = self.batch_tokens, list[Query]()
        if self.causal:
            queries += causal_queries(readings, most, alike=self.head.by_length)
        else:
            whole = [score is Score.PLL_WORD for score in scores]
            queries += masked_queries(readings, int(self.tokenizer.mask_token_id), most, whole)
        nats = np.zeros((1 if self.causal else len(scores), len(readings), self.head.depth + 1 if layers else 1))
        device, total, done = self.head.model.device, sum(len(query.ids) for query in queries), 0
        with torch.inference_mode():
            for query in queries:
                states = self.head.layers(torch.from_numpy(query.ids).to(device), last_only=not layers)
                row, at, piece = (torch.from_numpy(x).to(device) for x in (query.row, query.at, query.piece))
                for layer, of_layer in enumerate(states):
                    found = self._predicted(of_layer[row, at], piece).numpy()
                    for sums, counts in zip(nats, query.counts.T, strict=True):
                        sums[:, layer] += np.bincount(query.text, found * counts, len(sums))
                done += len(query.ids)
                progress("sequences", done, total)
        return nats

    def _predicted(self, states: Tensor, piece: Tensor) -> Tensor:
        """The log-probability of a piece for each state, float64 (m,)."""
        step = max(1, LOGITS_AT_ONCE // self.head.config.vocab_size)
        step = min(step, ROWS_AT_ONCE) if states.device.type == "cpu" else step
        parts = []
        for some, wanted in zip(states.split(step), piece.split(step), strict=True):
            logits = self.head.logits(some)
            logits -= logits.amax(1, keepdim=True)  # so that sizes of logits are not rounded into their differences
            own = logits.gather(1, wanted[:, None])[:, 0].cpu().double()
            parts.append(own - logits.exp_().sum(1).cpu().double().log())
        return torch.cat(parts)
