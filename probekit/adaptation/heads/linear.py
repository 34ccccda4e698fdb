"""Linear layers on vectors: of whole sequences, of each choice, and of marked words."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from probekit.activations.pooling import Pooling
from probekit.adaptation.heads.attention import maximum, sentences
from probekit.adaptation.heads.head import Head, States, mean_of
from probekit.errors import UsageError
from probekit.tasks.task import TaskKind

POOLINGS = ("pooler", *Pooling)
"""The encoder's pooler, and the poolings of a cache."""


class Linear(Head):
    """Dropout and a linear layer on one vector per sequence: the usual head for fine-tuning.

    With ``pooling="max"`` it is the head of Peters, Ruder & Smith (2019) for sentence classification. For separately
    encoded pairs (``apart``), it reads [u; v; |u - v|; u * v] (Conneau et al. 2017, 3.1). With ``windows`` it reads the
    mean or the maximum of the vectors of a document's windows (hierarchical; Sun et al. 2019, 5.3.1).
    """

    pairs: ClassVar = frozenset({None, "joint", "separate"})

    def __init__(
        self, width: int, outputs: int, *, pooling: str = "mean", dropout: float = 0.1, apart: bool = False,
        windows: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.pooling, self.apart, self.windows = known_pooling(pooling), apart, windows
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width * (4 if apart else 1), outputs)

    def forward(self, states: States) -> Tensor:
        vector = pooled(states, self.pooling)
        if self.apart:
            other = pooled(sentences(states)[1], self.pooling)
            vector = torch.cat([vector, other, (vector - other).abs(), vector * other], -1)
        if self.windows is not None and states.sequences is not None:
            vector = mean_of(vector, states.sequences) if self.windows == "mean" else _highest(vector, states.sequences)
        return self.output(self.dropout(vector))

    def of_examples(self, logits: Tensor, states: States) -> Tensor:
        return super().of_examples(logits, states) if self.windows is None else logits


def _highest(values: Tensor, sequences: Tensor) -> Tensor:
    """Maxima (e, d) of the values (b, d) of each example's sequences, (e, k) with -1 at padding."""
    lowest = torch.finfo(values.dtype).min
    return values[sequences.clamp_min(0)].masked_fill((sequences < 0).unsqueeze(-1), lowest).amax(1)


def known_pooling(pooling: str) -> str:
    """The pooling; raises UsageError for an unknown one."""
    if pooling not in POOLINGS:
        raise UsageError(f"unknown pooling {pooling!r}; the poolings are {', '.join(POOLINGS)}.")
    return pooling


def pooled(states: States, pooling: str) -> Tensor:
    """One vector per sequence, (b, d); :class:`~probekit.activations.Pooling` describes the poolings.

    Raises
    ------
    UsageError
        For ``pooler`` if the encoder has none.
    """
    if pooling == "pooler":
        if states.pooled is None:
            raise UsageError("this encoder has no pooler; choose another pooling: " + ", ".join(Pooling) + ".")
        return states.pooled
    hidden, mask = states.hidden, states.mask
    if pooling == Pooling.FIRST:
        return hidden[:, 0]
    if pooling == Pooling.LAST:
        return hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1).clamp_min(1) - 1]
    kept = mask if pooling == Pooling.MEAN_ALL else mask & ~states.special
    count = kept.sum(1, keepdim=True)
    if pooling == Pooling.MAX:
        return maximum(hidden, kept)
    return hidden.masked_fill(~kept.unsqueeze(-1), 0.0).sum(1) / count.clamp_min(1)


class Choice(Head):
    """A linear layer from the vector of text and choice, read as one sequence, to a score (Wang et al. 2019, 4.1).

    transformers' ForMultipleChoice is the same with ``pooling="pooler"``.
    """

    kinds: ClassVar = frozenset({TaskKind.MULTIPLE_CHOICE})

    def __init__(self, width: int, outputs: int, *, pooling: str = "mean", dropout: float = 0.1) -> None:
        super().__init__()
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, 1)

    def forward(self, states: States) -> Tensor:
        """Scores (b,) of the sequences."""
        return self.output(self.dropout(pooled(states, self.pooling))).squeeze(-1)

    def of_examples(self, logits: Tensor, states: States) -> Tensor:
        """Scores (e, k) of each example's choices, the lowest number where it has fewer."""
        assert states.sequences is not None
        scores = logits[states.sequences.clamp_min(0)]
        return scores.masked_fill(states.sequences < 0, torch.finfo(scores.dtype).min)


class Marked(Head):
    """A linear layer on the first piece ([CLS]) and the vector of each marked word, the mean of its pieces.

    This is the baseline of SuperGLUE for WiC. For separately encoded pairs (``apart``) it reads [u; v; |u - v|; u * v]
    of the two words (Conneau et al. 2017, 3.1).
    """

    kinds: ClassVar = frozenset({TaskKind.CLASSIFICATION, TaskKind.REGRESSION})
    pairs: ClassVar = frozenset({None, "joint", "separate"})

    def __init__(self, width: int, outputs: int, *, marked: int = 2, dropout: float = 0.1, apart: bool = False) -> None:
        super().__init__()
        self.apart = apart
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width * (4 if apart else 1 + marked), outputs)

    def forward(self, states: States) -> Tensor:
        words = span_means(states)
        if self.apart:
            assert states.second is not None
            u, v = words[:, 0], span_means(states.second)[:, 0]
            vector = torch.cat([u, v, (u - v).abs(), u * v], -1)
        else:
            vector = torch.cat([states.hidden[:, :1], words], 1).flatten(1)
        return self.output(self.dropout(vector))


def span_means(states: States) -> Tensor:
    """The mean of the pieces of each marked word, (b, k, d)."""
    if states.spans is None:
        raise ValueError("the states have no spans; they come from a task without marked words.")
    place = torch.arange(states.hidden.shape[1], device=states.hidden.device)
    inside = (place >= states.spans[..., :1]) & (place < states.spans[..., 1:])  # (b, k, t)
    weight = inside.to(states.hidden.dtype)
    hidden = states.hidden.masked_fill(~states.mask.unsqueeze(-1), 0)  # anything may be at padding
    return (weight @ hidden) / weight.sum(-1, keepdim=True).clamp_min(1)
