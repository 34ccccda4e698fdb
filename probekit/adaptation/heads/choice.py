"""One of several texts: a score for each, and a softmax over them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from probekit.adaptation.heads.head import Head, States
from probekit.adaptation.heads.linear import pooled
from probekit.tasks.task import TaskKind

__all__ = ["Choice"]


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
