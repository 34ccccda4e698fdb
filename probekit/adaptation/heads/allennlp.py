"""Weights of AllenNLP's models, by the names that ours have."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from probekit.errors import UsageError

__all__ = ["renamed", "scalar_mix"]


def renamed(weights: Mapping[str, Tensor], prefixes: Mapping[str, str]) -> dict[str, Tensor]:
    """The weights whose names begin with one of these prefixes, which is replaced; the others are left out.

    renamed(torch.load(path, weights_only=True), esim.ALLENNLP)     # for ESIM.load_state_dict
    """
    return {
        prefixes[old] + name.removeprefix(old): weight
        for name, weight in weights.items()
        for old in prefixes
        if name.startswith(old)
    }


def scalar_mix(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights of the scalar mix whose names begin with ``prefix``, each layer's its own in AllenNLP.

    scalar_mix(weights, "_elmo.scalar_mix_0.")     # for ScalarMix.load_state_dict

    Raises
    ------
    UsageError
        Where there are none.
    """
    own = renamed(weights, {prefix: ""})
    layers = sum(name.startswith("scalar_parameters.") for name in own)
    if not layers or "gamma" not in own:
        raise UsageError(f"there is no scalar mix whose weights begin with {prefix!r}; there are {sorted(weights)}.")
    return {
        "scalar_parameters": torch.cat([own[f"scalar_parameters.{i}"] for i in range(layers)]),
        "gamma": own["gamma"],
    }
