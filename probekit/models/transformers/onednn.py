"""Linear layers with weights that oneDNN has prepacked for this processor.

On some processors PyTorch's default matrix product reaches well under half of oneDNN's speed (AMD Zen 5: 95 against 220
GFLOP/s per core in float32), and its last bits depend on the number of rows.

oneDNN's also do on processors that multiply tiles (Intel's AMX, bfloat16): there the number of rows determines how the
sum over the inputs is split, and thus rounded. On these processors the rows are multiplied ``EQUAL_ROWS`` at a time,
the last block padded, so that each row goes through the same kernel whatever the other rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

EQUAL_ROWS = 256
"""Rows per product if their number affects the bits. A core with AMX reaches 0.95 TFLOP/s with 256 rows, 1.2 with
1,000, 0.7 with 64; float32 reaches 0.17 there. More rows would cost more on short batches."""


class PrepackedLinear(nn.Module):
    """``x @ weight.T + bias`` with the weight in oneDNN's layout; no row depends on the number of rows."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())
        self.bias = None if bias is None else bias.detach().clone()
        self.equal_rows = _depends_on_rows(self.in_features, self.out_features, weight.dtype)
        self.then = ("none", "")  # the activation, as oneDNN calls it, and its variant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        activation, variant = self.then
        return self._by_rows(lambda rows: self._onednn(rows, self.weight, self.bias, activation, [], variant), x)

    def combined(self, x: torch.Tensor, other: torch.Tensor, how: str) -> torch.Tensor:
        """The product plus ("add") or times ("mul") another tensor (…, out), which saves a pass over memory."""
        product = self._onednn.binary
        return self._by_rows(lambda rows, to: product(rows, to, self.weight, self.bias, how), x, other)

    @property
    def _onednn(self) -> Any:
        return torch.ops.mkldnn._linear_pointwise

    def _by_rows(self, product: Callable[..., torch.Tensor], *given: torch.Tensor) -> torch.Tensor:
        """A product of rows that does not depend on their number."""
        rows = [x.reshape(-1, x.shape[-1]) for x in given]
        count = len(rows[0])
        if self.equal_rows:
            result = rows[0].new_empty(count, self.out_features)
            for into, *parts in zip(result.split(EQUAL_ROWS), *(x.split(EQUAL_ROWS) for x in rows), strict=True):
                lacking = EQUAL_ROWS - len(into)
                full = [nn.functional.pad(part, (0, 0, 0, lacking)) if lacking else part for part in parts]
                into.copy_(product(*full)[: len(into)])
        elif count == 1:  # a single row takes another kernel, which adds in another order
            result = product(*(x.expand(2, -1).contiguous() for x in rows))[:1]
        else:
            result = product(*rows)
        return result.view(*given[0].shape[:-1], self.out_features)


@cache
def _depends_on_rows(inner: int, outer: int, dtype: torch.dtype) -> bool:
    """Whether the bits of a row of the product depend on the number of rows: known for AMX, otherwise tested."""
    if dtype is torch.bfloat16 and getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)():
        return True
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, inner, generator=generator).to(dtype) for n in (300, outer))
    weight = torch.ops.mkldnn._reorder_linear_weight(weight)

    def onednn_linear(rows: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, weight, None, "none", [], "")

    with torch.inference_mode():
        full = onednn_linear(x)
        return any(not torch.equal(onednn_linear(x[:n]), full[:n]) for n in (2, 7, 12, 33, 129, 260))


class TrainedLinear(nn.Linear):
    """A linear layer that computes its products and their gradients with oneDNN; weights keep their names."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled("cpu") or not input.numel():  # bfloat16 uses oneDNN anyway
            return super().forward(input)
        product: torch.Tensor = _Product.apply(input.reshape(-1, self.in_features), self.weight, self.bias)
        return product.view(*input.shape[:-1], self.out_features)


class TrainedConv1D(Conv1D):
    """GPT-2's linear layer, whose weight is (in, out), computed like :class:`TrainedLinear`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled("cpu") or not x.numel():
            result: torch.Tensor = super().forward(x)
            return result
        product: torch.Tensor = _Product.apply(x.reshape(-1, self.nx), self.weight.T, self.bias)
        return product.view(*x.shape[:-1], self.nf)


class _Product(torch.autograd.Function):
    """x (n, in) @ weight.T (in, out) + bias."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return onednn_linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        (x, weight), needed = ctx.saved_tensors, ctx.needs_input_grad
        return (
            onednn_linear(gradient, weight.T) if needed[0] else None,
            onednn_linear(gradient.T, x.T) if needed[1] else None,
            gradient.sum(0) if needed[2] else None,
        )


def onednn_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x (n, in) @ weight.T (in, out) + bias with oneDNN, without gradients."""
    return torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight.contiguous(), bias, "none", [], "")


