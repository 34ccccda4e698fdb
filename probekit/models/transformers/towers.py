"""The text tower of a model that reads images or sounds, too: found, and made without the other parts.

The class that ``config.json`` names is made, because it knows the names of the weights in its files, and how they are
stored. What no text passes through is emptied before any weight is read.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForMultimodalLM,
    AutoModelForPreTraining,
    PreTrainedModel,
)
from transformers.models.auto.auto_factory import _get_model_class

from probekit.errors import ModelError
from probekit.models.folder import text_config
from probekit.models.transformers.blocks import body
from probekit.notes import logger

log = logger(__name__)
LANGUAGE_MODELS = (AutoModelForMultimodalLM, AutoModelForImageTextToText, AutoModelForPreTraining)
_WITHOUT_IMAGES = (
    TypeError, ValueError, AttributeError, LookupError, NameError, AssertionError, NotImplementedError, StopIteration,
)  # fmt: skip
"""How the code of models fails that want pixels or sounds with each text; a lack of memory is none of them."""


def class_for(config: Any, *, causal: bool | None = None) -> Any:
    """The class that makes the model of a configuration; of a model with a tower, without the parts beside it.

    Parameters
    ----------
    config : PreTrainedConfig
        What ``config.json`` says.
    causal : bool, optional
        Whether the model is to have a head that predicts the next piece, or masked ones; None for no head.

    Raises
    ------
    ModelError
        If transformers has no such class.
    """
    first = AutoModel if causal is None else AutoModelForCausalLM if causal else AutoModelForMaskedLM
    if text_config(config) is config:
        return first if causal is not None or type(config) in AutoModel._model_mapping else _own_class(config)
    named = (getattr(transformers, str(name), None) for name in config.architectures or ())
    saved = (made for made in named if isinstance(made, type) and getattr(made, "config_class", None) is type(config))
    order = (*LANGUAGE_MODELS, first) if causal else (first, *LANGUAGE_MODELS)
    known = (auto._model_mapping for auto in order if type(config) in auto._model_mapping)
    whole: Any = next(saved, None) or next((_get_model_class(config, mapping) for mapping in known), None)
    if whole is None:
        raise ModelError(f"transformers has no model of texts for the type {config.model_type!r}.")

    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        whole.__init__(self, config, *args, **kwargs)
        _, path = _tower_and_path(self, type(text_config(config)))
        for parent, name in _beside(self, path):
            setattr(parent, name, _emptied(getattr(parent, name)))

    return type(whole.__name__, (whole,), {"__init__": __init__, "__module__": whole.__module__})


def _own_class(config: Any) -> Any:
    """The class of a text part that AutoModel does not know by itself, such as Mllama's, in the module of its kin."""
    module = import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
    found = [
        made
        for name, made in vars(module).items()
        if isinstance(made, type)
        and issubclass(made, PreTrainedModel)
        and getattr(made, "config_class", None) is type(config)
        if name.endswith("Model") and not name.endswith("PreTrainedModel")
    ]
    return found[0] if len(found) == 1 else AutoModel


def make(config: Any, *, causal: bool | None = None, **how: Any) -> Any:
    """A model with random weights, of which only the parts that read texts hold any."""
    made = class_for(config, causal=causal)
    return made.from_config(config, **how) if hasattr(made, "from_config") else made._from_config(config, **how)


def text_part(model: Any, folder: Path) -> tuple[Any, str]:
    """What :func:`tower_of` returns; of a model that reads more than texts, a note says which parts are left out.

    Raises
    ------
    ModelError
        If the part reads a text otherwise than the whole model does.
    """
    tower, path = tower_of(model)
    if path:
        tower.left_out, tower.part_of = left_out(model, folder), (path, type(model).__module__)
        why_not = _check_alone(model, tower, folder)
        tower.compared = not why_not
        if why_not:
            log.info("%s: the part that reads texts is not compared with the whole model: %s.", folder.name, why_not)
    return tower, path


