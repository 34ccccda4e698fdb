"""Pairs of sentences against the other pairs of their batch: replies, translations, paraphrases.

These heads need no labels: they ignore those that they receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from probekit.adaptation.heads.attention import sentences
from probekit.adaptation.heads.head import Head, States
from probekit.adaptation.heads.linear import known_pooling, pooled
from probekit.adaptation.heads.max_mlp import MaxMLP, matched
from probekit.errors import UsageError


class ResponseHead(MaxMLP):
    """Whether the second sentence of a pair is the reply to the first one, or that of another pair.

    Each pair has one distractor: the reply of the next pair in the batch, and for the last pair that of the first. For
    Bowman et al. (2018), jiant rotates replies by two, which gives both pairs of a batch of two their own reply again.
    A pair by itself has no distractor.

    Attributes
    ----------
    hidden_size, dropout
        As in :class:`~probekit.adaptation.heads.max_mlp.MaxMLP`.
    """

    pairs: ClassVar = frozenset({"separate"})

    def __init__(self, width: int, *, hidden_size: int | Sequence[int] = 512, dropout: float = 0.2) -> None:
        super().__init__(width, 2, hidden_size=hidden_size, dropout=dropout, apart=True)

    def forward(self, states: States) -> Tensor:
        """Logits of the classes 0 (distractor) and 1 (reply), (b, 2, 2): for each pair, then for its distractor."""
        u, v = (self._pooled(s) for s in sentences(states))
        replies = (v, v.roll(-1, 0))[: len(v)]
        return self.output(torch.stack([matched(u, reply) for reply in replies], 1))

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        """Mean cross-entropy of pairs and distractors in nats."""
        return functional.cross_entropy(logits.flatten(0, 1), self._classes(logits).flatten())

    def predict(self, logits: Tensor, states: States) -> Tensor:
        """The share (b,) of right classes for a pair and its distractor; the mean over pairs is the accuracy."""
        return (logits.argmax(-1) == self._classes(logits)).float().mean(1)

    def _classes(self, logits: Tensor) -> Tensor:
        return torch.tensor([1, 0], device=logits.device)[: logits.shape[1]].expand(logits.shape[:2])


class ContrastiveHead(Head):
    """The second sentence of each pair against those of all other pairs in the batch.

    The logits are cosine similarities of pooled vectors times ``scale``, and the loss is the cross-entropy of a pair's
    second sentence given its first one: SimCSE (Gao et al. 2021, eq. 5, without hard negatives; temperature .05) and
    ``MultipleNegativesRankingLoss`` of sentence-transformers (Henderson et al. 2017). The head has no weights.

    Attributes
    ----------
    pooling : str, default 'mean'
        One of :data:`~probekit.adaptation.heads.linear.POOLINGS`.
    scale : float, default 20.0
        Inverse temperature.
    """

    pairs: ClassVar = frozenset({"separate"})

    def __init__(self, *, pooling: str = "mean", scale: float = 20.0) -> None:
        super().__init__()
        if not scale > 0:
            raise UsageError(f"scale is {scale}; expected a number above 0.")
        self.pooling, self.scale = known_pooling(pooling), scale

    def forward(self, states: States) -> Tensor:
        """Scaled similarities (b, b) of first sentences (rows) and second sentences (columns)."""
        u, v = (functional.normalize(pooled(s, self.pooling), dim=-1) for s in sentences(states))
        return self.scale * (u @ v.T)

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        """Mean cross-entropy in nats; 0 for a pair by itself."""
        return functional.cross_entropy(logits, torch.arange(len(logits), device=logits.device))

    def predict(self, logits: Tensor, states: States) -> Tensor:
        """1.0 where a pair's own second sentence is the most similar one, else 0.0 (b,); the mean is the accuracy."""
        return (logits.argmax(-1) == torch.arange(len(logits), device=logits.device)).float()
