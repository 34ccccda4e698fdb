"""Language modelling: the next word from those before it, the previous one from those after it, hidden words."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from probekit.adaptation.heads.head import Head, States
from probekit.adaptation.heads.vocabulary import check_vocabulary, known_words, mean_loss
from probekit.errors import UsageError
from probekit.models.adapted.direction import reads_ahead
from probekit.models.bilstm.config import BiLSTMConfig, Directions, Input


class LanguageModelHead(Head):
    """A softmax over the words of a vocabulary, at each piece for its neighbours.

    For a BiLSTM, the forward states of the top layer predict the next word and the backward states the previous one,
    with the same softmax, as in jiant (Bowman et al. 2018); ELMo shares its softmax too (Peters et al. 2018, 3.1).
    Both also read the input at their position, which the skip connection appends to the output: it is the word itself,
    never the word to predict. The loss is the mean over all predicted words of both directions. The first word has no
    forward prediction and the last no backward prediction; jiant begins and ends each sentence with <s> and </s>.

    For a causal transformer, the states predict the next piece only.

    Logits exist only for a few words at a time, in :meth:`loss`.

    Attributes
    ----------
    outputs : int
        Size of the output vocabulary.
    cells : int, optional
        Size of each direction: hidden states are [forward; backward; rest], and the rest is read by both directions.
        None for a causal encoder.
    """

    def __init__(self, width: int, outputs: int, *, cells: int | None = None) -> None:
        super().__init__()
        check_vocabulary(outputs)
        self.outputs, self.cells = outputs, cells
        self.output = nn.Linear(width - (cells or 0), outputs)

    @classmethod
    def of_encoder(cls, encoder: PreTrainedModel, outputs: int) -> Self:
        """The head for this encoder.

        Raises
        ------
        UsageError
            If the encoder's states contain the word to predict.
        """
        config = encoder.config
        if not isinstance(config, BiLSTMConfig):
            if reads_ahead(encoder):
                raise UsageError(
                    f"this {config.model_type} reads the words on both sides, so its states contain the word to "
                    "predict. Train a causal encoder, such as gpt2, or choose the objective masked-language-model."
                )
            return cls(config.hidden_size, outputs)
        if config.input == Input.ELMO:
            raise UsageError(
                "the input of this BiLSTM is all layers of ELMo, which read the words on both sides and thus contain "
                "the word to predict. Use the input 'characters' for language modelling."
            )
        if config.directions != Directions.SEPARATE and config.num_hidden_layers > 1:
            raise UsageError(
                "the upper layers of this BiLSTM read both directions, so its states contain the word to predict. "
                'Make a new encoder with "directions": "separate" (probekit new-encoder) for language modelling.'
            )
        return cls(config.hidden_size, outputs, cells=config.cells)

    def forward(self, states: States) -> Tensor:
        """The hidden states (b, t, d), since logits of all words at once do not fit."""
        return states.hidden

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        """Mean cross-entropy of the predicted words in nats; 0 if there are none.

        Parameters
        ----------
        logits : Tensor
            The result of :meth:`forward`.
        labels : Tensor
            int64 (b, t), the id of the word at each piece; ``IGNORED`` at padding and for words that are not predicted.
        """
        rows, words = zip(*self._predictions(labels, states), strict=True)
        hidden = logits.flatten(0, 1)
        read = [self._read(hidden, row, back=bool(i)) for i, row in enumerate(rows)]
        return mean_loss(torch.cat(read), self.output, labels.flatten()[torch.cat(words)])

    def count(self, labels: Tensor, states: States) -> int:
        """The number of predictions that the loss is the mean of."""
        return sum(len(words) for _, words in self._predictions(labels, states))

    def _predictions(self, labels: Tensor, states: States) -> list[tuple[Tensor, Tensor]]:
        """For each direction, the pieces that predict and the predicted ones, as indices of flattened (b, t)."""
        known = _known_pieces(labels, states, self.outputs)
        place = torch.arange(known.numel(), device=known.device).view_as(known)
        later = place[:, 1:][known[:, 1:]]
        if self.cells is None:
            return [(later - 1, later)]
        earlier = place[:, :-1][known[:, :-1] & states.mask[:, 1:]]
        return [(later - 1, later), (earlier + 1, earlier)]

    def _read(self, hidden: Tensor, row: Tensor, *, back: bool) -> Tensor:
        """The part of rows of the hidden states that one direction reads."""
        if self.cells is None:
            return hidden.index_select(0, row)
        if back:
            return hidden[:, self.cells :].index_select(0, row)
        rows = hidden.index_select(0, row)
        return torch.cat([rows[:, : self.cells], rows[:, 2 * self.cells :]], -1)


class MaskedLanguageModelHead(Head):
    """A softmax over the words of a vocabulary, at hidden pieces (Devlin et al. 2019, 3.1).

    It is one linear layer: without the further layer of BERT's head, and with weights of its own, since the outputs are
    not all pieces.

    Attributes
    ----------
    outputs : int
        Size of the output vocabulary.
    """

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        check_vocabulary(outputs)
        self.outputs = outputs
        self.output = nn.Linear(width, outputs)

    def forward(self, states: States) -> Tensor:
        """The hidden states (b, t, d), since logits of all words at once do not fit."""
        return states.hidden

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        """Mean cross-entropy of the hidden words in nats; 0 if there are none.

        Parameters
        ----------
        logits : Tensor
            The result of :meth:`forward`.
        labels : Tensor
            int64 (b, t), the id of each hidden word; ``IGNORED`` at all other pieces.
        """
        hidden = _known_pieces(labels, states, self.outputs)
        return mean_loss(logits[hidden], self.output, labels[hidden])

    def count(self, labels: Tensor, states: States) -> int:
        """The number of predictions that the loss is the mean of."""
        return int(_known_pieces(labels, states, self.outputs).sum())


def check_both_sides(encoder: PreTrainedModel) -> None:
    """Raise UsageError if the encoder is causal: its states do not contain the words after a hidden one."""
    if not isinstance(encoder.config, BiLSTMConfig) and not reads_ahead(encoder):
        raise UsageError(
            f"this {encoder.config.model_type} reads only the words before each one; masked-language-model needs those "
            "on both sides. Choose the objective language-model, or an encoder such as bert."
        )


def _known_pieces(labels: Tensor, states: States, outputs: int) -> Tensor:
    """Where pieces (b, t) have a label; raises UsageError for labels of another shape, or outside the vocabulary."""
    if labels.shape != states.mask.shape:
        raise UsageError(
            f"labels have the shape {tuple(labels.shape)}, pieces {tuple(states.mask.shape)}; language modelling "
            "needs one label for each piece that the encoder reads."
        )
    return known_words(labels, outputs)
