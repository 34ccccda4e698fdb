"""Figures as files: vector and bitmap, fonts embedded, the same bytes for the same figure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.files import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "check_suffixes", "save"]

FORMATS = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}, ".eps": {}}
"""Suffixes, each with the metadata that keeps the time of writing out of the file."""


def save(figure: Figure, paths: Iterable[str | Path], *, dpi: int = 300) -> list[Path]:
    """Write ``figure`` to each path, the format by suffix; text stays text (TrueType in PDF, <text> in SVG).

    EPS knows no transparency: bands are drawn in the tint they have on white. Files appear whole: written beside,
    then renamed.

    Raises
    ------
    UsageError
        For another suffix.
    """
    import matplotlib as mpl

    files = check_suffixes(paths)
    with mpl.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "probekit"}):
        for path in files:
            with _opaque(figure) if path.suffix == ".eps" else nullcontext():
                figure.savefig(
                    drawn := BytesIO(), format=path.suffix[1:], dpi=dpi, metadata=FORMATS[path.suffix] or None
                )
            data = drawn.getvalue()
            if path.suffix == ".eps":  # which takes no metadata
                data = re.sub(rb"%%CreationDate: .*\n", b"", data, count=1)
            write(path, data)
    return files


def check_suffixes(paths: Iterable[str | Path]) -> list[Path]:
    """The paths of figures; UsageError for one of another suffix."""
    files = [Path(path) for path in paths]
    for path in files:
        if path.suffix not in FORMATS:
            raise UsageError(f"figures are written as {', '.join(FORMATS)}, not {path.suffix!r} ({path}).")
    return files


@contextmanager
def _opaque(figure: Figure) -> Iterator[None]:
    """Give what is transparent the colour it has on white, for a while."""
    from matplotlib.artist import setp
    from matplotlib.collections import Collection
    from matplotlib.patches import Patch

    def blend(colours: Any) -> np.ndarray:
        rgba = np.atleast_2d(colours)
        alpha = rgba[:, 3:]
        return np.where(alpha > 0, np.hstack([rgba[:, :3] * alpha + 1 - alpha, np.ones_like(alpha)]), rgba)

    before = []
    for artist in figure.findobj(lambda a: isinstance(a, Collection | Patch)):
        # findobj tells no types: it was asked for what has faces and edges
        face, edge = artist.get_facecolor(), artist.get_edgecolor()  # type: ignore[attr-defined]
        before.append((artist, {"alpha": artist.get_alpha(), "facecolor": face, "edgecolor": edge}))
        several = isinstance(artist, Collection)
        face, edge = (blend(c) if several or not len(c) else blend(c)[0] for c in (face, edge))
        setp(artist, alpha=None, facecolor=face, edgecolor=edge)
    try:
        yield
    finally:
        for artist, was in before:
            setp(artist, **was)
