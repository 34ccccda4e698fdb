"""What a regime hands to the training: a learner with its data, and what is to be written of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probekit.adaptation.data.batches import Data
from probekit.adaptation.training.groups import LayerGroup
from probekit.adaptation.training.learners import Learner
from probekit.adaptation.training.objective import Target

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True)
class Parts:
    """All that training needs.

    groups : the layers that are trained, bottom to top
    source : folder of the pretrained model whose encoder is trained, and written; None where it is frozen
    prefix : of the encoder's weights in a file of the whole model
    identity : what determines the numbers, beside task and options: model, digests …
    head : what is needed to make the head again
    read : a split (fine-tuning) or a cache (feature extraction) as data, in the way of train and dev
    layers : names of the layers that are mixed; none where the head reads the last one
    """

    learner: Learner
    train: Data
    dev: Data
    target: Target
    groups: list[LayerGroup]
    source: Path | None
    prefix: str
    identity: dict[str, Any]
    head: dict[str, Any]
    read: Callable[[Any], Data]
    layers: tuple[str, ...] = ()
