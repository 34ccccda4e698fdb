"""What every task model shares: hidden states in; logits, a loss and predictions out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.tasks.task import TaskKind

__all__ = ["IGNORED", "Head", "States"]

IGNORED = -100
"""The label of what is no word, or a word without a label, as torch's cross-entropy and transformers count it."""


@dataclass(frozen=True, slots=True)
class States:
    """Hidden states of a batch of sequences of word pieces, padded on the right.

    Attributes
    ----------
    hidden : Tensor
        Float (b, t, d); whatever at padding.
    mask : Tensor
        Bool (b, t), what is no padding.
    special : Tensor
        Bool (b, t), pieces that the tokenizer added ([CLS], <s> …); False at padding.
    words : Tensor, optional
        int64 (b, w), the first piece of each word, -1 at padding; of token-labelled tasks only.
    second : States, optional
        The second sentences, where pairs were read apart.
    pooled : Tensor, optional
        Float (b, d), what the encoder's own pooler makes of the sequence, where it has one.
    """

    hidden: Tensor
    mask: Tensor
    special: Tensor
    words: Tensor | None = None
    second: States | None = None
    pooled: Tensor | None = None

    def first_pieces(self) -> Tensor:
        """Hidden states of the words' first pieces, (b, w, d); of piece 0 at padding (Peters et al. 2019, A.1)."""
        return _at(self.hidden, _needed(self.words, "words"))

    def word_mask(self) -> Tensor:
        """bool (b, w), what is a word and no padding."""
        return _needed(self.words, "words") >= 0


class Head(nn.Module):
    """A task model on top of hidden states.

    Attributes
    ----------
    kinds : ClassVar[frozenset[TaskKind]], default frozenset()
        What it can predict.
    pairs : ClassVar[frozenset[str | None]], optional
        What it reads: None single sequences, "joint" pairs in one sequence, "separate" pairs read apart.
    """

    kinds: ClassVar[frozenset[TaskKind]] = frozenset()
    pairs: ClassVar[frozenset[str | None]] = frozenset({None, "joint"})

    def forward(self, states: States) -> Tensor:
        """Logits: (b, k); (b, 1) of a number; (b, w, k) of word tags."""
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        """Mean cross-entropy of int64 labels in nats, ``IGNORED`` ones left out; mean squared error of numbers."""
        if labels.is_floating_point():
            return functional.mse_loss(logits.squeeze(-1), labels)
        gold = labels.flatten()
        total = functional.cross_entropy(logits.flatten(0, -2), gold, ignore_index=IGNORED, reduction="sum")
        return total / (gold != IGNORED).sum().clamp_min(1)  # of no labels at all 0

    def predict(self, logits: Tensor, states: States) -> Tensor:
        """Classes (b,), numbers (b,), or tags (b, w) with ``IGNORED`` at padding."""
        if logits.shape[-1] == 1:
            return logits.squeeze(-1)
        classes = logits.argmax(-1)
        return classes if states.words is None else classes.masked_fill(~states.word_mask(), IGNORED)

    def probabilities(self, logits: Tensor) -> Tensor | None:
        """Of the classes, float32, of the shape of the logits; None where single labels have none."""
        return None if logits.shape[-1] == 1 else logits.float().softmax(-1)


def _at(hidden: Tensor, index: Tensor) -> Tensor:
    return torch.gather(hidden, 1, index.clamp_min(0).unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))


def _needed(value: Tensor | None, name: str) -> Tensor:
    if value is None:
        raise ValueError(f"the states have no {name}; they belong to another kind of task.")
    return value
