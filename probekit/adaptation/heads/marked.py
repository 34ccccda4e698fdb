"""Classes of marked words, such as a word in two sentences (Wang et al. 2019, section 5.1)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from probekit.adaptation.heads.head import Head, States
from probekit.tasks.task import TaskKind

__all__ = ["Marked", "span_means"]


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
