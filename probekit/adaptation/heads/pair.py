"""Heads on the distance and product of two sentence vectors, for classification and relatedness."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.activations.pooling import Pooling
from probekit.adaptation.heads.attention import sentences
from probekit.adaptation.heads.head import Head, States
from probekit.adaptation.heads.linear import POOLINGS, pooled
from probekit.errors import UsageError
from probekit.tasks.task import TaskKind

__all__ = ["Pair", "Rating", "rating_distribution"]


class Pair(Head):
    """A linear layer on [|u - v|; u * v], where u and v are the pooled vectors of separately encoded sentences.

    With the pooling ``last`` it is the model of Kiros et al. (2015, sections 3.1 and 3.2) on Skip-thoughts; the
    features are those of Tai et al. (2015, section 4.2), who add a layer of ``hidden_size`` sigmoid units.
    """

    kinds: ClassVar = frozenset({TaskKind.CLASSIFICATION, TaskKind.REGRESSION})
    pairs: ClassVar = frozenset({"separate"})

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        pooling: str = Pooling.MEAN,
        hidden_size: int | None = None,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise UsageError(f"unknown pooling {pooling!r}; the poolings are {', '.join(POOLINGS)}.")
        self.pooling, self.dropout = pooling, nn.Dropout(dropout)
        self.hidden = None if hidden_size is None else nn.Linear(2 * width, hidden_size)
        self.output = nn.Linear(hidden_size or 2 * width, outputs)

    def forward(self, states: States) -> Tensor:
        u, v = pooled(states, self.pooling), pooled(sentences(states)[1], self.pooling)
        vector = self.dropout(torch.cat([(u - v).abs(), u * v], -1))
        if self.hidden is not None:
            vector = self.dropout(self.hidden(vector).sigmoid())
        return self.output(vector)


class Rating(Pair):
    """A number as a distribution over the whole numbers from ``low`` to ``high`` (Tai et al. 2015, section 4.2).

    The loss is the mean KL divergence, in nats, of the softmax from :func:`rating_distribution`; the prediction is its
    expectation. Training takes ``low`` and ``high`` from the labels of train and dev: 1 and 5 for SICK, as in the
    paper, 0 and 5 for STS-B. Labels outside this range raise UsageError.
    """

    kinds: ClassVar = frozenset({TaskKind.REGRESSION})
    scores: Tensor

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        low: int = 0,
        high: int = 5,
        pooling: str = Pooling.MEAN,
        hidden_size: int | None = None,
        dropout: float = 0.1,
    ) -> None:
        if low >= high or outputs != 1:
            raise UsageError(
                f"rating predicts one number from low to a higher high, not {outputs} from {low} to {high}."
            )
        super().__init__(width, high - low + 1, pooling=pooling, hidden_size=hidden_size, dropout=dropout)
        self.register_buffer("scores", torch.arange(low, high + 1, dtype=torch.float32))

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        low, high = self.scores[0], self.scores[-1]
        if not bool(((labels >= low) & (labels <= high)).all()):
            raise UsageError(
                f"the head expects ratings from {low:g} to {high:g}, but the labels go from {labels.min():g} to "
                f"{labels.max():g}; include such labels in training, or choose the head pair."
            )
        target = rating_distribution(labels, self.scores)
        return functional.kl_div(logits.log_softmax(-1), target, reduction="batchmean")

    def predict(self, logits: Tensor, states: States) -> Tensor:
        return logits.float().softmax(-1) @ self.scores

    def probabilities(self, logits: Tensor) -> None:
        """None, because a rating is a number."""


def rating_distribution(labels: Tensor, scores: Tensor) -> Tensor:
    """Probabilities (b, k) of the whole numbers ``scores`` (k,) whose expectation is the label, for labels (b,).

    A label between two scores is divided between them in proportion to their proximity (Tai et al. 2015, section 4.2).
    """
    return (1 - (labels.unsqueeze(-1) - scores).abs()).clamp_min(0)
