"""Models whose blocks' linear layers hold weights of 8 or 4 bits, rounded by bitsandbytes.

The products are not those of bitsandbytes' layers: the weights are expanded before each product, in training and in
inference alike, and the activations keep their precision. In bitsandbytes 8-bit inference also rounds the activations,
so that a vector depends on the others in its batch; and on processors with AVX512-BF16, a 4-bit layer computes in
bfloat16 when it does not train, and fails when it then trains again.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from transformers import BitsAndBytesConfig
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

from probekit.errors import ModelError
from probekit.models.transformers.blocks import find_blocks
from probekit.models.transformers.onednn import PrepackedLinear
from probekit.models.transformers.towers import make, tower_of

SETTINGS: dict[str, dict[str, Any]] = {
    "8bit": {"load_in_8bit": True, "llm_int8_threshold": 0.0},
    "4bit": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
}
"""8 bits: one scale for each output (Dettmers et al. 2022, section 3.1). 4 bits: NormalFloat with one scale for each 64
weights, itself of 8 bits (Dettmers et al. 2023, section 3)."""


BLOCK = 64
"""Weights that share a scale with 4 bits."""


def check_available(quantise: str) -> None:
    """Raise ModelError if bitsandbytes is not installed."""
    if find_spec("bitsandbytes") is None:
        raise ModelError(
            f"{quantise} weights need bitsandbytes, which is not installed: pip install 'probekit-lm[quantised]'."
        )


EXPANDED = ("fp8", "mxfp4", "mxfp8", "compressed-tensors")
"""The methods whose weights transformers expands to full precision when it reads them."""


def checkpoint_options(config: Any, how: str, device: Any) -> dict[str, Any]:
    """The arguments of ``from_pretrained`` for a folder of quantised weights.

    Parameters
    ----------
    config : Any
        Its configuration; it is changed if the weights are to be expanded.
    how : str
        How they are quantised (:func:`probekit.models.folder.quantisation`); "" if they are not.
    device : Any
        Where the model is to be.

    Raises
    ------
    ModelError
        If transformers does not know the method, or bitsandbytes is needed and not installed.
    """
    if not how:
        return {}
    method = how.partition(" ")[0]
    if method != "bitsandbytes" and method not in AUTO_QUANTIZER_MAPPING:
        raise ModelError(f"its weights are quantised by {method!r}, which this version of transformers does not read.")
    if how in EXPANDED:
        config.quantization_config = {**config.quantization_config, "dequantize": True}
        return {}
    if (bits := bits_of(how)) is not None:
        check_available(bits)
        config.quantization_config = {"quant_method": "bitsandbytes", **config.quantization_config}
        return {"device_map": {"": "cpu"}}
    return {"device_map": {"": str(device)}}


def bits_of(how: str) -> str | None:
    """ "8bit" or "4bit" for weights that bitsandbytes has rounded; None for others."""
    method, _, bits = how.partition(" ")
    return bits if method == "bitsandbytes" else None


def reading_options(config: Any, quantise: str) -> dict[str, Any]:
    """The arguments of ``from_pretrained`` that quantise the linear layers of the blocks, on the CPU.

    Parameters
    ----------
    config : Any
        The configuration of the model.
    quantise : str
        "8bit" or "4bit".

    Raises
    ------
    ModelError
        For 4 bits, if the inputs of a layer are no multiple of 64: bitsandbytes (0.50) expands such weights wrongly on
        some processors.
    """
    with torch.device("meta"):
        model = make(config)
    tower, _ = tower_of(model)
    blocks = find_blocks(tower.get_encoder() if tower.config.is_encoder_decoder else tower)
    inside = {id(module) for block in blocks for module in block.modules()}
    for name, module in model.named_modules() if quantise == "4bit" else ():
        if id(module) in inside and isinstance(module, nn.Linear | Conv1D) and (width := _inputs(module)) % BLOCK:
            raise ModelError(
                f"{name} has {width} inputs; 4bit needs a multiple of {BLOCK}, whose weights share a scale. Give 8bit."
            )
    others = [n for n, m in model.named_modules() if isinstance(m, nn.Linear | Conv1D) and id(m) not in inside]
    skip = [f"{name.replace('.', '[.]')}$" for name in others]  # regular expressions
    how = BitsAndBytesConfig(**SETTINGS[quantise], llm_int8_skip_modules=skip)
    return {"quantization_config": how, "device_map": {"": "cpu"}}


def quantised(model: Any, quantise: str) -> Any:
    """A model that was loaded with :func:`reading_options`, with the products of this module, in place.

    The quantised layers are frozen, and not in ``state_dict``: they come from the base.

    Raises
    ------
    ModelError
        If no layer is quantised.
    """
    from bitsandbytes.nn import Linear4bit, Linear8bitLt

    found = [module for module in model.modules() if type(module) in (Linear4bit, Linear8bitLt)]
    if not found:
        raise ModelError(f"{type(model).__name__} has no linear layers in its blocks that bitsandbytes can quantise.")
    for module in found:
        module.__class__ = _frozen(module.__class__)
    model.is_quantized = True  # also for the encoder of an encoder-decoder
    setattr(model, f"is_loaded_in_{quantise}", True)  # for peft
    return model


def number_of_weights(parameter: torch.Tensor) -> int:
    """The number of weights in a parameter; with 4 bits, two share a byte."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else int(state.shape.numel())


def _inputs(layer: Any) -> int:
    return int(layer.in_features if isinstance(layer, nn.Linear) else layer.nx)


@cache
def _frozen(kind: Any) -> Any:
    """The subclass of one of bitsandbytes' layers with the product of this module."""
    return type(f"Frozen{kind.__name__}", (_Frozen, kind), {})


class _Frozen(nn.Module):
    """A quantised linear layer that is not trained.

    Attributes
    ----------
    prepacked : bool
        Whether oneDNN computes the product, of which no row then depends on the number of rows.
    """

    weight: Any
    bias: torch.Tensor | None
    prepacked = False

    def full_weight(self) -> torch.Tensor:
        """The expanded weight, float32 (out, in)."""
        from bitsandbytes.functional import dequantize_4bit

        state = getattr(self.weight, "quant_state", None)
        if state is None:
            return self.weight.data * (self.weight.SCB[:, None] / 127)
        return dequantize_4bit(self.weight.data, state)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = _Product.apply(x, self)
        return product

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """The product with the expanded weight."""
        bias, weight = None if self.bias is None else self.bias.to(x.dtype), self.full_weight().to(x.dtype)
        if self.prepacked:
            return PrepackedLinear(weight, bias)(x)
        return nn.functional.linear(x, weight, bias)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        if (scale := getattr(self.weight, "SCB", None)) is not None:  # bitsandbytes leaves it where it is
            self.weight.SCB = self.state.SCB = fn(scale)  # type: ignore[union-attr]
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        pass


class _Product(torch.autograd.Function):
    """x (…, in) @ weight.T + bias; for the gradient, the weight is expanded again instead of kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: _Frozen) -> torch.Tensor:
        ctx.layer, ctx.dtype = layer, x.dtype
        return layer.product(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        (gradient,) = gradients
        return (gradient @ ctx.layer.full_weight().to(gradient.dtype)).to(ctx.dtype), None
