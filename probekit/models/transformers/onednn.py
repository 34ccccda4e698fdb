"""Linear layers whose weights oneDNN has laid out once, for the processor at hand.

PyTorch's default matrix product reaches well under half of what oneDNN's does on some processors (AMD Zen 5: 95
against 220 GFLOP/s a core in float32), and does not give the same bits for few rows as for many.

Nor does oneDNN's everywhere: where a processor multiplies tiles (Intel's AMX, bfloat16), the number of rows decides how
the sum over the inputs is split, and so how it is rounded. There the rows are taken ``EQUAL_ROWS`` at a time, the last
ones filled up, so that each row goes through the same kernel whatever stands beside it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

__all__ = ["PrepackedLinear", "Repeated", "TrainedLinear", "onednn_available", "prepack", "train_with_onednn"]


EQUAL_ROWS = 256
"""Rows of a product where their number matters. A core with AMX reaches 0.95 TFLOP/s with 256, 1.2 with 1,000 in one
product, 0.7 with 64; float32 reaches 0.17 there. More would be lost on short batches."""


class PrepackedLinear(nn.Module):
    """``x @ weight.T + bias`` with the weight in oneDNN's own layout; rows do not depend on each other's number."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())
        self.bias = None if bias is None else bias.detach().clone()
        self.equal_rows = _number_matters(self.in_features, self.out_features, weight.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features)
        if self.equal_rows:
            product = self._equal_parts(rows)
        elif len(rows) == 1:  # one row alone takes another kernel, which adds in another order
            product = self._product(rows.expand(2, -1).contiguous())[:1]
        else:
            product = self._product(rows)
        return product.view(*x.shape[:-1], self.out_features)

    def _equal_parts(self, rows: torch.Tensor) -> torch.Tensor:
        product = rows.new_empty(len(rows), self.out_features)
        for into, part in zip(product.split(EQUAL_ROWS), rows.split(EQUAL_ROWS), strict=True):
            full = part if len(part) == EQUAL_ROWS else nn.functional.pad(part, (0, 0, 0, EQUAL_ROWS - len(part)))
            into.copy_(self._product(full)[: len(part)])
        return product

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


@cache
def _number_matters(inner: int, outer: int, dtype: torch.dtype) -> bool:
    """Whether a row of such a product may come out otherwise beside other numbers of rows: known of AMX, else tried."""
    if dtype is torch.bfloat16 and getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)():
        return True
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, inner, generator=generator).to(dtype) for n in (300, outer))
    weight = torch.ops.mkldnn._reorder_linear_weight(weight)

    def product(rows: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, weight, None, "none", [], "")

    with torch.inference_mode():
        full = product(x)
        return any(not torch.equal(product(x[:n]), full[:n]) for n in (2, 7, 12, 33, 129, 260))


class TrainedLinear(nn.Linear):
    """A linear layer that computes its products, and those of its gradients, with oneDNN: same weights, same names."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if torch.is_autocast_enabled("cpu") or not input.numel():  # bfloat16 goes to oneDNN anyway
            return super().forward(input)
        product: torch.Tensor = _Product.apply(input.reshape(-1, self.in_features), self.weight, self.bias)
        return product.view(*input.shape[:-1], self.out_features)


class _Product(torch.autograd.Function):
    """x (n, in) @ weight.T (in, out) + bias."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        (x, weight), wanted = ctx.saved_tensors, ctx.needs_input_grad
        return (
            _product(gradient, weight.T) if wanted[0] else None,
            _product(gradient.T, x.T) if wanted[1] else None,
            gradient.sum(0) if wanted[2] else None,
        )


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight.contiguous(), bias, "none", [], "")


class Repeated:
    """A linear layer without bias that one forward pass runs many times, on a few rows each, and that is trained.

    Each run alone would read the weight anew to lay it out, and write a gradient of its size. Here it is laid out once,
    and its gradient is one product over the rows of all runs, for which what is added to their results must be there
    beforehand: ``repeated = Repeated(linear); base = repeated.onto(base)``, then ``base[i] + repeated(x)`` for each row
    of ``base`` in order.
    """

    def __init__(self, linear: nn.Linear) -> None:
        self.weight, self.read = linear.weight, list[torch.Tensor]()
        self.onednn = isinstance(linear, TrainedLinear) and not torch.is_autocast_enabled("cpu")
        fixed = self.weight.detach()
        self.fixed = (PrepackedLinear(fixed, None), PrepackedLinear(fixed.T, None)) if self.onednn else (fixed,)

    def onto(self, base: torch.Tensor) -> torch.Tensor:
        """``base`` (t, out) itself, by whose gradient the weight gets its own."""
        return _Onto.apply(base, self.weight, self)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product of rows x (n, in), through which no gradient comes to the weight."""
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
        product = _product(gradient.T, x.T) if repeated.onednn else gradient.T @ x.to(gradient.dtype)
        return gradient, product.to(repeated.weight.dtype), None


def train_with_onednn(model: nn.Module) -> int:
    """Let every linear layer of ``model`` compute with oneDNN while it is trained, in place; returns how many."""
    found = [module for module in model.modules() if type(module) is nn.Linear]
    for module in found:
        module.__class__ = TrainedLinear
    return len(found)


class OneByOne(nn.Module):
    """A convolution of one sequence after another: of several at once, oneDNN takes another algorithm."""

    def __init__(self, convolution: nn.Conv1d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.convolution(one) for one in x.split(1)])


@cache
def onednn_available(dtype: torch.dtype) -> bool:
    """Whether prepacked products of this dtype work here and are what the processor does well."""
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
    """Swap every linear layer (and GPT-2's Conv1D) of ``model`` for a prepacked one.

    Convolutions, which DeBERTa-v2 has, are run one sequence at a time from then on.

    Returns
    -------
    str
        The way that products go, on which their last bits depend: "onednn", "onednn-256" where rows are taken so many
        at a time, "" where there is nothing to swap.
    """
    found: list[tuple[nn.Module, str, Any]] = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) in (nn.Linear, Conv1D, nn.Conv1d)
    ]
    way = "onednn" if found else ""
    while found:  # popped, so that each old weight is freed before the next is laid out
        parent, name, child = found.pop()
        if isinstance(child, nn.Conv1d):
            setattr(parent, name, OneByOne(child))
            continue
        weight = child.weight.T if isinstance(child, Conv1D) else child.weight
        setattr(parent, name, laid_out := PrepackedLinear(weight, child.bias))
        way = f"onednn-{EQUAL_ROWS}" if laid_out.equal_rows else way
    return way
