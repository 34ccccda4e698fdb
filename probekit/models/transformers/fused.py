"""Steps of a model's blocks that are several passes over memory in transformers, in fewer.

oneDNN applies an activation to a product, and multiplies it by another tensor, while the product is in the registers.
Only float32 is fused: in bfloat16 a fused step rounds less often, so it gives other bits than the model's own forward
pass, and no gain was seen (``benchmarks/fused.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from transformers.activations import GELUActivation, GELUTanh, NewGELUActivation, SiLUActivation

from probekit.models.transformers.onednn import PrepackedLinear

IN_ONEDNN: dict[type[nn.Module], tuple[str, str]] = {
    GELUActivation: ("gelu", "none"),
    GELUTanh: ("gelu", "tanh"),
    NewGELUActivation: ("gelu", "tanh"),
    SiLUActivation: ("swish", ""),
    nn.SiLU: ("swish", ""),
    nn.ReLU: ("relu", ""),
}


class GatedMLP(nn.Module):
    """``down(act(gate(x)) * up(x))``, the MLP of Llama and its kin, whose gate applies the activation itself."""

    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = mlp.gate_proj, mlp.up_proj, mlp.down_proj

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = self.down_proj(self.up_proj.combined(x, self.gate_proj(x), "mul"))
        return product


class AddedNorm(nn.Module):
    """``norm(dense(x) + stream)``, the end of each half of a BERT block; where ``dense`` is read, it runs alone.

    Both ways give the same bits.
    """

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.dense, self.LayerNorm = output.dense, output.LayerNorm

    def forward(self, x: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        read = self.dense._forward_hooks or self.dense._forward_pre_hooks
        total = self.dense(x) + stream if read else self.dense.combined(x, stream, "add")
        normed: torch.Tensor = self.LayerNorm(total)
        return normed


class RMSNorm(nn.Module):
    """Llama's norm: x / sqrt(mean(x²) + epsilon), times a weight; in float32."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.epsilon = norm.weight, float(norm.variance_epsilon)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = size.square_().div_(x.shape[-1]).add_(self.epsilon).rsqrt_()
        return (x * scale).mul_(self.weight)


