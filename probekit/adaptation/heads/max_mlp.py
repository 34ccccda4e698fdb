"""The classifiers of Bowman et al. (2018): project, pool by maximum, compare, and one hidden layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from probekit.adaptation.heads.attention import attend, maximum, sentences
from probekit.adaptation.heads.bilstm import bilstm, run
from probekit.adaptation.heads.head import Head, States


class MaxMLP(Head):
    """A linear projection of each state, its maximum over the sequence, and an MLP with one hidden layer.

    The target model of Bowman et al. (2018, section 4) for sentences, and for pairs without attention. For separately
    encoded pairs, the MLP reads [u; v; |u - v|; u * v], as jiant computes it; the paper's text has u - v (Mou et al.
    2016). The MLP of jiant normalises its hidden layer.

    Attributes
    ----------
    hidden_size : int | Sequence[int], default 512
        Size of the projection and of the hidden layer; or both sizes. The paper's are 128, 256 and 512, by the amount
        of data.
    dropout : float, default 0.2
        On the states and on the hidden layer; the paper's is 0.4 for the smallest tasks.
    """

    pairs: ClassVar = frozenset({None, "joint", "separate"})

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        hidden_size: int | Sequence[int] = 512,
        dropout: float = 0.2,
        apart: bool = False,
    ) -> None:
        super().__init__()
        projected, hidden = _two(hidden_size)
        self.apart, self.dropout = apart, nn.Dropout(dropout)
        self.projection = nn.Linear(width, projected)
        self.output = _mlp(projected * (4 if apart else 1), hidden, outputs, dropout)

    def forward(self, states: States) -> Tensor:
        vector = self._pooled(states)
        return self.output(matched(vector, self._pooled(sentences(states)[1])) if self.apart else vector)

    def _pooled(self, states: States) -> Tensor:
        return maximum(self.projection(self.dropout(_blank(states))), states.mask)


class AttentionMaxMLP(Head):
    """Attention between all pairs of words, a BiLSTM over the result, and the classifier of :class:`MaxMLP`.

    The target model of Bowman et al. (2018, section 4) for the larger tasks of sentence pairs.

    Attributes
    ----------
    hidden_size : int | Sequence[int], default 512
        Size of each direction of the BiLSTM and of the hidden layer; or both sizes.
    dropout : float, default 0.2
        On the states, on those of the BiLSTM and on the hidden layer.
    """

    pairs: ClassVar = frozenset({"separate"})

    def __init__(
        self, width: int, outputs: int, *, hidden_size: int | Sequence[int] = 512, dropout: float = 0.2
    ) -> None:
        super().__init__()
        each, hidden = _two(hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.encoder = bilstm(2 * width, each)
        self.output = _mlp(8 * each, hidden, outputs, dropout)

    def forward(self, states: States) -> Tensor:
        a, b = sentences(states)
        one, two = (self.dropout(_blank(s)) for s in (a, b))
        scores = one @ two.transpose(1, 2)
        aligned = attend(scores, two, b.mask), attend(scores.transpose(1, 2), one, a.mask)
        vectors = []
        for hidden, other, mask in zip((one, two), aligned, (a.mask, b.mask), strict=True):
            encoded = run(self.encoder, torch.cat([hidden, other], -1), mask)
            vectors.append(maximum(self.dropout(encoded), mask))
        return self.output(matched(*vectors))


def _blank(states: States) -> Tensor:
    """The hidden states with 0 at padding."""
    return states.hidden.masked_fill(~states.mask.unsqueeze(-1), 0.0)


def _two(sizes: int | Sequence[int]) -> tuple[int, int]:
    first, second = (sizes, sizes) if isinstance(sizes, int) else sizes
    return first, second


def _mlp(width: int, hidden: int, outputs: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, hidden), nn.Tanh(), nn.LayerNorm(hidden), nn.Dropout(dropout), nn.Linear(hidden, outputs)
    )


def matched(u: Tensor, v: Tensor) -> Tensor:
    """Two vectors with their comparison, [u; v; |u - v|; u * v]."""
    return torch.cat([u, v, (u - v).abs(), u * v], -1)
