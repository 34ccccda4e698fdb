"""Conversion of the weight names of AllenNLP's models to those of probekit."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from probekit.errors import UsageError

__all__ = ["renamed", "scalar_mix"]


def renamed(weights: Mapping[str, Tensor], prefixes: Mapping[str, str]) -> dict[str, Tensor]:
    """Select the weights whose names begin with one of these prefixes, and replace the prefix.

    renamed(torch.load(path, weights_only=True), esim.ALLENNLP)     # for ESIM.load_state_dict
    """
    return {
        prefixes[old] + name.removeprefix(old): weight
        for name, weight in weights.items()
        for old in prefixes
        if name.startswith(old)
    }


def scalar_mix(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights of the scalar mix whose names begin with ``prefix``; AllenNLP stores one per layer.

    scalar_mix(weights, "_elmo.scalar_mix_0.")     # for ScalarMix.load_state_dict

    Raises
    ------
    UsageError
        If there are no such weights.
    """
    mix = renamed(weights, {prefix: ""})
    layers = sum(name.startswith("scalar_parameters.") for name in mix)
    if not layers or "gamma" not in mix:
        raise UsageError(f"no scalar mix has weights that begin with {prefix!r}; the weights are {sorted(weights)}.")
    return {
        "scalar_parameters": torch.cat([mix[f"scalar_parameters.{i}"] for i in range(layers)]),
        "gamma": mix["gamma"],
    }
