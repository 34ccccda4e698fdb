"""Which model it is, told from its files: what a cache must know before (and without) loading it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probekit.errors import ModelError
from probekit.files import read_json
from probekit.models.conversion import names_published, published_name
from probekit.models.find import resolve_model
from probekit.models.folder import config_digest, tokenizer_digest, weights_digest

__all__ = ["CARD", "RUN_FORMAT", "checkpoint_of", "identify", "model_name", "trained_by"]

CARD, RUN_FORMAT = "probekit.json", "probekit-run/1"
"""The file that training leaves in each model folder, and its format."""


def model_name(model: str | Path) -> str:
    """The name of a model in tables and file names: the hub id, the last part of a folder's path, or what
    :func:`~probekit.models.conversion.published_name` makes of published files."""
    if names_published(str(model)):
        return published_name(str(model))
    folder = Path(model).expanduser()
    return folder.resolve().name if folder.is_dir() else str(model)


def checkpoint_of(folder: Path) -> dict[str, Any]:
    """Which checkpoint a folder holds: "model" (the pretrained one), "checkpoint" (the run) and "step", from its card.

    Empty where the folder has no card.

    Raises
    ------
    ModelError
        Where the card is not what training writes.
    """
    card = _run_card(folder)
    return {"model": card["model"], "checkpoint": card["run"], "step": card["step"]} if card else {}


def trained_by(folder: Path) -> dict[str, Any]:
    """The training that a folder's weights come from, as far as its card tells; {} where there was none.

    Returns
    -------
    dict
        "run", "step", "trained_on" (the task), "regime", "head", "variant" and "seed".
    """
    if not (card := _run_card(folder)):
        return {}
    head, seeds = card.get("head"), card.get("seeds") or {}
    told = {"head": head.get("head") if isinstance(head, dict) else head, "variant": card.get("variant", "")}
    return {key: card.get(key) for key in ("run", "step", "regime")} | told | {
        "trained_on": card.get("task"), "seed": seeds.get("seed")
    }  # fmt: skip


def _run_card(folder: Path) -> dict[str, Any]:
    path = folder / CARD
    if not path.is_file():
        return {}
    try:
        card = read_json(path)
        told = {key: card.get(key) for key in ("format", "model", "run", "step")}
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read as the card of a checkpoint ({error}). {_OTHERWISE}") from error
    good = {
        f"the format {RUN_FORMAT!r}": told["format"] == RUN_FORMAT,
        "the name of a model": isinstance(told["model"], str) and told["model"],
        "the name of a run": isinstance(told["run"], str) and told["run"],
        "a step, 0 or more": type(told["step"]) is int and told["step"] >= 0,
    }
    for (key, value), (wanted, fine) in zip(told.items(), good.items(), strict=True):
        if not fine:
            raise ModelError(f"{path}: a checkpoint's card has {wanted}, here {key} is {value!r}. {_OTHERWISE}")
    return dict(card)


_OTHERWISE = "Correct it, or take it away to read the folder as a model of its own."


def identify(
    model: str | Path, *, revision: str | None = None, random_weights: int | None = None, name: str | None = None
) -> dict[str, Any]:
    """What determines a model's numbers: name, revision, digests of weights and tokenizer, seed of random weights.

    Of a checkpoint also "checkpoint" and "step", from its card; random weights are of no checkpoint.

    Raises
    ------
    ModelError
        Where the files are not there.
    """
    folder = resolve_model(model, revision)
    card = checkpoint_of(folder)
    trained = {key: card[key] for key in ("checkpoint", "step") if card and random_weights is None}
    return {
        "model": name or card.get("model") or model_name(model),
        **trained,
        "revision": revision,
        "weights_digest": weights_digest(folder) if random_weights is None else config_digest(folder),
        "tokenizer_digest": tokenizer_digest(folder),
        "random_weights": random_weights,
    }
