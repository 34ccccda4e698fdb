"""Which model it is, told from its files: what a cache must know before (and without) loading it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probekit.models.folder import config_digest, resolve_model, tokenizer_digest, weights_digest

__all__ = ["identify", "model_name"]


def model_name(model: str | Path) -> str:
    """The name of a model in tables and file names: the hub id, or the last part of a folder's path."""
    folder = Path(model).expanduser()
    return folder.resolve().name if folder.is_dir() else str(model)


def identify(
    model: str | Path, *, revision: str | None = None, random_weights: int | None = None, name: str | None = None
) -> dict[str, Any]:
    """What determines a model's numbers: name, revision, digests of weights and tokenizer, seed of random weights.

    Raises ModelError where the files are not there.
    """
    folder = resolve_model(model, revision)
    return {
        "model": name or model_name(model),
        "revision": revision,
        "weights_digest": weights_digest(folder) if random_weights is None else config_digest(folder),
        "tokenizer_digest": tokenizer_digest(folder),
        "random_weights": random_weights,
    }
