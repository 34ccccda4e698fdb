"""A tag for each word, from the hidden state of its first piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from probekit.adaptation.heads.crf import CRF, allowed_transitions, scheme_of
from probekit.adaptation.heads.head import IGNORED, Head, States
from probekit.tasks.task import TaskKind

__all__ = ["TagCRF", "TagSoftmax"]


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
