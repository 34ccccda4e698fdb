"""Masked language modelling: pieces that are hidden, replaced or left, and predicted."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

SHARE, REPLACED, RANDOM = 0.15, 0.8, 0.5
"""Devlin et al. (2019, 3.1): 15 % of the pieces are predicted; 80 % of them are hidden, half of the others random."""


def masked(pieces: Tensor, special: Tensor, *, mask: int, vocabulary: int, draw: Generator) -> tuple[Tensor, Tensor]:
    """The pieces as the encoder reads them, and a bool tensor that marks those to predict.

    Parameters
    ----------
    pieces, special : Tensor
        int64, and bool of the same shape: pieces that are never predicted, such as padding.
    mask, vocabulary : int
        The piece of a mask, and the number of pieces that a random one is drawn from.
    draw : Generator
        On the CPU.
    """
    chosen = torch.rand(pieces.shape, generator=draw) < SHARE
    fate = torch.rand(pieces.shape, generator=draw)
    others = torch.randint(vocabulary, pieces.shape, generator=draw)
    chosen, fate, others = (x.to(pieces.device) for x in (chosen, fate, others))
    chosen &= ~special
    hidden = pieces.masked_fill(chosen & (fate < REPLACED), mask)
    swapped = chosen & (fate >= REPLACED) & (fate < REPLACED + (1 - REPLACED) * RANDOM)
    return hidden.where(~swapped, others), chosen
