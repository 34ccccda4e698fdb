"""Encoders that read as decoders do, and decoders that read as encoders do: the same weights, other attention."""

from __future__ import annotations

from typing import Any

import torch

from probekit.errors import UsageError


def attend(model: Any, *, causal: bool) -> dict[str, Any]:
    """Change, in place, which pieces the vectors of a model depend on; its weights stay.

    A decoder that reads in both directions needs training to make use of it (BehnamGhader et al. 2024, LLM2Vec).

    Parameters
    ----------
    causal : bool
        Whether the vector of a piece depends on the pieces before it alone, as in decoders, or on all, as in encoders.

    Returns
    -------
    dict[str, Any]
        The changes to config.json.

    Raises
    ------
    UsageError
        If the model's code has no such form: it is run on sequences that differ in one piece, with and without padding.
    """
    changes = {"is_causal": causal} | ({"is_decoder": True} if causal else {})
    for name, value in changes.items():
        setattr(model.config, name, value)
        for module in model.modules():
            if hasattr(module, name):
                setattr(module, name, value)
    fixed = bool(getattr(model.config, "is_encoder_decoder", False))  # their position biases have a direction, too
    if fixed or reads_ahead(model) == causal or reads_ahead(model, padded=True) == causal:
        raise UsageError(
            f"transformers has no {'causal' if causal else 'bidirectional'} form of {model.config.model_type} models; "
            "leave out --attention."
        )
    return changes


def reads_ahead(model: Any, *, padded: bool = False) -> bool:
    """Whether the vector of a piece changes with a later piece; ``padded`` adds a position that is masked out."""
    training = model.training
    ids = torch.tensor([[1, 2, 3, 5], [1, 2, 4, 5]], device=model.device)[:, : 4 if padded else 3]
    mask = torch.ones_like(ids)
    mask[:, 3:] = 0
    with torch.no_grad():
        states = model.eval()(input_ids=ids % model.config.vocab_size, attention_mask=mask).last_hidden_state
    model.train(training)
    first, second = states[:, :2]
    return not torch.allclose(first, second, rtol=0, atol=1e-6 * float(first.abs().max()))
