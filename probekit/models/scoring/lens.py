"""The logit lens of a direction: its product with the row of each piece in the matrix of a language model's head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from probekit.errors import ModelError, UsageError
from probekit.models.scoring.head import Head, changes_width
from probekit.models.scoring.load import is_causal, load_language_model
from probekit.models.transformers.tokens import load_tokenizer

RANDOM = 99
"""Random directions: p is at least .01."""


@dataclass(frozen=True, slots=True)
class Lens:
    """The products of a direction of length 1 with the pieces of a vocabulary.

    Attributes
    ----------
    pieces : list of str
        The vocabulary.
    products : np.ndarray
        float32 (V,), minus their mean: what a step along the direction adds to the logit of a piece, up to the scale of
        the norm.
    largest, smallest : np.ndarray
        float32 (RANDOM,), the largest and the smallest product of each random direction.
    norm : str
        The norm whose gain is applied, "RMSNorm" or "LayerNorm" (which also takes off the mean), or "".
    """

    pieces: list[str]
    products: np.ndarray
    largest: np.ndarray
    smallest: np.ndarray
    norm: str


@torch.inference_mode()
def lens(
    folder: Path, direction: np.ndarray, *, normed: bool = False, random_weights: int | None = None, seed: int = 0
) -> Lens:
    """Read a direction of the residual stream with the head of a causal language model.

    Parameters
    ----------
    folder : Path
        The model.
    direction : np.ndarray
        (d,).
    normed : bool
        Whether it is a direction of states that have passed the final norm.

    Raises
    ------
    UsageError
        If the model has no head that predicts the next piece.
    ModelError
        If the head is more than a norm and a matrix.
    """
    why = "its directions cannot be read by a head; leave out --lens"
    if not is_causal(folder, why):
        raise UsageError(f"{folder.name} predicts masked pieces, by a head with a layer of its own, so {why}.")
    net = load_language_model(folder, causal=True, random_weights=random_weights, head_only=True)
    head, rows = Head(net, causal=True), net.get_output_embeddings()
    weight = getattr(rows, "weight", None)
    if (
        len(head.after) > 1
        or any(map(changes_width, head.after))
        or weight is None
        or weight.shape[1] != len(direction)
    ):
        raise ModelError(f"the head of {folder.name} is more than a norm and a matrix, so {why}.")
    drawn = np.random.default_rng(seed).normal(size=(len(direction), RANDOM))
    every = torch.from_numpy(np.column_stack([direction, drawn])).float()
    every /= every.norm(dim=0)
    name = ""
    if head.after and not normed:
        gain, centres = _gain(head.after[0], every.shape[0])
        name = "LayerNorm" if centres else "RMSNorm"
        every = gain[:, None] * (every - every.mean(0) if centres else every)
    tokenizer: Any = load_tokenizer(folder)
    pieces = tokenizer.convert_ids_to_tokens([*range(min(len(tokenizer), len(weight)))])
    products = weight[: len(pieces)].float() @ every
    products -= products.mean(0)
    own = products[:, 0].numpy()
    return Lens(pieces, own, products[:, 1:].amax(0).numpy(), products[:, 1:].amin(0).numpy(), name)


def _gain(norm: nn.Module, d: int) -> tuple[Tensor, bool]:
    """The factor of each dimension (d,), and whether the norm takes off the mean of a state.

    A state of 1 and -1 in turn has the mean 0 and the size 1, so that only factors and bias are applied to it.
    """
    one = torch.ones(d)
    one[1::2] = -1.0
    gain = (norm(one) - norm(-one)) / 2 * one
    even = (norm(torch.ones(d)) - norm(-torch.ones(d))).abs().max()
    return gain, bool(even < 1e-3 * gain.abs().max())
