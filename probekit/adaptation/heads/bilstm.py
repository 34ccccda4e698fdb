"""A tag for each word, from its first piece or a BiLSTM over all pieces, and the LSTM that other heads use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from probekit.adaptation.heads.crf import CRF, allowed_transitions, scheme_of
from probekit.adaptation.heads.head import IGNORED, Head, States
from probekit.tasks.task import TaskKind


class TagSoftmax(Head):
    """Dropout and a linear layer on the first piece of each word (Devlin et al. 2019, 5.3)."""

    kinds: ClassVar = frozenset({TaskKind.SEQUENCE_LABELLING})

    def __init__(self, width: int, outputs: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, outputs)

    def forward(self, states: States) -> Tensor:
        return self.output(self.dropout(states.first_pieces()))


class TagCRF(TagSoftmax):
    """The same with a conditional random field on top.

    The loss is the mean over sentences of -log p(tags); AllenNLP's is their sum. Predicted paths respect the scheme of
    the tags, which is inferred from their names; names without a scheme, such as parts of speech, are unconstrained.

    Attributes
    ----------
    label_names : Sequence[str]
        The tags by index.
    scheme : str, optional
        One of ``SCHEMES``, instead of the inferred one (IOB1 has the same names as BIO).
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        label_names: Sequence[str],
        dropout: float = 0.1,
        scheme: str | None = None,
        include_start_end_transitions: bool = True,
    ) -> None:
        super().__init__(width, outputs, dropout=dropout)
        scheme = scheme or scheme_of(label_names)
        allowed = None if scheme is None else allowed_transitions(scheme, label_names)
        self.crf = CRF(outputs, allowed=allowed, include_start_end_transitions=include_start_end_transitions)

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        return self.crf.loss(logits, labels, states.word_mask())

    def weight(self, labels: Tensor) -> Tensor:
        """The number of sentences with a tag."""
        return (labels != IGNORED).any(1).sum()

    def predict(self, logits: Tensor, states: States) -> Tensor:
        return self.crf.viterbi(logits, states.word_mask())[0]

    def probabilities(self, logits: Tensor) -> None:
        """None, because a path is predicted as a whole."""


def bilstm(width: int, hidden_size: int, *, layers: int = 1, dropout: float = 0.0) -> nn.LSTM:
    """A bidirectional LSTM with ``hidden_size`` units per direction, and dropout between its layers."""
    dropout = dropout if layers > 1 else 0.0
    return nn.LSTM(width, hidden_size, layers, batch_first=True, bidirectional=True, dropout=dropout)


def run(lstm: nn.LSTM, hidden: Tensor, mask: Tensor) -> Tensor:
    """The states of a bidirectional LSTM, (b, t, 2 h), with 0 at padding, which does not affect them.

    Parameters
    ----------
    hidden : Tensor
        Float (b, t, d), arbitrary at padding.
    mask : Tensor
        Bool (b, t), with all padding on the right.
    """
    padding = ~mask.unsqueeze(-1)
    hidden = hidden.masked_fill(padding, 0.0)
    # packed, as cuDNN requires; on a CPU that is up to twice as slow, unless half of a batch is padding
    packed = hidden.is_cuda or mask.float().mean() < 0.5
    return (run_packed if packed else run_turned)(lstm, hidden, mask).masked_fill(padding, 0.0)


def run_packed(lstm: nn.LSTM, hidden: Tensor, mask: Tensor) -> Tensor:
    """The states with torch's packed sequences, (b, t, 2 h)."""
    length = mask.sum(1).clamp_min(1).cpu()  # an empty sequence cannot be packed
    packed = pack_padded_sequence(hidden, length, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=mask.shape[1])[0]


def run_turned(lstm: nn.LSTM, hidden: Tensor, mask: Tensor) -> Tensor:
    """The same, arbitrary at padding: each direction reads whole rows, reversed so that padding comes last.

    This allows oneDNN, which does not support lengths.
    """
    place, zero = torch.arange(mask.shape[1], device=mask.device), hidden.new_zeros(1, len(hidden), lstm.hidden_size)
    turn = torch.where(mask, mask.sum(1, keepdim=True) - 1 - place, place).unsqueeze(-1)
    how = (True, 1, 0.0, torch.is_grad_enabled(), False, True)  # biases, layers, dropout, train, both ways, batch first
    for layer in range(lstm.num_layers):
        if layer:
            hidden = functional.dropout(hidden, lstm.dropout, lstm.training)
        ways = []
        for back, weights in enumerate(lstm.all_weights[2 * layer : 2 * layer + 2]):
            rows = hidden.gather(1, turn.expand_as(hidden)) if back else hidden
            states = torch.lstm(rows, (zero, zero), tuple(weights), *how)[0]
            ways.append(states.gather(1, turn.expand_as(states)) if back else states)
        hidden = torch.cat(ways, -1)
    return hidden


class BiLSTMSoftmax(TagSoftmax):
    """A BiLSTM over all word pieces; a linear layer on its state at the first piece of each word.

    As in Peters, Ruder & Smith (2019, A.1); sizes and dropout (before, between and after the layers of the LSTM) are
    those of AllenNLP's published tagger for CoNLL 2003.
    """

    def __init__(
        self, width: int, outputs: int, *, hidden_size: int = 200, layers: int = 2, dropout: float = 0.5
    ) -> None:
        super().__init__(2 * hidden_size, outputs, dropout=dropout)
        self.encoder = bilstm(width, hidden_size, layers=layers, dropout=dropout)

    def forward(self, states: States) -> Tensor:
        return super().forward(_encoded(self, states))


class BiLSTMCRF(TagCRF):
    """The same with a conditional random field on top (Lample et al. 2016)."""

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        label_names: Sequence[str],
        hidden_size: int = 200,
        layers: int = 2,
        dropout: float = 0.5,
        scheme: str | None = None,
        include_start_end_transitions: bool = True,
    ) -> None:
        super().__init__(
            2 * hidden_size,
            outputs,
            label_names=label_names,
            dropout=dropout,
            scheme=scheme,
            include_start_end_transitions=include_start_end_transitions,
        )
        self.encoder = bilstm(width, hidden_size, layers=layers, dropout=dropout)

    def forward(self, states: States) -> Tensor:
        return super().forward(_encoded(self, states))


def _encoded(head: BiLSTMSoftmax | BiLSTMCRF, states: States) -> States:
    return replace(states, hidden=run(head.encoder, head.dropout(states.hidden), states.mask))
