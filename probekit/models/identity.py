"""Identity of a model from its files: all that a cache must know before (and without) loading it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from probekit.errors import ModelError
from probekit.files import read_json
from probekit.models.adapted.composing import parts_of
from probekit.models.adapted.record import COMPOSITION, JOIN, adapted
from probekit.models.card import CARD, RUN_FORMAT
from probekit.models.conversion import names_published, published_name
from probekit.models.find import resolve_model
from probekit.models.folder import config_digest, quantisation, tokenizer_digest, weights_digest
from probekit.models.untrained import untrained_seed

__all__ = ["CARD", "RUN_FORMAT", "checkpoint_of", "identify", "model_name", "trained_by"]


def model_name(model: str | Path) -> str:
    """The name of a model in tables and file names: the hub id, or the last part of a folder's path.

    Of ``run/checkpoint-500``, a name that each run of transformers' Trainer has, it is the last two parts. For
    published files see :func:`~probekit.models.conversion.published_name`.
    """
    if names_published(str(model)):
        return published_name(str(model))
    if len(parts := parts_of(str(model))) > 1:
        return JOIN.join(map(model_name, parts))
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return str(model)
    place = folder.resolve()
    return f"{place.parent.name}/{place.name}" if re.fullmatch(r"checkpoint-\d+", place.name) else place.name


def checkpoint_of(folder: Path) -> dict[str, Any]:
    """The checkpoint in a folder: "model" (the pretrained one), "checkpoint" (the run) and "step", from its card.

    Empty if the folder has no card.

    Raises
    ------
    ModelError
        If the card differs from those that training writes.
    """
    card = _run_card(folder)
    return {"model": card["model"], "checkpoint": card["run"], "step": card["step"]} if card else {}


def trained_by(folder: Path) -> dict[str, Any]:
    """The training that produced a folder's weights, from its card; {} if it has none.

    Returns
    -------
    dict
        "run", "step", "trained_on" (the task), "regime", "head", "variant" and "seed". For a new encoder only
        "untrained", the seed of its weights.
    """
    if not (card := _run_card(folder)):
        seed = untrained_seed(folder)
        return {} if seed is None else {"untrained": seed}
    head, seeds = card.get("head"), card.get("seeds") or {}
    head_and_variant = {
        "head": head.get("head") if isinstance(head, dict) else head,
        "variant": card.get("variant", ""),
    }
    return {key: card.get(key) for key in ("run", "step", "regime")} | head_and_variant | {
        "trained_on": card.get("task"), "seed": seeds.get("seed")
    }  # fmt: skip


def _run_card(folder: Path) -> dict[str, Any]:
    path = folder / CARD
    if not path.is_file():
        return {}
    try:
        card = read_json(path)
        fields = {key: card.get(key) for key in ("format", "model", "run", "step")}
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read as the card of a checkpoint ({error}). {_OTHERWISE}") from error
    checks = {
        f"the format {RUN_FORMAT!r}": fields["format"] == RUN_FORMAT,
        "the name of a model": isinstance(fields["model"], str) and fields["model"],
        "the name of a run": isinstance(fields["run"], str) and fields["run"],
        "a step, 0 or more": type(fields["step"]) is int and fields["step"] >= 0,
    }
    for (key, value), (expected, valid) in zip(fields.items(), checks.items(), strict=True):
        if not valid:
            raise ModelError(f"{path}: {key} is {value!r}; expected {expected}. {_OTHERWISE}")
    return dict(card)


_OTHERWISE = "Correct the card, or delete it to read the folder as an independent model."


def identify(
    model: str | Path, *, revision: str | None = None, random_weights: int | None = None, name: str | None = None
) -> dict[str, Any]:
    """All that determines a model's numbers: name, revision, digests of weights and tokenizer, seed of random weights.

    For a checkpoint also "checkpoint" and "step", from its card; random weights belong to no checkpoint. For adapters
    of peft also "base" and "adapters", and "doubts" if this may not be their base; for quantised weights "quantised".

    Raises
    ------
    ModelError
        If the files are missing.
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
        **(_adapters(folder) if random_weights is None else {}),
        **({"quantised": how} if random_weights is None and (how := quantisation(folder)) else {}),
    }


def _adapters(folder: Path) -> dict[str, Any]:
    """The base and the adapters of peft on it, by name and digest, and what is not known of them; {} for others."""
    run = adapted(folder)
    if run is None or not run.adapters:
        return {}
    about = read_json(folder / COMPOSITION)
    base, *adapters = (f"{one['name']} {one['digest']}" for one in (about["base"], *about["adapters"]))
    return {"base": base, "adapters": adapters, **({"doubts": doubts} if (doubts := about.get("doubts")) else {})}
