"""Weights of AllenNLP's models, by the names that ours have."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

__all__ = ["renamed"]


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
