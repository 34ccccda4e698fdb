"""Prefix and prompt tuning: trained vectors before a text that no other part of probekit gets to see."""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch

from probekit.errors import ModelError

PROMPT = "prompt"
"""The module of the trained vectors in the model."""


def virtual_tokens(config: Any) -> int:
    """How many positions of a model are taken by trained vectors; 0 for other models."""
    return int(getattr(config, "virtual_tokens", 0))


def prompt_tokens(model: Any) -> int:
    """How many vectors before those of the text each layer holds: those of a prompt; a prefix has none."""
    return int(getattr(model, "prompt_tokens", 0))


def add_virtual_tokens(model: Any, tuner: Any, *, prefix: bool) -> list[str]:
    """Make a model read the trained vectors of ``tuner`` before each text, and return only what belongs to the text.

    Parameters
    ----------
    model : Any
        The transformers model.
    tuner : Any
        The ``PeftModel`` of prefix or prompt tuning around it.
    prefix : bool
        Whether the vectors are keys and values of each block (Li & Liang 2021), instead of embeddings (Lester et al.
        2021).

    Returns
    -------
    list[str]
        The name of the new parameter.
    """
    count = tuner.active_peft_config.num_virtual_tokens
    model.add_module(PROMPT, tuner.prompt_encoder["default"])
    model.config.virtual_tokens, model.prompt_tokens = count, 0 if prefix else count

    names = [*signature(model.forward).parameters]

    def before(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        inputs = dict(zip(names, args, strict=False)) | kwargs
        ids = inputs["input_ids"]
        trained = tuner.get_prompt(len(ids))
        if (mask := inputs.get("attention_mask")) is not None:
            inputs["attention_mask"] = torch.cat([mask.new_ones(len(ids), count), mask], 1)
        if prefix:
            return (), inputs | {"past_key_values": trained}
        if (types := inputs.get("token_type_ids")) is not None:
            inputs["token_type_ids"] = torch.cat([types.new_zeros(len(ids), count), types], 1)
        embedded = model.get_input_embeddings()(inputs.pop("input_ids"))
        return (), inputs | {"inputs_embeds": torch.cat([trained.to(embedded.dtype), embedded], 1)}

    def after(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        if getattr(out, "attentions", None) is not None:
            raise ModelError("the attention of a model with virtual tokens is not only between pieces of the text.")
        if prefix:
            return out
        out.last_hidden_state = out.last_hidden_state[:, count:]
        if getattr(out, "hidden_states", None) is not None:
            out.hidden_states = tuple(hidden[:, count:] for hidden in out.hidden_states)
        if getattr(out, "pooler_output", None) is not None:  # of the first piece, not of the first trained vector
            out.pooler_output = _pooled(model, out.last_hidden_state)
        return out

    model.register_forward_pre_hook(before, with_kwargs=True)
    model.register_forward_hook(after, with_kwargs=True)
    return [f"{PROMPT}.{name}" for name, _ in model.get_submodule(PROMPT).named_parameters()]


def _pooled(model: Any, hidden: torch.Tensor) -> Any:
    """The pooler's output; ALBERT's pooler is only its linear layer."""
    if isinstance(model.pooler, torch.nn.Linear):
        return model.pooler_activation(model.pooler(hidden[:, 0]))
    return model.pooler(hidden)