def rotated(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' ``apply_rotary_pos_emb`` in two passes over queries and keys (…, t, d) instead of five.

    If ``cos`` and ``sin`` are narrower than d, the rest of each head is left as it is (GPT-NeoX).
    """
    cos, sin, width = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim), cos.shape[-1]
    first, second = slice(width // 2), slice(width // 2, width)

    def turn(x: torch.Tensor) -> torch.Tensor:
        turned = x[..., :width] * cos
        turned[..., first].addcmul_(x[..., second], sin[..., first], value=-1)
        turned[..., second].addcmul_(x[..., first], sin[..., second])
        return turned if width == x.shape[-1] else torch.cat([turned, x[..., width:]], -1)

    return turn(query), turn(key)


def fuse(model: nn.Module, run: Callable[[], Any]) -> bool:
    """Fuse what follows the prepacked products of ``model``, in place; ``run`` runs it once, so that it can be seen.

    Returns
    -------
    bool
        Whether anything was fused.
    """
    activated = _activated(model, run)
    for linear, activation in activated:
        linear.then = _in_onednn(activation)
    fused = {activation for _, activation in activated}
    replaced = [
        _replace(model, lambda module: nn.Identity() if module in fused else None),
        _replace(model, _shorter),
        sum(_rotate(module) for module in model.modules()),
    ]
    return any(replaced)


def _in_onednn(module: nn.Module) -> tuple[str, str]:
    """oneDNN's name of an activation, and of its variant; "" if it is none that oneDNN has."""
    if isinstance(module, nn.GELU):
        return "gelu", module.approximate
    return next((names for kind, names in IN_ONEDNN.items() if isinstance(module, kind)), ("", ""))


def _activated(model: nn.Module, run: Callable[[], Any]) -> list[tuple[PrepackedLinear, nn.Module]]:
    """The activations that read nothing but what a product returned, each with the product's layer."""
    made: list[tuple[PrepackedLinear, torch.Tensor]] = []
    read: dict[nn.Module, list[PrepackedLinear | None]] = {}

    def after(module: Any, _: Any, output: torch.Tensor) -> None:
        made.append((module, output))

    def before(module: nn.Module, args: tuple[Any, ...]) -> None:
        read.setdefault(module, []).append(next((layer for layer, y in made if args and y is args[0]), None))

    handles = [m.register_forward_hook(after) for m in model.modules() if isinstance(m, PrepackedLinear)]
    handles += [m.register_forward_pre_hook(before) for m in model.modules() if _in_onednn(m)[0]]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return [(x, module) for module, layers in read.items() if None not in layers for x in layers if x is not None]


def _shorter(module: nn.Module) -> nn.Module | None:
    """A module that computes the same in fewer passes over memory; None if there is none."""
    parts = dict(module.named_children())
    prepacked = [part for part in parts.values() if isinstance(part, PrepackedLinear)]
    if parts.keys() == {"gate_proj", "up_proj", "down_proj", "act_fn"} and len(prepacked) == 3:
        return GatedMLP(module) if isinstance(parts["act_fn"], nn.Identity) else None
    if parts.keys() == {"dense", "LayerNorm", "dropout"} and prepacked:
        return added if _same_sum(module, added := AddedNorm(module)) else None
    llamas = type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon")
    return RMSNorm(module) if llamas else None


def _same_sum(module: nn.Module, added: AddedNorm) -> bool:
    """Whether a module with the parts of :class:`AddedNorm` computes the same; X-MOD's applies its norm elsewhere."""
    generator, width = torch.Generator().manual_seed(0), added.LayerNorm.normalized_shape[-1]
    x = torch.randn(2, added.dense.in_features, generator=generator)
    stream = torch.randn(2, width, generator=generator)
    try:
        with torch.inference_mode():
            return torch.allclose(module(x, stream), added(x, stream), rtol=0, atol=1e-5)
    except TypeError:  # it wants other tensors, too
        return False


def _rotate(module: Any) -> bool:
    """Let an attention module call :func:`rotated` instead of the same function of its own file."""
    forward = type(module).forward
    code, names = getattr(forward, "__code__", None), getattr(forward, "__globals__", {})
    own = names.get("apply_rotary_pos_emb")
    if code is None or "apply_rotary_pos_emb" not in code.co_names or not _same_rotation(own):
        return False
    changed = FunctionType(code, {**names, "apply_rotary_pos_emb": rotated}, code.co_name, forward.__defaults__)
    changed.__kwdefaults__ = forward.__kwdefaults__
    module.forward = MethodType(changed, module)
    return True


@cache
def _same_rotation(own: Any) -> bool:
    """Whether a function is what :func:`rotated` computes; some models turn a part of each head, or other pairs."""
    generator = torch.Generator().manual_seed(0)
    heads, turns = (torch.randn(2, *shape, generator=generator) for shape in ((1, 2, 7, 32), (1, 7, 32)))
    try:
        pairs = zip(own(*heads, *turns), rotated(*heads, *turns), strict=True)
        return all(torch.allclose(one, other, rtol=0, atol=1e-5) for one, other in pairs)  # rounding gives 5e-7
    except (TypeError, RuntimeError):
        return False


def _replace(model: nn.Module, other: Callable[[nn.Module], nn.Module | None]) -> int:
    """Replace each module below ``model`` for which ``other`` returns one; returns their number."""
    pairs = [
        (parent, name, new)
        for parent in model.modules()
        for name, child in parent.named_children()
        if (new := other(child)) is not None
    ]
    for parent, name, new in pairs:
        setattr(parent, name, new)
    return len(pairs)
