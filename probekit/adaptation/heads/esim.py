"""The enhanced sequential inference model (Chen et al. 2017) for pairs of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from probekit.adaptation.heads.attention import cross_attend, mean_and_max, same_dropout, sentences
from probekit.adaptation.heads.bilstm import bilstm, run
from probekit.adaptation.heads.head import Head, States
from probekit.tasks.task import TaskKind

__all__ = ["ESIM"]

ALLENNLP = {
    "_encoder._module.": "encoder.",
    "_projection_feedforward._linear_layers.0.": "projection.",
    "_inference_encoder._module.": "inference.",
    "_output_feedforward._linear_layers.0.": "output.0.",
    "_output_logit._linear_layers.0.": "output.3.",
}
"""Prefixes of the names of parameters in AllenNLP, and ours."""


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

    kinds: ClassVar = frozenset({TaskKind.CLASSIFICATION, TaskKind.REGRESSION})
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
