"""The layers of an encoder and its head as parameter groups, bottom to top, with separate learning rates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torch import nn

from probekit.models.transformers.blocks import find_blocks

__all__ = ["LayerGroup", "layer_groups", "layer_names", "param_groups"]

LayerGroup = tuple[str, list[tuple[str, nn.Parameter]]]
"""The name of a layer, and its parameters with their names."""

_FINAL_NORM = re.compile(r"(^|\.)(norm|ln_f|norm_f|final_norm|final_layer_?norm)\.\w+$")
"""Names of the norm after the last block in transformers. DeBERTa's ``encoder.LayerNorm`` belongs to the positions."""


def layer_groups(encoder: nn.Module, **above: nn.Module) -> list[LayerGroup]:
    """The trainable parameters by layer, bottom to top: ``embeddings``, ``block 1`` … ``block L``, ``head``.

    Parameters outside the blocks belong to the embeddings, except a norm after the last block (to that block) and the
    encoder's pooler (to the head). ALBERT's shared blocks are one group. Each parameter, even a tied one, is in only
    one group; layers without trainable parameters are left out.

    Parameters
    ----------
    **above
        The modules of the group ``head``, by name: heads, and the mix of layers.

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


def layer_names(encoder: Any) -> tuple[str, ...]:
    """The names of an encoder's hidden states, inputs of blocks and the last: "0" … "L - 1", "L" or "final_norm"."""
    depth = int(encoder.config.num_hidden_layers)
    inside = {id(module) for block in find_blocks(encoder) for module in block.modules()}
    outside = [name for name, module in encoder.named_modules() if id(module) not in inside]
    normed = any(_FINAL_NORM.search(f"{name}.weight") for name in outside)
    return (*map(str, range(depth)), "final_norm" if normed else str(depth))


def param_groups(
    groups: Sequence[LayerGroup], *, lr: float, weight_decay: float = 0.0, layer_factor: float = 1.0
) -> list[dict[str, Any]]:
    """The groups for a torch optimiser, each with the rate ``lr * layer_factor**depth``.

    The top has depth 0. Peters, Ruder & Smith (2019) use a factor of 0.4, ULMFiT (Howard & Ruder 2018, section 3.2)
    1 / 2.6. Biases and weights of norms, the only parameters with one dimension, are not decayed.
    """
    made: list[dict[str, Any]] = []
    for depth, (name, members) in enumerate(reversed(groups)):
        for decay, wide in ((weight_decay, True), (0.0, False)):
            if chosen := [parameter for _, parameter in members if (parameter.ndim > 1) == wide]:
                rate = lr * layer_factor**depth
                made.insert(0, {"params": chosen, "lr": rate, "weight_decay": decay, "layer": name})
    return made
