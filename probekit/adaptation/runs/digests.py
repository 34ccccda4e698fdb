"""Digests of what a run writes: of its weights, on their card, and of what an interrupted run goes on from."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from probekit.errors import ModelError
from probekit.files import FileKind, digest_of_content, read_json, write
from probekit.models.identity import CARD

__all__ = ["check_weights", "digests_of", "seal", "whole_checkpoints"]

log = logging.getLogger(__name__)

SEAL = "digests.json"
"""The file of a checkpoint that is written last, with the digests of the others."""


def _is_seal(path: Path) -> bool:
    told = read_json(path)
    return isinstance(told, dict) and all(re.fullmatch("[0-9a-f]{32}", str(digest)) for digest in told.values())


SEAL_FILE = FileKind("the digests of a checkpoint", _is_seal)


def digests_of(folder: Path) -> dict[str, str]:
    """xxh3 digests of the files of a folder by name, but for those that hold digests themselves."""
    named = sorted(file for file in folder.iterdir() if file.is_file() and file.name not in (CARD, SEAL))
    return {file.name: digest_of_content(file) for file in named}


def check_weights(folder: Path, card: Mapping[str, Any], *before: Path) -> None:
    """Raise ModelError if a file is not the one that was written with its card; older cards have no digests.

    Parameters
    ----------
    folder : Path
        Where the files are.
    card : Mapping[str, Any]
        With their digests, where it has any.
    *before : Path
        Folders where they may still be.
    """
    for name, digest in (card.get("digests") or {}).items():
        file = next((place / name for place in (*before, folder) if (place / name).is_file()), None)
        if name.endswith(".safetensors") and (file is None or digest_of_content(file) != digest):
            what = "is missing" if file is None else "is damaged: its bytes are not those that were written"
            raise ModelError(f"{file or folder / name} {what}. Train it again with --overwrite.")


def seal(folder: Path) -> None:
    """Write the digests of all files of a checkpoint, which is whole from then on."""
    (folder / SEAL).unlink(missing_ok=True)  # a damaged one, of a checkpoint that was not gone on from
    write(folder / SEAL, json.dumps(digests_of(folder), indent=2) + "\n", SEAL_FILE)


def whole_checkpoints(folder: Path, fits: Callable[[list[dict[str, Any]]], bool]) -> Iterator[tuple[list[Any], Path]]:
    """The Trainer's log and the folder of each checkpoint that is whole, the newest first; what is not is told.

    Parameters
    ----------
    folder : Path
        Of the checkpoints.
    fits : Callable
        Whether, from what the Trainer had logged, all else is there that a run goes on from.
    """
    states = sorted(folder.glob("checkpoint-*/trainer_state.json"), key=lambda f: -int(f.parent.name[11:]))
    for place in (state.parent for state in states):
        reason = _damage(place)
        if reason is None:
            logged = read_json(place / "trainer_state.json")["log_history"]
            if fits(logged):
                yield logged, place
                continue
            reason = "the weights that were best until then are damaged"
        log.warning("%s is not gone on from: %s; what is before it is taken.", place, reason)


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, None where it is whole."""
    try:
        wanted, there = read_json(folder / SEAL), digests_of(folder)
    except FileNotFoundError:
        return "it was not written to its end"
    except (OSError, ValueError) as error:
        return f"{SEAL} cannot be read ({error})"
    if not isinstance(wanted, dict):
        return f"{SEAL} holds no digests"
    wrong = sorted(name for name in {*wanted, *there} if wanted.get(name) != there.get(name))
    return f"the bytes of {', '.join(wrong)} are not those that were written" if wrong else None
