"""The file that marks the folder of a new encoder as untrained."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from probekit.files import read_json

UNTRAINED = "untrained.json"


def write_untrained(folder: Path, seed: int) -> None:
    """Mark a folder as one with initial weights that were drawn with this seed."""
    (folder / UNTRAINED).write_text(json.dumps({"seed": seed}) + "\n", encoding="utf-8")


def untrained_seed(folder: Path) -> int | None:
    """The seed of the weights in the folder of a new encoder; None for other folders, and for a file of other form."""
    with suppress(OSError, ValueError, AttributeError):
        seed = read_json(folder / UNTRAINED).get("seed")
        return seed if type(seed) is int else None
    return None
