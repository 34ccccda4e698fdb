"""Digests of a run's files: of its weights, in the card, and of the checkpoints for resuming."""

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

log = logging.getLogger(__name__)

SEAL = "digests.json"
"""The last file of a checkpoint to be written, with the digests of the others."""


def _is_seal(path: Path) -> bool:
    found = read_json(path)
    return isinstance(found, dict) and all(re.fullmatch("[0-9a-f]{32}", str(digest)) for digest in found.values())


SEAL_FILE = FileKind("the digests of a checkpoint", _is_seal)


def digests_of(folder: Path) -> dict[str, str]:
    """xxh3 digests of the files of a folder by name, except those that hold digests themselves."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name not in (CARD, SEAL))
    return {file.name: digest_of_content(file) for file in files}


def check_weights(folder: Path, card: Mapping[str, Any], *before: Path) -> None:
    """Raise ModelError if a file differs from the digest in its card; older cards have no digests.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    card : Mapping[str, Any]
        Card with their digests, if it has any.
    *before : Path
        Other folders where they may still be.
    """
    for name, digest in (card.get("digests") or {}).items():
        file = next((place / name for place in (*before, folder) if (place / name).is_file()), None)
        if name.endswith(".safetensors") and (file is None or digest_of_content(file) != digest):
            problem = "is missing" if file is None else "is damaged: its content does not match its digest"
            raise ModelError(f"{file or folder / name} {problem}. Train it again with --overwrite.")


def seal(folder: Path) -> None:
    """Write the digests of all files of a checkpoint, which marks it as complete."""
    (folder / SEAL).unlink(missing_ok=True)  # of a damaged checkpoint that was not resumed
    write(folder / SEAL, json.dumps(digests_of(folder), indent=2) + "\n", SEAL_FILE)


def whole_checkpoints(folder: Path, fits: Callable[[list[dict[str, Any]]], bool]) -> Iterator[tuple[list[Any], Path]]:
    """The Trainer's log and the folder of each complete checkpoint, the newest first; warns of incomplete ones.

    Parameters
    ----------
    folder : Path
        Folder of the checkpoints.
    fits : Callable
        Whether, given the Trainer's log, all other files for resuming exist.
    """
    states = sorted(folder.glob("checkpoint-*/trainer_state.json"), key=lambda f: -int(f.parent.name[11:]))
    for place in (state.parent for state in states):
        reason = _damage(place)
        if reason is None:
            logged = read_json(place / "trainer_state.json")["log_history"]
            if fits(logged):
                yield logged, place
                continue
            reason = "the best weights up to it are damaged"
        log.warning("%s is not used to resume: %s; an earlier checkpoint is used instead.", place, reason)


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None if it is complete."""
    try:
        expected, found = read_json(folder / SEAL), digests_of(folder)
    except FileNotFoundError:
        return "it was not written completely"
    except (OSError, ValueError) as error:
        return f"{SEAL} cannot be read ({error})"
    if not isinstance(expected, dict):
        return f"{SEAL} holds no digests"
    wrong = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    return f"the content of {', '.join(wrong)} does not match its digest" if wrong else None
