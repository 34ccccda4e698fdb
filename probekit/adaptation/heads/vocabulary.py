"""Common parts of the heads that predict words of a vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from probekit.adaptation.heads.head import IGNORED
from probekit.adaptation.pretraining.vocabulary_loss import ROWS, vocabulary_loss
from probekit.errors import UsageError

__all__ = ["check_vocabulary", "known_words", "mean_loss", "most_likely"]


def check_vocabulary(outputs: int) -> None:
    """Raise UsageError for a vocabulary without a choice."""
    if outputs < 2:
        raise UsageError(f"the output vocabulary has {outputs} words; expected at least 2. Give more training text.")


def known_words(labels: Tensor, outputs: int) -> Tensor:
    """Where ids of words (b, t) are not ``IGNORED``.

    Raises
    ------
    UsageError
        For ids outside the vocabulary.
    """
    known = labels != IGNORED
    if bool((known & ((labels < 0) | (labels >= outputs))).any()):
        low, high = (int(x) for x in labels[known].aminmax())
        raise UsageError(
            f"labels are from {low} to {high}; expected ids from 0 to {outputs - 1}, and {IGNORED} at padding. "
            "Map unknown words to the vocabulary's id for them."
        )
    return known


def mean_loss(hidden: Tensor, output: nn.Linear, labels: Tensor) -> Tensor:
    """Mean cross-entropy of words (n,) given hidden states (n, d), in nats; 0 without words."""
    return vocabulary_loss(hidden, output.weight, output.bias, labels) if len(labels) else hidden.sum()


@torch.no_grad()
def most_likely(hidden: Tensor, output: nn.Linear) -> Tensor:
    """The most likely words (n,), with the logits of a few rows of ``hidden`` (n, d) at a time."""
    return torch.cat([output(rows).argmax(-1) for rows in hidden.split(ROWS)])
