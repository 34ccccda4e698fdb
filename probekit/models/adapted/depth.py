"""Fewer blocks than a pretrained model has."""

from __future__ import annotations

from typing import Any

from torch import nn

from probekit.errors import UsageError
from probekit.models.transformers.blocks import find_blocks


def drop_blocks(model: Any, keep: int) -> dict[str, Any]:
    """Drop the blocks above the first ``keep`` ones, in place; a final norm and the pooler stay.

    Returns
    -------
    dict[str, Any]
        The changes to config.json.

    Raises
    ------
    UsageError
        If the model has fewer blocks.
    """
    config = model.config
    depth, blocks = int(config.num_hidden_layers), find_blocks(model)
    if not 1 <= keep <= depth:
        raise UsageError(f"keep_layers is {keep}; the model has {depth} blocks. Give a number from 1 to {depth}.")
    if len(blocks) == depth:
        home = next(m for m in model.modules() if isinstance(m, nn.ModuleList) and list(m) == blocks)
        del home[keep:]
    elif len(blocks) > 1:
        raise UsageError(f"the blocks of {config.model_type} run in {len(blocks)} groups; leave out keep_layers.")
    changes: dict[str, Any] = {config.attribute_map.get("num_hidden_layers", "num_hidden_layers"): keep}
    if isinstance(types := getattr(config, "layer_types", None), list | tuple):
        config.layer_types = changes["layer_types"] = list(types[:keep])
    config.num_hidden_layers = keep
    return changes
