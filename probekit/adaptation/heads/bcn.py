"""The biattentive classification network (McCann et al. 2017, section 5) for one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.adaptation.heads.attention import attend
from probekit.adaptation.heads.bilstm import bilstm, run
from probekit.adaptation.heads.head import Head, States
from probekit.errors import UsageError

POOL = 4
"""Linear pieces of a maxout unit."""


class BCN(Head):
    """A ReLU layer, a BiLSTM, self-attention of the sequence, a BiLSTM that integrates it, four poolings, maxout.

    Reads all pieces of one sequence (pairs are joint). McCann et al. process two copies of the sequence; one is enough,
    as in AllenNLP's version, whose published SST configuration supplies the defaults.

    Attributes
    ----------
    hidden_size : int | Sequence[int], default 300
        Size of the ReLU layer, of each direction of the two LSTMs and of the feed-forward output; or four sizes.
    output : str, default 'maxout'
        "maxout" (three layers) or "feed-forward" (a ReLU layer and a linear one).
    embedding_dropout, dropout, output_dropout : float or Sequence[float]
        Before and after the ReLU layer, on the pooled vector, and after each output layer except the last.
    extra : int, default 0
        Features of each piece to concatenate with the integrator's states, such as the second mix of ELMo's layers.
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        hidden_size: int | Sequence[int] = 300,
        output: str = "maxout",
        embedding_dropout: float = 0.25,
        dropout: float = 0.1,
        output_dropout: Sequence[float] = (0.2, 0.3),
        extra: int = 0,
    ) -> None:
        super().__init__()
        if output not in ("maxout", "feed-forward"):
            raise UsageError(f"the output of a BCN must be 'maxout' or 'feed-forward', not {output!r}.")
        relu, each, integrated, last = (hidden_size,) * 4 if isinstance(hidden_size, int) else hidden_size
        self.maxout, self.output_dropout = output == "maxout", (*output_dropout, 0.0)
        self.embedding_dropout, self.dropout = nn.Dropout(embedding_dropout), nn.Dropout(dropout)
        self.pre_encode = nn.Linear(width, relu)
        self.encoder = bilstm(relu, each)
        self.integrator = bilstm(6 * each, integrated)
        self.attention = nn.Linear(2 * integrated + extra, 1)
        pooled = 4 * (2 * integrated + extra)
        sizes = [pooled, 4 * integrated, 2 * integrated, outputs] if self.maxout else [pooled, last, outputs]
        pieces = POOL if self.maxout else 1
        self.output = nn.ModuleList(nn.Linear(a, pieces * b) for a, b in pairwise(sizes))

    def forward(self, states: States, extra: Tensor | None = None) -> Tensor:
        mask, drop = states.mask, self.embedding_dropout
        padding = ~mask.unsqueeze(-1)
        hidden = drop(states.hidden.masked_fill(padding, 0.0))
        encoded = run(self.encoder, drop(self.pre_encode(hidden).relu()), mask)
        context = attend(encoded @ encoded.transpose(1, 2), encoded, mask)
        h = run(self.integrator, torch.cat([encoded, encoded - context, encoded * context], -1), mask)
        if extra is not None:
            h = torch.cat([h, extra.masked_fill(padding, 0.0)], -1)
        highest, lowest = h.masked_fill(padding, -torch.inf).amax(1), h.masked_fill(padding, torch.inf).amin(1)
        mean = h.sum(1) / mask.sum(1, keepdim=True)
        attended = attend(self.attention(h).transpose(1, 2), h, mask).squeeze(1)
        vector = self.dropout(torch.cat([highest, lowest, mean, attended], -1))
        for i, (layer, p) in enumerate(zip(self.output, self.output_dropout, strict=False)):
            vector = layer(vector)
            if self.maxout:
                vector = vector.unflatten(-1, (-1, POOL)).amax(-1)
            elif i == 0:
                vector = vector.relu()
            if i < len(self.output) - 1:
                vector = functional.dropout(vector, p, self.training)
        return vector
