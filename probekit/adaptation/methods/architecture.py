"""Changes of a pretrained encoder before it is trained: fewer blocks, and new weights at the top."""

from __future__ import annotations

from typing import Any

import torch

from probekit.errors import UsageError
from probekit.models.transformers.blocks import find_blocks

__all__ = ["reinitialise_top"]


def reinitialise_top(encoder: Any, top: int, seed: int) -> None:
    """Draw the weights of the top blocks and of the pooler anew, as the model's class does for a new model.

    A cure for unstable fine-tuning on few examples (Zhang et al. 2021, section 5).

    Parameters
    ----------
    top : int
        The number of blocks.
    seed : int
        The seed of the weights.

    Raises
    ------
    UsageError
        If the model has fewer blocks, or one block that runs several times.
    """
    blocks, depth = find_blocks(encoder), int(encoder.config.num_hidden_layers)
    if len(blocks) != depth:
        raise UsageError(f"{encoder.config.model_type} runs the same block several times; leave out reinit_top.")
    if top > depth:
        raise UsageError(f"reinit_top is {top}; the model has {depth} blocks.")
    pooler = getattr(encoder, "pooler", None)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for part in (*blocks[depth - top :], *([] if pooler is None else [pooler])):
            for weight in part.parameters():
                weight.__dict__.pop("_is_hf_initialized", None)  # with this mark transformers leaves them as they are
            for module in reversed(list(part.modules())):  # inner ones first, as transformers does
                module.__dict__.pop("_is_hf_initialized", None)
                encoder._init_weights(module)
