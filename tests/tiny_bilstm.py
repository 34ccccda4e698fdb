"""Tiny untrained BiLSTM folders, one for each input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny import WORDS
from tiny_elmo import tiny_elmo

from probekit.models.elmo.files import convert_elmo
from probekit.models.new import new_encoder

INPUTS = ("characters", "new characters", "elmo", "words", "pieces")


def tiny_bilstm(kind: str, folder: Path, tokenizer: Path | None = None, **config: Any) -> Path:
    """A model folder below ``folder`` with this input; "new characters" are trained, not taken from an ELMo."""
    values: dict[str, Any] = {"model_type": "bilstm", "input": kind.split()[-1], "cells": 7, **config}
    source: dict[str, Any] = {}
    if kind in ("characters", "elmo"):
        if not (folder / "elmo").exists():
            convert_elmo(*tiny_elmo(folder), folder / "elmo")
        source["elmo"] = folder / "elmo"
    elif kind == "words":
        source["vocabulary"] = folder / "words.txt"
        source["vocabulary"].write_text("\n".join(word for word in WORDS if "#" not in word))
        values["embedding_size"] = 10
    elif kind == "pieces":
        source["tokenizer"], values["embedding_size"] = tokenizer, 10
    else:
        values["elmo"] = {"char_dim": 3, "filters": [[1, 4], [2, 5]], "n_highway": 1, "projection_dim": 6}
    return new_encoder(values, folder / f"{kind.replace(' ', '-')}-{len(list(folder.iterdir()))}", **source)