def _check_alone(model: Any, tower: Any, folder: Path) -> str:
    """Compare the states of five pieces in a tower and in the whole model; why not, or ""."""
    if tower.config.is_encoder_decoder or any(p.device.type == "meta" for p in tower.parameters()):
        return "it has a decoder, too, or its weights are elsewhere"
    pieces = torch.tensor([[2, 3, 5, 7, 9]], device=next(tower.parameters()).device)
    ids = pieces * tower.config.vocab_size // 11
    with torch.inference_mode():
        try:
            whole = model.eval()(input_ids=ids, output_hidden_states=True).hidden_states
        except _WITHOUT_IMAGES as error:
            return f"{type(error).__name__} {error}"
        alone = tower(input_ids=ids, output_hidden_states=True).hidden_states
    if not whole or not alone or len(whole) != len(alone):
        return "it returns other layers"
    one, other = whole[-2].float(), alone[-2].float()
    if one.shape != other.shape or float((one - other).norm()) > 0.1 * float(one.norm()):  # rounding: 1e-6 to 5e-2
        raise ModelError(
            f"{folder} is of type {model.config.model_type!r}, which reads a text otherwise than its text part alone "
            "does (it may attend in both directions); it is not supported."
        )
    return ""


def drop_crossing(model: Any) -> None:
    """Remove the blocks that only look at images, which a text skips (Mllama's); the others are numbered in order."""
    tower, _ = tower_of(model)
    crossing = set(getattr(tower, "cross_attention_layers", None) or ())
    if not crossing:
        return
    tower.layers = nn.ModuleList(block for i, block in enumerate(tower.layers) if i not in crossing)
    for i, block in enumerate(tower.layers):
        block.layer_idx = block.self_attn.layer_idx = i
    tower.cross_attention_layers, tower.renumbered = [], True
    for config in (tower.config, text_config(model.config)):
        config.cross_attention_layers, config.num_hidden_layers = [], len(tower.layers)


def tower_of(model: Any) -> tuple[Any, str]:
    """The part of a model that reads texts, without a head, and its name in the model; the model itself, and "".

    Raises
    ------
    ModelError
        If no part of the model has the configuration of its text tower.
    """
    if (text := text_config(model.config)) is model.config:
        return model, ""
    tower, path = _tower_and_path(model, type(text))
    inner = body(tower)
    if inner is not tower:
        path += "." + next(name for name, part in tower.named_modules() if part is inner)
    return inner, path


def language_model_of(model: Any) -> Any:
    """The language model that is a part of another model, with its head; otherwise the model itself."""
    if (text := text_config(model.config)) is model.config:
        return model
    tower, path = _tower_and_path(model, type(text))
    tower.part_of = (path, type(model).__module__)  # adapters name its modules by it
    return tower if _head(tower) is not None else model


def left_out(model: Any, folder: Path) -> list[str]:
    """The names of the parts of a model that no text passes through, whose weights are not read; a note says so."""
    parts = [name for name, part in model.named_modules() if getattr(part, "probekit_emptied", False)]
    names = [name.rpartition(".")[2] for name in parts]
    if names:
        log.warning(
            "%s is of type %s, of which the part that reads texts is loaded; left out: %s.",
            *(folder.name, model.config.model_type, ", ".join(names)),
        )
    return names


def _tower_and_path(model: Any, kind: type) -> tuple[Any, str]:
    """The outermost part of a model with a configuration of this class, and its name."""
    for name, part in model.named_modules():
        if isinstance(part, PreTrainedModel) and type(part.config) is kind and part is not model:
            return part, name
    raise ModelError(
        f"{type(model).__name__} reads images or sounds beside texts, and has no part that reads texts alone "
        f"({kind.__name__}); it is not supported."
    )


def _head(model: Any) -> nn.Module | None:
    try:
        found: nn.Module | None = model.get_output_embeddings()
    except NotImplementedError:
        return None
    return found


def _beside(model: Any, path: str) -> Iterator[tuple[nn.Module, str]]:
    """The parts beside the path to the tower, as parents and names, but for single layers and what holds the head.

    What stands beside a model's base belongs to its head.
    """
    head, parent = _head(model), model
    for step in path.split("."):
        for name, child in [*parent.named_children()] if parent is not model or model.base_model is model else ():
            if name != step and any(child.children()) and not any(part is head for part in child.modules()):
                yield parent, name
        parent = getattr(parent, step)


def _emptied(part: nn.Module) -> nn.Module:
    """A part without weights and parts of its own; what else it says of itself stays."""
    empty = copy.copy(part)
    empty._parameters, empty._buffers, empty._modules = {}, {}, {}
    empty.probekit_emptied = empty._is_hf_initialized = True  # type: ignore[assignment]
    return empty
