"""Expand quoted patterns such as ``'RUN/step-*'``, in natural order."""

from __future__ import annotations

import re
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from probekit.errors import UsageError
from probekit.rows.examples import EXAMPLES

__all__ = ["expand", "natural"]


def natural(path: str | Path) -> list[Any]:
    """A sorting key: numbers within a name count as numbers, so that step-20 comes before step-100."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(path))]


def expand(pattern: str | Path) -> list[str]:
    """What a pattern matches, in natural order; a name without wildcards, or of an existing file, stays as it is.

    A pattern of rows, such as ``rows/*.parquet``, leaves out the predictions that lie beside them
    (``….examples.parquet``), unless it names these.

    Raises
    ------
    UsageError
        Where nothing matches.
    """
    pattern = str(pattern)
    if not has_magic(pattern) or Path(pattern).expanduser().exists():
        return [pattern]
    found = sorted(glob(str(Path(pattern).expanduser())), key=natural)  # noqa: PTH207 (absolute patterns, too)
    if not pattern.endswith(EXAMPLES):
        found = [path for path in found if not path.endswith(EXAMPLES)]
    if not found:
        raise UsageError(f"no file matches {pattern!r}.")
    return found
