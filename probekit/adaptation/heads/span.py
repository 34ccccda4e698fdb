"""The answer to a question as a span of its context (Devlin et al. 2019, sections 4.2 and 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.adaptation.heads.head import Head, States
from probekit.tasks.files.squad import ANSWERS
from probekit.tasks.task import TaskKind


class Span(Head):
    """Start and end logits of each piece of question and context, which are read as one sequence.

    The piece at position 0 ([CLS]) stands for "no answer in this window". A context longer than the model is read in
    windows; the answer is the span with the highest sum of start and end logit over the windows, of at most ``longest``
    pieces. If the task has questions without an answer, there is none where the lowest sum at position 0 over the
    windows is higher.
    """

    kinds: ClassVar = frozenset({TaskKind.QUESTION_ANSWERING})

    def __init__(
        self, width: int, outputs: int, *, label_names: Sequence[str] = (), dropout: float = 0.0, longest: int = 30
    ) -> None:
        super().__init__()
        self.longest, self.may_lack = longest, ANSWERS[1] in label_names
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, 2)

    def forward(self, states: States) -> Tensor:
        """Logits (b, t, 2); the lowest number at pieces that are neither in the context nor the first."""
        hidden = states.hidden.masked_fill(~states.mask.unsqueeze(-1), 0)  # anything may be at padding
        logits = self.output(self.dropout(hidden))
        return logits.masked_fill(~_allowed(states).unsqueeze(-1), torch.finfo(logits.dtype).min)

    def of_examples(self, logits: Tensor, states: States) -> Tensor:
        """The logits of the windows, which :meth:`predict` compares."""
        return logits

    def loss(self, logits: Tensor, labels: Tensor, states: States) -> Tensor:
        """Mean cross-entropy in nats of first and last piece, int64 (b, 2), over the windows; (0, 0) for no answer."""
        first, last = (functional.cross_entropy(logits[..., i], labels[:, i]) for i in range(2))
        return (first + last) / 2

    def predict(self, logits: Tensor, states: States) -> Tensor:
        """int64 (e, 3): sequence, first and last piece of each example's answer; -1 if it has none."""
        assert states.context is not None
        assert states.sequences is not None
        score, start, end = best_spans(logits, states.context, self.longest)
        none = logits[:, 0].sum(-1)
        padding, sequence = states.sequences < 0, states.sequences.clamp_min(0)
        highest, window = score[sequence].masked_fill(padding, -torch.inf).max(1)
        at = sequence.gather(1, window[:, None]).squeeze(1)
        found = torch.stack([at, start[at], end[at]], 1)
        lacking = torch.isneginf(highest)
        if self.may_lack:
            lacking |= none[sequence].masked_fill(padding, torch.inf).amin(1) > highest
        return found.masked_fill(lacking[:, None], -1)

    def probabilities(self, logits: Tensor) -> None:
        """None, because an answer is chosen over several windows."""


def best_spans(logits: Tensor, context: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """The span with the highest sum of start and end logit in each sequence, of at most ``longest`` pieces.

    All spans are compared, not those of the best starts and ends alone.

    Parameters
    ----------
    logits : Tensor
        Float (b, t, 2).
    context : Tensor
        Bool (b, t), the pieces that a span may contain; they are adjacent.

    Returns
    -------
    tuple[Tensor, Tensor, Tensor]
        The sum (b,), -inf if there is no span; first and last piece, int64 (b,).
    """
    start, end = logits.float().masked_fill(~context.unsqueeze(-1), -torch.inf).unbind(-1)
    t = start.shape[1]
    width = min(longest, t)
    ends = functional.pad(end, (0, width - 1), value=-torch.inf).unfold(1, width, 1)  # (b, t, width): end[i + k]
    score, place = (start.unsqueeze(-1) + ends).flatten(1).max(1)
    first = place // width
    return score, first, first + place % width


def _allowed(states: States) -> Tensor:
    assert states.context is not None
    allowed = states.context.clone()
    allowed[:, 0] = True
    return allowed
