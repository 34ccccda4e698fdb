"""Mixout: dropout of the difference between weights and pretrained weights (Lee, Cho & Kang 2020)."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

__all__ = ["add_mixout", "linear_layers", "mixout"]


def mixout(weight: Tensor, start: Tensor, p: float) -> Tensor:
    """Each weight replaced by its value at the start with probability p, corrected so that the mean is the weight.

    ((1 - m) w0 + m w - p w0) / (1 - p) with m = 0 with probability p, else 1 (equation 4), which is w0 + the dropout of
    w - w0. The mask comes from torch's generator.

    Examples
    --------
    >>> import torch
    >>> from probekit.adaptation.optimisation.mixout import mixout
    >>> w, w0 = torch.tensor([2.0, 2.0, 2.0, 2.0]), torch.ones(4)
    >>> sorted(set(mixout(w, w0, 0.5).tolist())) in ([1.0], [1.0, 3.0], [3.0])
    True
    """
    return start + functional.dropout(weight - start, p)


def linear_layers(module: nn.Module) -> list[nn.Module]:
    """The trained linear layers (and GPT-2's Conv1D) of a module."""
    return [one for one in module.modules() if isinstance(one, nn.Linear | Conv1D) and one.weight.requires_grad]


def add_mixout(module: nn.Module, p: float) -> int:
    """Apply :func:`mixout` in training to the weights of all :func:`linear_layers` of a module.

    The weights of now are those at the start, of which one copy is kept outside the module's state. Biases are not
    replaced, as in the authors' program. Returns the number of layers.
    """
    layers = linear_layers(module)
    for layer in layers:
        mixed = _Mixed(cast("Tensor", layer.weight).detach().clone(), p)
        layer.register_forward_pre_hook(mixed.begin)
        layer.register_forward_hook(mixed.end, always_call=True)
    return len(layers)


class _Mixed:
    """Hides a layer's parameter behind the mixed weight during its forward pass."""

    def __init__(self, start: Tensor, p: float) -> None:
        self.start, self.p = start, p

    def begin(self, layer: nn.Module, inputs: Any) -> None:
        if layer.training:
            weight = layer._parameters["weight"]
            assert weight is not None
            self.start = self.start.to(weight.device)
            layer.__dict__["weight"] = mixout(weight, self.start, self.p)

    def end(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        layer.__dict__.pop("weight", None)
