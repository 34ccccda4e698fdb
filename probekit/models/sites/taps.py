"""Taps: the points of a model's modules where sites are read while it runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from probekit.models.sites.recording import first_tensor
from probekit.sites import Site

Emit = Callable[[Site, torch.Tensor], None]


@dataclass(frozen=True, slots=True)
class Tap:
    """Where a site is read.

    Attributes
    ----------
    block : int or None
        The block, from 0; None for a module outside the blocks.
    path : str
        The module's name in the block ("" is the block itself) or, outside, in the model.
    output : bool
        Whether its output is read; otherwise its input.
    columns : tuple of int, optional
        The columns to read, for a site that is a part of a module's output (values in a fused projection).
    """

    block: int | None
    path: str
    output: bool = True
    columns: tuple[int, ...] | None = None

    def module(self, model: nn.Module, blocks: Sequence[nn.Module]) -> nn.Module:
        """The tapped module."""
        return (model if self.block is None else blocks[self.block]).get_submodule(self.path)

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """The site's rows (t, width) in what the module reads or returns."""
        rows = tensor.reshape(-1, tensor.shape[-1])
        if self.columns is None:
            return rows
        first, last = self.columns[0], self.columns[-1]
        if self.columns == tuple(range(first, last + 1)):
            return rows[:, first : last + 1]
        return rows[:, list(self.columns)]


def install(
    model: nn.Module, blocks: Sequence[nn.Module], taps: Mapping[Site, Tap], now: Callable[[], tuple[Emit, int] | None]
) -> list[Any]:
    """Hook the modules of ``taps``; returns the handles that remove the hooks.

    Parameters
    ----------
    model : nn.Module
        The model.
    blocks : sequence of nn.Module
        The module that is block 0, 1 …
    taps : mapping of Site to Tap
        The sites to read.
    now : callable
        In a thread that reads: the function that receives ``(site, rows)``, and the number of the running block; None
        in a thread that does not. The rows are the model's own tensor.
    """
    points: dict[tuple[nn.Module, bool], dict[int | None, list[Site]]] = defaultdict(lambda: defaultdict(list))
    for site, tap in taps.items():
        points[tap.module(model, blocks), tap.output][tap.block].append(site)

    def pass_on(sites: Mapping[int | None, list[Site]], value: Any) -> None:
        if (reading := now()) is None:
            return
        emit, block = reading
        for site in sites.get(None if None in sites else block, ()):
            if (tensor := first_tensor(value)) is not None:
                emit(site, taps[site].rows(tensor))

    def before(sites: Mapping[int | None, list[Site]]) -> Callable[..., None]:
        return lambda _, args, kwargs: pass_on(sites, args or kwargs)

    def after(sites: Mapping[int | None, list[Site]]) -> Callable[..., None]:
        return lambda _module, _args, output: pass_on(sites, output)

    return [
        module.register_forward_hook(after(sites))
        if output
        else module.register_forward_pre_hook(before(sites), with_kwargs=True)
        for (module, output), sites in points.items()
    ]