class Repeated:
    """A trained linear layer without bias that one forward pass runs many times, each time on a few rows.

    Run separately, each call would prepack the weight again and write a gradient of its size. Here the weight is
    prepacked once, and its gradient is one product over the rows of all calls. This requires the terms that are added
    to the results in advance: ``repeated = Repeated(linear); base = repeated.onto(base)``, then ``base[i] +
    repeated(x)`` for each row of ``base`` in order.
    """

    def __init__(self, linear: nn.Linear) -> None:
        self.weight, self.read = linear.weight, list[torch.Tensor]()
        self.onednn = isinstance(linear, TrainedLinear) and not torch.is_autocast_enabled("cpu")
        fixed = self.weight.detach()
        self.fixed = (PrepackedLinear(fixed, None), PrepackedLinear(fixed.T, None)) if self.onednn else (fixed,)

    def onto(self, base: torch.Tensor) -> torch.Tensor:
        """``base`` (t, out) unchanged; the weight's gradient is computed from that of ``base``."""
        return _Onto.apply(base, self.weight, self)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product of rows x (n, in); no gradient reaches the weight through it."""
        self.read.append(x.detach())
        return (_Fixed.apply if self.onednn else nn.functional.linear)(x, *self.fixed)


class _Fixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, there: PrepackedLinear, back: PrepackedLinear) -> torch.Tensor:
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return ctx.back(gradients[0].contiguous()) if ctx.needs_input_grad[0] else None, None, None


class _Onto(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, base: torch.Tensor, weight: torch.Tensor, repeated: Repeated) -> torch.Tensor:
        ctx.repeated = repeated
        return base.view_as(base)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,), repeated = gradients, ctx.repeated
        x = torch.cat(repeated.read)
        product = onednn_linear(gradient.T, x.T) if repeated.onednn else gradient.T @ x.to(gradient.dtype)
        return gradient, product.to(repeated.weight.dtype), None


def train_with_onednn(model: nn.Module) -> int:
    """Make every linear layer (and GPT-2's Conv1D) of ``model`` train with oneDNN, in place; returns their number."""
    found = [module for module in model.modules() if type(module) in _TRAINED]
    for module in found:
        module.__class__ = _TRAINED[type(module)]
    return len(found)


_TRAINED: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: TrainedLinear, Conv1D: TrainedConv1D}


class OneByOne(nn.Conv1d):
    """A convolution of one sequence at a time: for several at once, oneDNN uses another algorithm.

    Its weights keep their names, since some models read them (Mamba).
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.cat([super(OneByOne, self).forward(sequence) for sequence in input.split(1)])


@cache
def onednn_available(dtype: torch.dtype) -> bool:
    """Whether prepacked products of this dtype work and are fast on this processor."""
    if not torch.backends.mkldnn.is_available() or dtype not in (torch.float32, torch.bfloat16):
        return False
    try:
        if dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        layer = PrepackedLinear(torch.ones(4, 8, dtype=dtype), None)
        with torch.inference_mode():
            return bool((layer(torch.ones(3, 8, dtype=dtype)) == 8).all())
    except (AttributeError, RuntimeError):
        return False


def prepack(model: nn.Module) -> str:
    """Replace every linear layer (and GPT-2's Conv1D) of ``model`` with a prepacked one.

    Convolutions (as in DeBERTa-v2) then run one sequence at a time. Quantised layers prepack their weight in each pass.
    GPT-2's GELU, eight passes over memory in transformers, becomes one of torch (differences up to 2.4e-7).

    Returns
    -------
    str
        The method of the products, which determines their last bits: "onednn", "onednn-256" if rows are multiplied 256
        at a time, "+gelu" if GPT-2's GELU was replaced; "" if there is nothing to replace.
    """
    found: list[tuple[nn.Module, str, Any]] = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) in (nn.Linear, Conv1D, nn.Conv1d) or hasattr(child, "full_weight")
    ]
    method = "onednn" if found else ""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    while found:  # popped, so that each old weight is freed before the next is prepacked
        parent, name, child = found.pop()
        if isinstance(child, nn.Conv1d):
            child.__class__ = OneByOne
            continue
        if hasattr(child, "full_weight"):
            child.prepacked = True
            equal_rows = _depends_on_rows(child.in_features, child.out_features, dtype)
            method = f"onednn-{EQUAL_ROWS}" if equal_rows else method
            continue
        weight = child.weight.T if isinstance(child, Conv1D) else child.weight
        setattr(parent, name, prepacked := PrepackedLinear(weight, child.bias))
        method = f"onednn-{EQUAL_ROWS}" if prepacked.equal_rows else method
    curved = [(parent, name) for parent in model.modules() for name, child in parent.named_children()
              if type(child) is NewGELUActivation]  # fmt: skip
    for parent, name in curved:
        setattr(parent, name, nn.GELU(approximate="tanh"))
    return f"{method}+gelu" if method and curved else method
