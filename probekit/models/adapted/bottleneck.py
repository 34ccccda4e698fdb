"""Bottleneck adapters: small layers between those of a frozen model (Houlsby et al. 2019; Pfeiffer et al. 2021)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from probekit.models.adapted.structure import block_linears


class Bottleneck(nn.Module):
    """x + up(gelu(down(x))), initially x (Houlsby et al. 2019, figure 2).

    Parameters
    ----------
    width, size : int
        The width of the model, and of the bottleneck.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, size), nn.Linear(size, width)
        nn.init.normal_(self.down.weight, std=0.02)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, x: Tensor) -> Tensor:
        """The adapted vectors, in the shape of x (…, width)."""
        changed: Tensor = self.up(nn.functional.gelu(self.down(x)))
        return x + changed


class AdaptedLinear(nn.Module):
    """A linear layer of the model, followed by an adapter."""

    def __init__(self, layer: Any, adapter: Bottleneck) -> None:
        super().__init__()
        self.layer, self.adapter = layer, adapter

    @property
    def weight(self) -> Tensor:
        """The weight of the layer, of which some models ask the dtype."""
        return self.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        """The adapter's result for that of the layer, (…, width)."""
        adapted: Tensor = self.adapter(self.layer(x))
        return adapted


def add_adapters(model: Any, *, bottleneck: int, placement: str) -> list[str]:
    """Put an adapter after the feed-forward part of each block, and after its attention if ``placement`` is "houlsby".

    It is before the residual connection, on the result of the part's last linear layer.

    Returns
    -------
    list[str]
        The names of the new parameters.

    Raises
    ------
    ModelError
        If the parts of a block are not recognised.
    """
    for block in block_linears(model):
        for name in (block.o, block.down) if placement == "houlsby" else (block.down,):
            parent, _, leaf = name.rpartition(".")
            layer = model.get_submodule(name)
            adapter = Bottleneck(_outputs(layer), bottleneck).to(layer.weight.device)
            setattr(model.get_submodule(parent), leaf, AdaptedLinear(layer, adapter))
    return [name for name, _ in model.named_parameters() if ".adapter." in name]


def _outputs(layer: Any) -> int:
    return int(layer.out_features if isinstance(layer, nn.Linear) else layer.nf)
