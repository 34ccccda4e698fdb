"""Heads for pairs: on distance and product of sentence vectors, on attention across both sentences, and ESIM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import pad

from probekit.activations.pooling import Pooling
from probekit.adaptation.heads.attention import cross_attend, mean_and_max, same_dropout, sentences
from probekit.adaptation.heads.bilstm import bilstm, run
from probekit.adaptation.heads.head import Head, States
from probekit.adaptation.heads.linear import known_pooling, pooled
from probekit.errors import UsageError
from probekit.tasks.task import TaskKind


class Pair(Head):
    """A linear layer on [|u - v|; u * v], where u and v are the pooled vectors of separately encoded sentences.

    With the pooling ``last`` it is the model of Kiros et al. (2015, sections 3.1 and 3.2) on Skip-thoughts; the
    features are those of Tai et al. (2015, section 4.2), who add a layer of ``hidden_size`` sigmoid units.
    """

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
        self.pooling, self.dropout = known_pooling(pooling), nn.Dropout(dropout)
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


class BiAttention(Head):
    """The fine-tuning head of Peters, Ruder & Smith (2019) for pairs that the encoder reads separately.

    Each sentence is aligned with the other, enhanced and pooled as in ESIM; dropout and a single layer with parameters
    follow. Special pieces are left out, as in the poolings ``mean`` and ``max``.
    """

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


class ESIM(Head):
    """Encode both sentences with a BiLSTM, align them, compare them with a second BiLSTM, pool by mean and maximum.

    All pieces are read; a pair encoded as one sequence is split in two. As in AllenNLP's version, whose published SNLI
    configuration supplies the defaults, the hidden layers use ReLU instead of the tanh of Chen et al.

    Attributes
    ----------
    hidden_size : int | Sequence[int], default 300
        Size of each direction of the first BiLSTM, of the projection, of each direction of the second BiLSTM and of the
        last hidden layer; or four sizes.
    dropout : float, default 0.5
        On the inputs of both BiLSTMs (the same features throughout a sequence), on the pooled vector, and on the last
        hidden layer.
    """

    pairs: ClassVar = frozenset({"separate", "joint"})

    def __init__(
        self, width: int, outputs: int, *, hidden_size: int | Sequence[int] = 300, dropout: float = 0.5
    ) -> None:
        super().__init__()
        each, projected, compared, last = (hidden_size,) * 4 if isinstance(hidden_size, int) else hidden_size
        self.encoder = bilstm(width, each)
        self.projection = nn.Linear(8 * each, projected)
        self.inference = bilstm(projected, compared)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Sequential(
            nn.Linear(8 * compared, last), nn.ReLU(), nn.Dropout(dropout), nn.Linear(last, outputs)
        )

    def forward(self, states: States) -> Tensor:
        both = sentences(states)
        masks = [sentence.mask for sentence in both]
        encoded = self._run(self.encoder, [sentence.hidden for sentence in both], masks)
        enhanced = cross_attend(*encoded, *masks)
        projected = [self.projection(sentence).relu() for sentence in enhanced]
        compared = self._run(self.inference, projected, masks)
        vector = [mean_and_max(sentence, mask) for sentence, mask in zip(compared, masks, strict=True)]
        return self.output(self.dropout(torch.cat(vector, -1)))

    def _run(self, lstm: nn.LSTM, sentences: Sequence[Tensor], masks: Sequence[Tensor]) -> list[Tensor]:
        """The LSTM on both sentences in one pass."""
        length = max(mask.shape[1] for mask in masks)
        dropped = [same_dropout(s, self.dropout.p, training=self.training) for s in sentences]
        hidden = torch.cat([pad(s, (0, 0, 0, length - s.shape[1])) for s in dropped])
        mask = torch.cat([pad(m, (0, length - m.shape[1])) for m in masks])
        both = run(lstm, hidden, mask).split([len(m) for m in masks])
        return [s[:, : m.shape[1]] for s, m in zip(both, masks, strict=True)]
