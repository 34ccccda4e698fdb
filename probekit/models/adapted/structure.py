"""The linear layers of a model's blocks by what they do, found by running the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from probekit.errors import ModelError
from probekit.models.transformers.blocks import find_blocks


@dataclass(frozen=True, slots=True)
class BlockLinears:
    """Names of the linear layers of one block, from the model.

    Attributes
    ----------
    q, k, v : str
        The projections to queries, keys and values; the same name three times if they are one layer (as in GPT-2).
    o : str
        The projection of what the heads have attended to.
    down : str
        The last layer of the feed-forward part, which leads back to the width of the model.
    all : tuple[str, ...]
        Every linear layer of the block.
    """

    q: str
    k: str
    v: str
    o: str
    down: str
    all: tuple[str, ...]


def linear_names(model: Any) -> dict[str, nn.Module]:
    """The linear layers inside a model's blocks, by name."""
    inside = {id(module) for block in find_blocks(model) for module in block.modules()}
    return {n: m for n, m in model.named_modules() if id(m) in inside and isinstance(m, nn.Linear | Conv1D)}


def block_linears(model: Any) -> list[BlockLinears]:
    """The linear layers of each block by what they do.

    The model reads two pieces. In each block, the first linear layers, which read the same vectors, are the projections
    to queries, keys and values (or the one layer that makes all three); the next one is the attention's output, and the
    last one is the end of the feed-forward part.

    Raises
    ------
    ModelError
        If a block does not have these parts.
    """
    names = {id(module): name for name, module in linear_names(model).items()}
    calls: list[tuple[str, torch.Tensor, int]] = []

    def seen(module: nn.Module, args: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        calls.append((names[id(module)], args[0], out.shape[-1]))

    hooks = [m.register_forward_hook(seen) for m in model.modules() if id(m) in names]
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(input_ids=torch.ones((1, 2), dtype=torch.long, device=next(model.parameters()).device))
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    found = []
    for block in find_blocks(model):
        inside = {names[id(module)] for module in block.modules() if id(module) in names}
        found.append(_roles([call for call in calls if call[0] in inside], type(block).__name__))
    return found


def _roles(calls: list[tuple[str, torch.Tensor, int]], block: str) -> BlockLinears:
    order = list(dict.fromkeys(name for name, _, _ in calls))
    first = [name for name in order if any(name == n and x is calls[0][1] for n, x, _ in calls)]
    rest = [name for name in order if name not in first]
    if len(rest) < 2 or len(first) == 2:
        raise ModelError(f"the parts of {block} are not recognised among its linear layers ({', '.join(order)}).")
    if len(first) == 1:
        q = k = v = first[0]
    else:
        by_letter = [[n for n in first if n.rpartition(".")[2].startswith(letter)] for letter in "qkv"]
        q, k, v = (one[0] for one in by_letter) if all(len(one) == 1 for one in by_letter) else first[:3]
    return BlockLinears(q, k, v, rest[0], rest[-1], tuple(order))
