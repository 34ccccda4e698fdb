"""The first blocks of a model: all that its lower layers depend on, without the weights of the other blocks.

The whole model is made as its configuration says, but without memory; then the other blocks are removed, and only the
weights that are left are read. So no block depends on how many there are.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.models.auto.auto_factory import _get_model_class

from probekit.errors import ModelError
from probekit.models.transformers.blocks import find_blocks
from probekit.models.transformers.towers import class_for, tower_of


def class_of_first(config: Any, count: int) -> Any:
    """The class that makes the model of a configuration with its first ``count`` blocks, and no decoder's.

    Making it raises ModelError if its blocks are not a list of as many as the configuration has layers.
    """
    made = class_for(config)
    whole: Any = made if isinstance(made, type) and issubclass(made, PreTrainedModel) else None
    whole = whole or _get_model_class(config, made._model_mapping)

    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        whole.__init__(self, config, *args, **kwargs)
        _keep_first(tower_of(self)[0], count)

    return type(whole.__name__, (whole,), {"__init__": __init__, "__module__": whole.__module__})


def _keep_first(model: Any, count: int) -> None:
    """Remove the blocks after the first ``count``, in place, and those of a decoder beside them."""
    part = model.get_encoder() if model.config.is_encoder_decoder else model
    blocks = find_blocks(part)
    home = next(module for module in part.modules() if isinstance(module, nn.ModuleList) and list(module) == blocks)
    if not count < len(blocks) == part.config.num_hidden_layers:
        raise ModelError(f"{type(model).__name__} has no {part.config.num_hidden_layers} blocks in a row.")
    del home[count:]
    part.first_blocks = tuple(home)
    if part is not model:
        for module in model.get_decoder().modules():
            if isinstance(module, nn.ModuleList):
                del module[:]
