"""Common parts of attention-based task models: soft alignment of two sequences, and pooling.

Sequences are float (b, t, d) with 0 at padding, masks bool (b, t).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from probekit.adaptation.heads.head import States
from probekit.errors import UsageError


def sentences(states: States) -> tuple[States, States]:
    """The two sentences of each pair; a joint sequence is split after the first piece that the tokenizer inserted
    between them ([CLS] a [SEP] and b [SEP], like BERT's segments).

    Raises
    ------
    UsageError
        If there is no such piece, or nothing follows it.
    """
    if states.second is not None:
        return states, states.second
    between = states.special & ((states.mask & ~states.special).cumsum(1) > 0)
    length = between.int().argmax(1) + 1
    rest = states.mask.sum(1) - length
    if not (between.any(1) & (rest > 0)).all():
        raise UsageError(
            "a pair encoded as one sequence cannot be split in two: its first sentence is empty, or the tokenizer "
            "inserts no separator. Encode pairs separately (--pairs separate)."
        )
    return _part(states, torch.zeros_like(length), length), _part(states, length, rest)


def _part(states: States, start: Tensor, length: Tensor) -> States:
    """``length`` pieces of each sequence, from ``start`` on."""
    place = torch.arange(int(length.max()), device=length.device)
    mask = place < length[:, None]
    at = (start[:, None] + place).clamp_max(states.mask.shape[1] - 1)
    hidden = states.hidden.gather(1, at.unsqueeze(-1).expand(-1, -1, states.hidden.shape[-1]))
    return States(hidden, mask, states.special.gather(1, at) & mask)


def attend(scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Means (b, q, d) of the values (b, t, d), weighted by the softmax of scores (b, q, t), without padding."""
    lowest = torch.finfo(scores.dtype).min  # not -inf, which gives NaN for sequences of only padding
    return scores.masked_fill(~mask.unsqueeze(1), lowest).softmax(-1) @ values


def cross_attend(a: Tensor, b: Tensor, mask_a: Tensor, mask_b: Tensor) -> tuple[Tensor, Tensor]:
    """Each sentence with its attention over the other, (…, 4 d): [a; b~; a - b~; a * b~], likewise for b.

    Chen et al. (2017), equations 11-15.
    """
    scores = a @ b.transpose(1, 2)
    pairs = (a, attend(scores, b, mask_b)), (b, attend(scores.transpose(1, 2), a, mask_a))
    first, second = (torch.cat([this, other, this - other, this * other], -1) for this, other in pairs)
    return first, second


def mean_and_max(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean and maximum over the sequence, (b, 2 d); zeros if it is empty."""
    mean = hidden.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)
    return torch.cat([mean, maximum(hidden, mask)], -1)


def maximum(hidden: Tensor, mask: Tensor) -> Tensor:
    """Maximum over the sequence, (b, d); zeros if it is empty."""
    highest = hidden.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
    return highest.masked_fill(~mask.any(1, keepdim=True), 0.0)


def same_dropout(hidden: Tensor, p: float, *, training: bool) -> Tensor:
    """Dropout of the same features throughout a sequence (Gal & Ghahramani 2016)."""
    return hidden * functional.dropout(torch.ones_like(hidden[:, :1]), p, training) if training else hidden
