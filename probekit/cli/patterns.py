"""Quoted patterns such as ``'RUN/step-*'``: what the shell did not expand, and in which order."""

from __future__ import annotations

import re
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from probekit.errors import UsageError

__all__ = ["expand", "natural"]


def natural(path: str | Path) -> list[Any]:
    """A sorting key: numbers within a name count as numbers, so that step-20 comes before step-100."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(path))]


def expand(word: str | Path) -> list[str]:
    """What a pattern matches, in natural order; a word that is no pattern, or names what is there, stays as it is.

    Raises
    ------
    UsageError
        Where nothing matches.
    """
    word = str(word)
    if not has_magic(word) or Path(word).expanduser().exists():
        return [word]
    found = sorted(glob(str(Path(word).expanduser())), key=natural)  # noqa: PTH207 (absolute patterns, too)
    if not found:
        raise UsageError(f"nothing here matches {word!r}.")
    return found
