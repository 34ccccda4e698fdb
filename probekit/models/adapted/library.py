"""The methods of the library peft: their modules in a model, and the names of their weights in its files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from probekit.errors import UsageError, first_line
from probekit.models.adapted.virtual import PROMPT, add_virtual_tokens

_PREFIX, _PROMPT = "base_model.model.", "prompt_embeddings"
_INNER = re.compile(r"\.(lora_[AB]|ia3_l|lora_magnitude_vector)\b")


def name_in_file(name: str) -> str:
    """The name that peft gives a parameter in adapter_model.safetensors.

    Examples
    --------
    >>> name_in_file("layer.0.query.lora_A.default.weight")
    'base_model.model.layer.0.query.lora_A.weight'
    """
    if name.startswith(f"{PROMPT}."):
        return _PROMPT
    return _PREFIX + name.replace(".default", "").replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


def name_in_model(name: str) -> str:
    """The name in the model of a weight in adapter_model.safetensors, the inverse of :func:`name_in_file`."""
    if name == _PROMPT:
        return f"{PROMPT}.embedding.weight"
    inner = _INNER.sub(r".\1.default", name.removeprefix(_PREFIX))
    return inner + ".weight" if inner.endswith("lora_magnitude_vector.default") else inner


def add_tuner(model: Any, configuration: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """Add the modules of a peft configuration to a model, in place; nothing but their parameters is then trained.

    Returns
    -------
    Any
        The ``PeftModel`` around the model.
    list[str]
        The names of the parameters.

    Raises
    ------
    UsageError
        If the model cannot be adapted in this way.
    """
    from peft import PeftConfig, get_peft_model

    kind = model.config.model_type
    config = PeftConfig.from_peft_type(**{**configuration, "inference_mode": False})  # so that its parameters are known
    method = str(config.peft_type.value).lower().replace("_", " ")
    try:
        plain = _read(model)
        with warnings.catch_warnings():  # peft warns about models of unknown layout; these are checked below
            warnings.simplefilter("ignore")
            tuner = get_peft_model(model, config)
        if not config.is_prompt_learning:
            return tuner, [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        prefix = config.peft_type == "PREFIX_TUNING"
        names = add_virtual_tokens(model, tuner, prefix=prefix)
        read = _read(model)
    except Exception as error:  # the library raises ValueError, RuntimeError, TypeError, AttributeError …
        raise UsageError(f"{method} does not work for models of type {kind}: {first_line(error)}") from error
    if read.shape != plain.shape or torch.equal(read, plain):
        raise UsageError(f"{method} does not work for models of type {kind}: their blocks do not read the prefix.")
    return tuner, names


def _read(model: Any) -> torch.Tensor:
    """The last hidden states of two pieces."""
    training = model.training
    with torch.no_grad():
        ids = torch.ones((1, 2), dtype=torch.long, device=next(model.parameters()).device)
        found: torch.Tensor = model.eval()(input_ids=ids).last_hidden_state
    model.train(training)
    return found
