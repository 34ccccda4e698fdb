"""The layers of an encoder and its head as groups of parameters, bottom to top, each with a rate of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torch import nn

from probekit.models.transformers.stock import find_blocks

__all__ = ["LayerGroup", "layer_groups", "layer_names", "param_groups"]

LayerGroup = tuple[str, list[tuple[str, nn.Parameter]]]
"""A layer's name and its parameters with theirs."""

_FINAL_NORM = re.compile(r"(^|\.)(norm|ln_f|norm_f|final_norm|final_layer_?norm)\.\w+$")
"""What transformers calls the norm after the last block. DeBERTa's ``encoder.LayerNorm`` is of the positions."""


def layer_groups(encoder: nn.Module, **above: nn.Module) -> list[LayerGroup]:
    """The trainable parameters by layer, bottom to top: ``embeddings``, ``block 1`` … ``block L``, ``head``.

    What stands outside the blocks belongs to the embeddings, but for a norm after the last block (to that block) and
    the encoder's own pooler (to the head). ALBERT's shared blocks are one group. Each parameter is in one group only,
    also where it is tied; a layer without trainable parameters is left out.

    Parameters
    ----------
    **above
        The modules of the group ``head``, by name: heads, and the mix of the layers.

    Raises
    ------
    ModelError
        If the encoder's blocks cannot be found.
    """
    blocks = find_blocks(encoder)
    home = {id(parameter): i for i, block in enumerate(blocks, start=1) for parameter in block.parameters()}
    names = ["embeddings", *(f"block {i}" for i in range(1, len(blocks) + 1)), "head"]
    groups: list[LayerGroup] = [(name, []) for name in names]
    for name, parameter in encoder.named_parameters():
        outside = -1 if "pooler" in name.split(".") else len(blocks) if _FINAL_NORM.search(name) else 0
        groups[home.setdefault(id(parameter), outside)][1].append((f"encoder.{name}", parameter))
    for part, module in above.items():
        groups[-1][1].extend((f"{part}.{name}", p) for name, p in module.named_parameters() if id(p) not in home)
    trainable = [(name, [(key, p) for key, p in members if p.requires_grad]) for name, members in groups]
    return [group for group in trainable if group[1]]


def layer_names(encoder: nn.Module) -> tuple[str, ...]:
    """The hidden states of an encoder, what enters each block and the last ones: "0" … "L - 1", "L" or "final_norm"."""
    depth = int(encoder.config.num_hidden_layers)  # type: ignore[arg-type, union-attr]
    inside = {id(module) for block in find_blocks(encoder) for module in block.modules()}
    outside = [name for name, module in encoder.named_modules() if id(module) not in inside]
    normed = any(_FINAL_NORM.search(f"{name}.weight") for name in outside)
    return (*map(str, range(depth)), "final_norm" if normed else str(depth))


def param_groups(
    groups: Sequence[LayerGroup], *, lr: float, weight_decay: float = 0.0, layer_factor: float = 1.0
) -> list[dict[str, Any]]:
    """The groups as a torch optimiser takes them, each with a rate of its own: ``lr * layer_factor**depth``.

    The top has depth 0. Peters, Ruder & Smith (2019) take a factor of 0.4, ULMFiT (Howard & Ruder 2018, section 3.2)
    1 / 2.6. Biases and the weights of norms, which are all that has one dimension, are not decayed.
    """
    made: list[dict[str, Any]] = []
    for depth, (name, members) in enumerate(reversed(groups)):
        for decay, wide in ((weight_decay, True), (0.0, False)):
            if chosen := [parameter for _, parameter in members if (parameter.ndim > 1) == wide]:
                rate = lr * layer_factor**depth
                made.insert(0, {"params": chosen, "lr": rate, "weight_decay": decay, "layer": name})
    return made
