"""Expand quoted patterns such as ``'RUN/step-*'``, in natural order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from probekit.errors import UsageError
from probekit.rows.examples import EXAMPLES


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


def expand_pairs(caches: Sequence[str]) -> list[str]:
    """TRAIN, DEV, TRAIN, DEV … from what each two patterns match, in natural order; an odd number stays as it is."""
    if len(caches) % 2:
        return list(caches)
    found: list[str] = []
    for pair in zip(caches[::2], caches[1::2], strict=True):
        first, second = map(expand, pair)
        if len(first) != len(second):
            raise UsageError(
                f"{pair[0]} matches {len(first)} caches, but {pair[1]} matches {len(second)}; the numbers must agree."
            )
        found += [path for both in zip(first, second, strict=True) for path in both]
    return found
