"""What the cards and rows of all pretrainings state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from probekit.adaptation.pretraining.options import PRETRAIN, EncoderOptions, PretrainOptions
from probekit.models.identity import RUN_FORMAT
from probekit.recipe import Recipe
from probekit.rows.card import environment

__all__ = ["new_card", "row_keys"]


def new_card(
    out: Path, options: PretrainOptions | EncoderOptions, identity: Mapping[str, Any], recipe: Recipe, *, task: str,
    head: str, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """The card of a run that begins.

    Parameters
    ----------
    task, head : str
        What it is trained on, and what predicts, in tables.
    **more
        Further entries.
    """
    name = options.run_name or out.resolve().name
    return {
        "format": RUN_FORMAT,
        "run": name,
        "variant": "",
        "model": name,
        "step": 0,
        "complete": False,
        "task": task,
        "splits": ["train", "dev"],
        "regime": PRETRAIN,
        "prefix": "",
        "head": {"head": head, "pooling": None},
        "layers": [],
        "seeds": {"seed": options.seed},
        "identity": identity,
        "recipe": recipe.to_json(),
        "command": str(recipe),
        **environment(),
        "threads": torch.get_num_threads(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
    }


def row_keys(card: Mapping[str, Any], representation: str) -> dict[str, Any]:
    """The columns that all rows of a run share."""
    return {
        "task": card["task"], "trained_on": card["task"], "model": card["model"], "checkpoint": card["run"],
        "regime": card["regime"], "head": card["head"]["head"], "variant": "", "representation": representation,
        "estimator": "", "target": "gold", "seed": card["seeds"]["seed"], "analysis": "train", "layer": None,
    }  # fmt: skip
