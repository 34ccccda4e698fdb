"""TOML files that people write: tasks, searches, studies. What is wrong in them is told with its place."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.tasks.files.readers import read_lines

__all__ = ["parse_toml", "read_toml", "unknown_key"]


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Values and text of a TOML file; raises DataError naming file, line and column."""
    text = "\n".join(read_lines(path))
    return parse_toml(text, path), text


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """The values of a TOML text that ``path`` holds, or stands for."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
        what, *place = found.groups() if found else (str(error),)
        line, column = map(int, place) if place else (None, None)
        message = f"is not valid TOML: {what}. Texts need quotation marks."
        raise DataError(message, file=path, line=line, column=column) from error


def unknown_key(key: str, known: Iterable[str], place: str = "") -> str:
    """The sentence for a key that there is not, with one that is like it or all there are.

    place : the key with what it stands in
    """
    known = list(known)
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}."
    return f"unknown key {(place or key)!r}; {hint}"
