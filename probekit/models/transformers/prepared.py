"""What some models need before they read a text alone: a language, and a last hidden state as wide as their layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from probekit.notes import logger

log = logger(__name__)
ENGLISH, SHOWN = "en_XX", 5


def set_language(model: Any, folder: Path) -> None:
    """Let a model with an adapter for each language (X-MOD) read texts in one, if config.json names none; a note."""
    languages = list(getattr(model.config, "languages", None) or ())
    if not languages or not hasattr(model, "set_default_language") or model.config.default_language is not None:
        return
    model.set_default_language(chosen := ENGLISH if ENGLISH in languages else languages[0])
    log.warning(
        '%s: texts are read as %s, since its config.json names no language. For another, add "default_language", one '
        "of %s.", folder.name, chosen, ", ".join(languages[:SHOWN]) + ", …" * (len(languages) > SHOWN),
    )  # fmt: skip


def drop_projection(model: Any) -> None:
    """Remove the layer that gives a model's last hidden state the width of its embeddings (OPT-350m), a part of its
    head.
    """
    for part in model.modules():
        if isinstance(getattr(part, "project_out", None), nn.Linear):
            part.project_out = None
            model.left_out = ["project_out"]
