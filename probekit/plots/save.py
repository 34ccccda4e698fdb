"""Figures as files: vector and bitmap, fonts embedded, the same bytes for the same figure."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "save"]

FORMATS = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}, ".eps": {}}
"""Suffixes, each with the metadata that keeps the time of writing out of the file."""


def save(figure: Figure, paths: Iterable[str | Path], *, dpi: int = 300) -> list[Path]:
    """Write ``figure`` to each path, the format by suffix; text stays text (TrueType in PDF, <text> in SVG).

    Files appear whole: written beside, then renamed. Raises UsageError for another suffix.
    """
    import matplotlib as mpl

    files = [Path(path) for path in paths]
    for path in files:
        if path.suffix not in FORMATS:
            raise UsageError(f"figures are written as {', '.join(FORMATS)}, not {path.suffix!r} ({path}).")
    with mpl.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "probekit"}):
        for path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
            try:
                figure.savefig(beside, dpi=dpi, metadata=FORMATS[path.suffix] or None)
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
    return files
