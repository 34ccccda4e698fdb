"""The parts of a model: its blocks, what stands without the head, and the norm after the last block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from probekit.errors import ModelError


def depth_of(model: Any) -> int:
    """The number of blocks that a model runs: those of its configuration, or the first ones if no others were read."""
    first = getattr(model, "first_blocks", None)
    return int(model.config.num_hidden_layers) if first is None else len(first)


def find_blocks(model: Any) -> list[nn.Module]:
    """The blocks of a model, in order (for ALBERT the groups, which run repeatedly).

    They are the first list of equal modules with as many items as the config has layers, or else of unequal ones, such
    as blocks with attention and blocks with a state (Jamba).

    Raises
    ------
    ModelError
        If no list of modules has as many items as the config has layers.
    """
    if (first := getattr(model, "first_blocks", None)) is not None:
        return list(first)
    told = (getattr(model.config, name, None) for name in ("num_hidden_layers", "num_hidden_groups"))
    depths = {depth for depth in told if isinstance(depth, int)}  # LXMERT has one for each sense
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) in depths]
    if not lists:
        raise ModelError(
            f"{type(model).__name__} has no list of {' or '.join(map(str, depths)) or 'num_hidden_layers'} equal "
            "blocks; this architecture is not supported."
        )
    return list(next((blocks for blocks in lists if len(set(map(type, blocks))) == 1), lists[0]))


def body(model: Any) -> Any:
    """A model without its head; transformers' ``base_model`` misses Llama 4's, whose name it does not know."""
    parts = (part for part in model.children() if hasattr(part, "get_input_embeddings"))
    return model.base_model if model.base_model is not model else next(parts, model)


def find_final_norm(model: Any, run: Callable[[], torch.Tensor]) -> tuple[nn.Module, torch.Tensor] | None:
    """The module that turns the stream after the last block into the last hidden state, and what it reads.

    Parameters
    ----------
    model : nn.Module
        The model without a head.
    run : callable
        Runs it once, and returns the last hidden state.

    Returns
    -------
    tuple or None
        None if no module outside the lists of blocks returns that state and reads another one, perhaps of another
        width.
    """
    seen: list[tuple[nn.Module, torch.Tensor, torch.Tensor]] = []

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        given = next((x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)), None)
        if given is not None and isinstance(output, torch.Tensor) and given.shape[:-1] == output.shape[:-1]:
            seen.append((module, given.clone(), output.clone()))

    inside = {id(m) for part in model.modules() if isinstance(part, nn.ModuleList) for m in part.modules()}
    outside = [m for m in model.modules() if id(m) not in inside and not any(m.children())]
    hooks = [module.register_forward_hook(keep, with_kwargs=True) for module in outside]
    try:
        with torch.inference_mode():
            last = run()
    finally:
        for hook in hooks:
            hook.remove()
    text = slice(-last.shape[1], None)  # trained vectors may be read before it
    pairs = [(module, given[:, text], output[:, text]) for module, given, output in seen if output.ndim == last.ndim]
    found = [(module, given) for module, given, output in pairs if same(output, last) and not same(given, last)]
    return found[-1] if found else None


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors, perhaps on two devices, have the same numbers; NaN is like NaN."""
    if one.shape != other.shape:
        return False
    return torch.allclose(one.to(other.device), other, rtol=0, atol=0, equal_nan=True)
