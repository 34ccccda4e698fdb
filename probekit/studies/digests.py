"""What a study reads from outside: tasks, models and corpora, by digests of their content, and how large they are."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import xxhash

from probekit.domains.corpora import corpus_files
from probekit.errors import DataError, UsageError
from probekit.files import digest
from probekit.models.find import resolve_model
from probekit.models.identity import identify
from probekit.tasks import load_task

__all__ = ["corpus_digest", "model_digest", "model_size", "task_reader"]


@lru_cache(maxsize=64)
def task_reader(task: str, folder: str | None) -> Any:
    """A function that gives digest and pieces of a split of a task, which is read once."""
    loaded = load_task(task, folder)

    @lru_cache(maxsize=8)
    def of(split: str) -> tuple[str, list[float]]:
        part = loaded.split(split)
        return part.digest(), [1.35 * (len(f"{e.text} {e.pair or ''}".split())) + 3 for e in part]

    return of


@lru_cache(maxsize=64)
def model_digest(where: str) -> str:
    """Of weights, tokenizer and configuration."""
    told = identify(where, name="model")
    return xxhash.xxh3_128_hexdigest(json.dumps(told, sort_keys=True).encode())


@lru_cache(maxsize=64)
def model_size(where: str) -> tuple[float, int, int]:
    """Weights of a model's blocks, roughly, its width, and how many layers a cache of it has."""
    told = json.loads((resolve_model(where) / "config.json").read_text(encoding="utf-8"))
    told = told.get("text_config", told)
    width = next((told[key] for key in ("hidden_size", "n_embd", "d_model", "dim") if key in told), 768)
    depth = next((told[key] for key in ("num_hidden_layers", "n_layer", "num_layers", "n_layers") if key in told), 12)
    return 12.0 * width**2 * depth, int(width), int(depth) + 1


@lru_cache(maxsize=64)
def corpus_digest(place: str) -> str:
    """The digest of a corpus: of its files, or for the hub its name."""
    if place.startswith("hub:"):
        return place
    try:
        top, found = corpus_files(place)
    except DataError as error:
        raise UsageError(f"{error} Say where it is: --set domains.0.corpora.NAME=PATH.") from None
    return digest(found, top)
