"""Attention across the sentences of a pair, pooled, with no parameters of its own."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from probekit.adaptation.heads.attention import cross_attend, mean_and_max, sentences
from probekit.adaptation.heads.head import Head, States
from probekit.tasks.task import TaskKind

__all__ = ["BiAttention"]


class BiAttention(Head):
    """The fine-tuning head of Peters, Ruder & Smith (2019) for pairs, there of an encoder that reads them apart.

    Each sentence is aligned with the other, enhanced and pooled as in ESIM; then come dropout and the one layer with
    parameters. The pieces that the tokenizer added are left out, as the poolings ``mean`` and ``max`` do.
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
