"""What the modules of each block read and return in one forward pass, copied at once.

Later operations may overwrite a module's output in place, so that a reference would hold something else afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from probekit.models.encoder import Batch
from probekit.models.transformers.blocks import find_blocks


@dataclass(slots=True)
class Call:
    """One call of a module.

    Attributes
    ----------
    path : str
        Its name in the block ("" is the block itself), or in the model for calls after the last block.
    module : nn.Module
        The module.
    given, returned : torch.Tensor or None
        The first tensor that it reads, and the first that it returns, (t, width); None if these are not rows of the
        batch.
    """

    path: str
    module: nn.Module
    given: torch.Tensor | None
    returned: torch.Tensor | None = None


@dataclass(slots=True)
class Recording:
    """The calls of one forward pass, in the order in which they end.

    Attributes
    ----------
    modules : list of nn.Module
        The module that is block 0, 1 … (ALBERT's blocks are one module).
    blocks : list of list of Call
        The calls in each block; modules that a block calls more than once are left out.
    after : list of Call
        The calls after the last block.
    attentions : list of (torch.Tensor or None)
        The model's own attention probabilities, (heads, t, t) for each block; None for one that returns none.
    last : torch.Tensor
        The last hidden state, (t, width).
    """

    modules: list[nn.Module] = field(default_factory=list)
    blocks: list[list[Call]] = field(default_factory=list)
    after: list[Call] = field(default_factory=list)
    attentions: list[torch.Tensor | None] = field(default_factory=list)
    last: torch.Tensor = field(default_factory=lambda: torch.empty(0, 0))


def first_tensor(value: Any) -> torch.Tensor | None:
    """The first tensor with columns among arguments or outputs; the value itself if it is one."""
    if isinstance(value, torch.Tensor):
        return value if value.ndim > 1 else None
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next((tensor for part in values if (tensor := first_tensor(part)) is not None), None)


@contextmanager
def eager(encoder: Any) -> Iterator[None]:
    """The encoder with the model's own eager attention, which returns its probabilities, one length at a time."""
    stock, mixed = encoder.model.config._attn_implementation, encoder.mixed_lengths
    encoder.model.set_attn_implementation("eager")
    encoder.mixed_lengths = False
    try:
        yield
    finally:
        encoder.model.set_attn_implementation(stock)
        encoder.mixed_lengths = mixed


def probabilities_of(output: Any, depth: int, t: int) -> list[torch.Tensor | None]:
    """The attention probabilities (heads, t, t) of each block in a model's output for one sequence.

    None for blocks that return none, or others: MiniMax's linear attention, LongT5's of neighbourhoods.
    """
    own = getattr(output, "attentions", None) or ()
    if len(own) != depth:
        return [None] * depth
    return [None if x is None or x.ndim != 4 or x.shape[-2:] != (t, t) else x[0] for x in own]


def record(encoder: Any, batch: Batch) -> Recording:
    """Run a batch of one sequence with eager attention, and record it.

    Parameters
    ----------
    encoder : HuggingFaceEncoder
        The encoder.
    batch : Batch
        One sequence.
    """
    found, t = Recording(), len(batch.token_ids)
    paths = {id(m): (block, path) for block in find_blocks(encoder.model) for path, m in block.named_modules()}
    outside = {id(m): path for path, m in encoder.model.named_modules() if path and id(m) not in paths}
    open_calls: list[Call] = []

    def rows(value: Any) -> torch.Tensor | None:
        tensor = first_tensor(value)
        if tensor is None or not tensor.is_floating_point() or tensor.numel() != t * tensor.shape[-1]:
            return None
        return tensor.detach().reshape(t, -1).clone()

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path = paths[id(module)][1] if id(module) in paths else outside[id(module)]
        if id(module) in paths and not path:
            found.modules.append(module)
            found.blocks.append([])
        open_calls.append(Call(path, module, rows(args or kwargs)))

    def after(module: nn.Module, _: Any, output: Any) -> None:
        call = open_calls.pop()
        call.returned = rows(output)
        if id(module) in paths:
            found.blocks[-1].append(call)
        elif len(found.blocks) == encoder.depth:
            found.after.append(call)

    hooks = []
    for module in encoder.model.modules():
        if id(module) in paths or id(module) in outside:
            hooks += [module.register_forward_pre_hook(before, with_kwargs=True), module.register_forward_hook(after)]
    try:
        with eager(encoder), torch.inference_mode():
            output = encoder.model(**encoder.inputs(batch), output_attentions=True)
    finally:
        for hook in hooks:
            hook.remove()
    found.attentions = [None if own is None else own.clone() for own in probabilities_of(output, encoder.depth, t)]
    found.last = output.last_hidden_state.reshape(t, -1)
    for k, calls in enumerate(found.blocks):
        seen = [call.path for call in calls]
        found.blocks[k] = [call for call in calls if seen.count(call.path) == 1]
    return found
