"""Base class of task models: from hidden states to logits, a loss and predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.tasks.task import TaskKind

IGNORED = -100
"""The label at padding and for words without a label, as in torch's cross-entropy and transformers."""


@dataclass(frozen=True, slots=True)
class States:
    """Hidden states of a batch of sequences of word pieces, padded on the right.

    Attributes
    ----------
    hidden : Tensor
        Float (b, t, d); arbitrary at padding.
    mask : Tensor
        Bool (b, t), False at padding.
    special : Tensor
        Bool (b, t), pieces that the tokenizer added ([CLS], <s> …); False at padding.
    words : Tensor, optional
        int64 (b, w), the first piece of each word, -1 at padding; only for token-labelled tasks.
    second : States, optional
        The second sentences of separately encoded pairs.
    pooled : Tensor, optional
        Float (b, d), the output of the encoder's pooler, if it has one.
    spans : Tensor, optional
        int64 (b, k, 2), the first piece of each marked word and the one after its last.
    sequences : Tensor, optional
        int64 (e, k), if each of e examples is several sequences: those of its choices or windows, -1 at padding.
    context : Tensor, optional
        Bool (b, t), the pieces in which an answer may be.
    """

    hidden: Tensor
    mask: Tensor
    special: Tensor
    words: Tensor | None = None
    second: States | None = None
    pooled: Tensor | None = None
    spans: Tensor | None = None
    sequences: Tensor | None = None
    context: Tensor | None = None

    def first_pieces(self) -> Tensor:
        """Hidden states of the words' first pieces, (b, w, d); of piece 0 at padding (Peters et al. 2019, A.1)."""
        return _at(self.hidden, _needed(self.words, "words"))

    def word_mask(self) -> Tensor:
        """bool (b, w), False at padding."""
        return _needed(self.words, "words") >= 0


class Head(nn.Module):
    """A task model on top of hidden states.

    Attributes
    ----------
    kinds : ClassVar[frozenset[TaskKind]], default frozenset()
        The kinds of tasks it can predict.
    pairs : ClassVar[frozenset[str | None]], optional
        The inputs it can read: None for single sequences, "joint" for pairs in one sequence, "separate" for separately
        encoded pairs.
    kind : TaskKind, optional
        The kind of task that it was made for.
    """

    kinds: ClassVar[frozenset[TaskKind]] = frozenset(
        {TaskKind.CLASSIFICATION, TaskKind.REGRESSION, TaskKind.MULTI_LABEL, TaskKind.MULTI_OUTPUT}
    )
    pairs: ClassVar[frozenset[str | None]] = frozenset({None, "joint"})
    kind: TaskKind | None = None

    def attach(self, encoder: Any) -> None:
        """Share weights with the encoder that it is trained with."""

    def forward(self, states: States) -> Tensor:
        """Logits: (b, k), for several labels or numbers one of each; (b, 1) for a number; (b, w, k) for word tags."""
        raise NotImplementedError

    def of_examples(self, logits: Tensor, states: States) -> Tensor:
        """Logits of the examples from those of their sequences: the mean over the windows of each text."""
        return logits if states.sequences is None else mean_of(logits, states.sequences)

    def alternatives(self, logits: Tensor) -> Tensor:
        """Logits (…, classes) between which each prediction decides; (…, 1) for numbers.

        Each of several labels holds or not: (b, k, 2), 0 and its logit, whose softmax is the sigmoid. Several numbers
        are (b, k, 1).
        """
        if self.kind is TaskKind.MULTI_LABEL:
            return torch.stack([torch.zeros_like(logits), logits], -1)
        return logits.unsqueeze(-1) if self.kind is TaskKind.MULTI_OUTPUT else logits

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        """Mean cross-entropy of int64 labels in nats, without ``IGNORED``; mean squared error for numbers.

        For several labels or numbers, the mean is over all of them.
        """
        scores = self.alternatives(logits)
        if labels.is_floating_point():
            return functional.mse_loss(scores.squeeze(-1), labels)
        gold = labels.flatten()
        total = functional.cross_entropy(scores.flatten(0, -2), gold, ignore_index=IGNORED, reduction="sum")
        return total / (gold != IGNORED).sum().clamp_min(1)  # 0 without labels

    def weight(self, labels: Tensor) -> Tensor:
        """The number of labels that the loss is the mean of, a scalar; batches of one update are weighted by it."""
        return labels.new_tensor(labels.numel()) if labels.is_floating_point() else (labels != IGNORED).sum()

    def predict(self, logits: Tensor, states: States) -> Tensor:
        """Classes (b,), numbers (b,), several of them (b, k), or tags (b, w) with ``IGNORED`` at padding."""
        scores = self.alternatives(logits)
        if scores.shape[-1] == 1:
            return scores.squeeze(-1)
        classes = scores.argmax(-1)
        return classes if states.words is None else classes.masked_fill(~states.word_mask(), IGNORED)

    def probabilities(self, logits: Tensor) -> Tensor | None:
        """Probabilities of the :meth:`alternatives`, float32; None if there are none."""
        scores = self.alternatives(logits)
        return None if scores.shape[-1] == 1 else scores.float().softmax(-1)


def mean_of(values: Tensor, sequences: Tensor) -> Tensor:
    """Means (e, …) of the values (b, …) of each example's sequences, (e, k) with -1 at padding."""
    kept = (sequences >= 0).to(values.dtype).reshape(*sequences.shape, *[1] * (values.ndim - 1))
    return (values[sequences.clamp_min(0)] * kept).sum(1) / kept.sum(1)


def _at(hidden: Tensor, index: Tensor) -> Tensor:
    return torch.gather(hidden, 1, index.clamp_min(0).unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))


def _needed(value: Tensor | None, name: str) -> Tensor:
    if value is None:
        raise ValueError(f"the states have no {name}; they come from another kind of task.")
    return value
