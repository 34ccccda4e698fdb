"""What the attentive task models share: soft alignment of two sequences, and pooling.

Sequences are float (b, t, d) with 0 at padding, masks bool (b, t).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from probekit.adaptation.heads.head import States
from probekit.errors import UsageError

__all__ = ["attend", "cross_attend", "mean_and_max", "same_dropout", "second_of"]


def second_of(states: States) -> States:
    """The second sentences; raises UsageError where the pairs were not read apart."""
    if states.second is None:
        raise UsageError("this head compares sentences that are read apart, and there are no second ones.")
    return states.second


def attend(scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Means (b, q, d) of the values (b, t, d), weighted by the softmax of scores (b, q, t) over what is no padding."""
    lowest = torch.finfo(scores.dtype).min  # not -inf: of nothing but padding it would make NaN
    return scores.masked_fill(~mask.unsqueeze(1), lowest).softmax(-1) @ values


def cross_attend(a: Tensor, b: Tensor, mask_a: Tensor, mask_b: Tensor) -> tuple[Tensor, Tensor]:
    """Each sentence beside what of the other it attends to, (…, 4 d) each: [a; b~; a - b~; a * b~] and so for b.

    Chen et al. (2017), equations 11-15.
    """
    scores = a @ b.transpose(1, 2)
    pairs = (a, attend(scores, b, mask_b)), (b, attend(scores.transpose(1, 2), a, mask_a))
    first, second = (torch.cat([own, other, own - other, own * other], -1) for own, other in pairs)
    return first, second


def mean_and_max(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean and maximum over the sequence, (b, 2 d); zeros where it is empty."""
    kept, count = mask.unsqueeze(-1), mask.sum(1, keepdim=True)
    mean = hidden.masked_fill(~kept, 0.0).sum(1) / count.clamp_min(1)
    return torch.cat([mean, hidden.masked_fill(~kept, -torch.inf).amax(1).masked_fill(count == 0, 0.0)], -1)


def same_dropout(hidden: Tensor, p: float, *, training: bool) -> Tensor:
    """Dropout of the same features all along a sequence (Gal & Ghahramani 2016)."""
    return hidden * functional.dropout(torch.ones_like(hidden[:, :1]), p, training) if training else hidden
