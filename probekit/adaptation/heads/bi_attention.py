"""Pooled attention across the sentences of a pair, without parameters."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from probekit.adaptation.heads.attention import cross_attend, mean_and_max, sentences
from probekit.adaptation.heads.head import Head, States
from probekit.tasks.task import TaskKind

__all__ = ["BiAttention"]


class BiAttention(Head):
    """The fine-tuning head of Peters, Ruder & Smith (2019) for pairs that the encoder reads separately.

    Each sentence is aligned with the other, enhanced and pooled as in ESIM; dropout and a single layer with parameters
    follow. Special pieces are left out, as in the poolings ``mean`` and ``max``.
    """

    kinds: ClassVar = frozenset({TaskKind.CLASSIFICATION, TaskKind.REGRESSION})
    pairs: ClassVar = frozenset({"separate", "joint"})

    def __init__(self, width: int, outputs: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(16 * width, outputs)

    def forward(self, states: States) -> Tensor:
        both = sentences(states)
        masks = [s.mask & ~s.special for s in both]
        hidden = [s.hidden.masked_fill(~m.unsqueeze(-1), 0.0) for s, m in zip(both, masks, strict=True)]
        enhanced = cross_attend(*hidden, *masks)
        vector = [mean_and_max(sentence, mask) for sentence, mask in zip(enhanced, masks, strict=True)]
        return self.output(self.dropout(torch.cat(vector, -1)))
