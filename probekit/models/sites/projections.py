"""Linear layers and norms among a model's modules, and the weights that they multiply by."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from probekit.models.transformers.onednn import PrepackedLinear


def inputs(module: Any) -> int:
    """The number of inputs of a linear layer; 0 for other modules."""
    if isinstance(module, Conv1D):
        return int(module.nx)
    return int(module.in_features) if hasattr(module, "in_features") and hasattr(module, "out_features") else 0


def outputs(module: Any) -> int:
    """The number of outputs of a linear layer; 0 for other modules."""
    return int(module.nf if isinstance(module, Conv1D) else module.out_features) if inputs(module) else 0


def is_norm(module: nn.Module) -> bool:
    """Whether a module normalises vectors: a leaf with "norm" in the name of its class, and no matrix of weights."""
    matrix = any(parameter.ndim > 1 for parameter in module.parameters())
    return "norm" in type(module).__name__.lower() and not any(module.children()) and not matrix


def product(module: Any, x: torch.Tensor) -> torch.Tensor:
    """``x @ weight.T + bias`` computed from the module's weights, not by the module; float64, or float32 if x is not.

    Raises
    ------
    AttributeError
        If the module keeps its weights in another form.
    """
    precision = torch.float64 if x.dtype == torch.float64 else torch.float32
    if isinstance(module, Conv1D):
        weight = module.weight.T
    elif isinstance(module, PrepackedLinear):
        weight = module.weight.to_dense()
    else:
        weight = module.full_weight() if hasattr(module, "full_weight") else whole(module.weight)
    bias = None if getattr(module, "bias", None) is None else whole(module.bias).to(precision)
    return nn.functional.linear(x.to(precision), weight.to(precision), bias)


def whole(weight: Any) -> Any:
    """A weight; of one that processes share, all slices, which each of them must ask for at once."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight
