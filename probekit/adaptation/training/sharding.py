"""A learner whose weights, gradients and moments are spread over processes (FSDP2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from probekit.models.transformers.blocks import find_blocks
from probekit.runtime import processes


def shard(learner: nn.Module, device: torch.device) -> None:
    """Spread the parameters of a learner over all processes, in place: each block by itself, and all others together.

    Each becomes a DTensor of which this process holds its share of rows. A block's parameters are gathered while it
    computes (Zhao et al. 2023). Blocks that a forward pass runs several times (ALBERT's) stay with the others.
    """
    learner.to(device)
    mesh = init_device_mesh(device.type, (processes()[1],))
    encoder = cast("Any", learner).encoder
    blocks = find_blocks(encoder)
    for block in blocks if len(blocks) == encoder.config.num_hidden_layers else []:
        fully_shard(block, mesh=mesh)
    fully_shard(learner, mesh=mesh)


def whole(value: Any) -> Any:
    """A tensor gathered from all processes, on the CPU; nested values likewise, and others as they are.

    All processes must call it. Only the first one gets the numbers; the others get empty tensors.
    """
    if isinstance(value, DTensor):
        full = value.full_tensor().detach()
        return full.cpu() if not processes()[0] else full.new_empty(0, device="cpu")
    if isinstance(value, dict):
        return {key: whole(one) for key, one in value.items()}
    return [whole(one) for one in value] if isinstance(value, list) else value


def load_whole(module: nn.Module, state: Mapping[str, Tensor]) -> tuple[list[str], list[str]]:
    """Load whole tensors, of which sharded ones keep this process's part; the missing and the unexpected names.

    All processes must call it, with the same tensors.
    """
    own = module.state_dict()
    found = module.load_state_dict({name: _like(own.get(name), one) for name, one in state.items()}, strict=False)
    return found.missing_keys, found.unexpected_keys


def whole_optimiser(optimizer: Any) -> dict[str, Any]:
    """The state of an optimiser with whole tensors, as :func:`whole`: that of a training that is not sharded."""
    return cast("dict[str, Any]", whole(optimizer.state_dict()))


def load_optimiser(optimizer: Any, state: Mapping[str, Any]) -> None:
    """Load what :func:`whole_optimiser` gave; all processes must call it, with the same tensors."""
    optimizer.load_state_dict(state)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for name, value in optimizer.state[parameter].items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    optimizer.state[parameter][name] = _like(parameter, value)


def _like(own: Any, tensor: Tensor) -> Tensor:
    """This process's part of a tensor if its own one is sharded."""
    if not isinstance(own, DTensor) or isinstance(tensor, DTensor):
        return tensor
    return distribute_tensor(tensor.to(own.device), own.device_mesh, own.placements)
