"""Figures as files: vector and bitmap, fonts embedded, the same bytes for the same figure; tooltips in SVG."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np

from probekit.display import p_equals
from probekit.errors import UsageError
from probekit.files import MARK, FileKind, is_sealed, seal, write

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

VALUES: WeakKeyDictionary[Line2D, list[str]] = WeakKeyDictionary()
"""The tooltips of each drawn point, by line."""


def hover(lines: Sequence[Line2D], words: Iterable[str]) -> None:
    """Set the tooltips of lines, one for each point; points without a value are not drawn and have none."""
    for line in lines:
        drawn = np.isfinite(np.asarray(line.get_ydata(), dtype=float))
        VALUES[line] = [text for text, is_drawn in zip(words, drawn, strict=True) if is_drawn]


def in_words(points: pd.DataFrame) -> list[str]:
    """The tooltip of each point of a curve: label, layer, value, interval, and whether it is above noise."""
    found = []
    for row in points.to_dict("records"):
        low, high = row["ci_low"], row["ci_high"]
        within = f" ({low:.3f} to {high:.3f})" if np.isfinite(low) and np.isfinite(high) else ""
        p = row.get("p_shown")
        tested = f", {p_equals(p)} (corrected)" if isinstance(p, float) and np.isfinite(p) else ""
        why = f", {row['hollow']}" if isinstance(row["hollow"], str) and row["hollow"] else ""
        found.append(f"{row['label']}, layer {row['layer_name']}: {row['value']:.3f}{within}{tested}{why}")
    return found


def with_values(figure: Figure, draw: Callable[[], bytes]) -> bytes:
    """An SVG file with the tooltips of its points.

    Parameters
    ----------
    figure : Figure
        The figure.
    draw : callable
        Returns the bytes of the SVG file.
    """
    lines = [line for ax in figure.axes for line in ax.lines if VALUES.get(line)]
    for i, line in enumerate(lines):
        line.set_gid(f"points-{i}")
    svg = draw().decode()
    for i, line in enumerate(lines):
        line.set_gid(None)
        head, group, rest = svg.partition(f'<g id="points-{i}">')
        before, *points = re.split(r"(<use [^>]*)/>", rest, maxsplit=len(VALUES[line]))
        marks, after = points[::2], points[1::2]
        titled = (
            f"{mark}><title>{escape(text)}</title></use>{then}"
            for mark, text, then in zip(marks, VALUES[line], after, strict=True)
        )
        svg = "".join([head, group, before, *titled])
    return svg.encode()


FORMATS = {
    ".pdf": {"CreationDate": None, "Creator": MARK},
    ".svg": {"Date": None, "Creator": MARK},
    ".png": {"Software": MARK},
    ".eps": {"Creator": MARK},
}
"""Suffixes, each with metadata that leave the time of writing out of the file and mark it as probekit's."""
FIGURE_FILE = FileKind("a figure as probekit wrote it", is_sealed)


def save(figure: Figure, paths: Iterable[str | Path], *, dpi: int = 300) -> list[Path]:
    """Write ``figure`` to each path, the format by suffix; text stays text (TrueType in PDF, <text> in SVG).

    EPS has no transparency, so bands get the colour that they have on white. Files are written under a temporary name
    and then renamed.

    Raises
    ------
    UsageError
        For another suffix, and if an existing file is not an unchanged figure of probekit.
    """
    files = check_files(paths)
    for path in files:
        write(path, as_bytes(figure, path.suffix, dpi), FIGURE_FILE)
    return files


def as_bytes(figure: Figure, suffix: str, dpi: float | Literal["figure"] = "figure") -> bytes:
    """The bytes of a figure as a file with this suffix; equal figures give equal bytes."""
    import matplotlib as mpl

    draw = partial(_drawn, figure, suffix, dpi)
    with (
        mpl.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "probekit"}),
        _opaque(figure) if suffix == ".eps" else nullcontext(),
    ):
        data = with_values(figure, draw) if suffix == ".svg" else draw()
    if suffix == ".eps":  # EPS metadata cannot leave out the date
        data = re.sub(rb"%%CreationDate: .*\n", b"", data, count=1)
    return _png(data) if suffix == ".png" else data


def _drawn(figure: Figure, suffix: str, dpi: float | Literal["figure"]) -> bytes:
    figure.savefig(file := BytesIO(), format=suffix[1:], dpi=dpi, metadata=FORMATS[suffix])
    return file.getvalue()


def _png(data: bytes) -> bytes:
    """A PNG with the mark, and a correct checksum of the chunk that contains it."""
    data = seal(data)
    start = data.index(b"tEXtSoftware\0")
    stop = start + 4 + int.from_bytes(data[start - 4 : start])
    return data[:stop] + zlib.crc32(data[start:stop]).to_bytes(4) + data[stop + 4 :]


def check_files(paths: Iterable[str | Path]) -> list[Path]:
    """The paths of figures; UsageError for another suffix, and if an existing file is not probekit's."""
    files = [Path(path) for path in paths]
    for path in files:
        if path.suffix not in FORMATS:
            raise UsageError(f"figures can be written as {', '.join(FORMATS)}, not {path.suffix!r} ({path}).")
        FIGURE_FILE.check(path)
    return files


@contextmanager
def _opaque(figure: Figure) -> Iterator[None]:
    """Temporarily replace transparent colours by their colours on white."""
    from matplotlib.artist import getp, setp
    from matplotlib.collections import Collection
    from matplotlib.patches import Patch

    def blend(colours: Any) -> np.ndarray:
        rgba = np.atleast_2d(colours)
        alpha = rgba[:, 3:]
        return np.where(alpha > 0, np.hstack([rgba[:, :3] * alpha + 1 - alpha, np.ones_like(alpha)]), rgba)

    before = []
    for artist in figure.findobj(lambda a: isinstance(a, Collection | Patch)):
        face, edge = (getp(artist, colour) for colour in ("facecolor", "edgecolor"))
        before.append((artist, {"alpha": artist.get_alpha(), "facecolor": face, "edgecolor": edge}))
        several = isinstance(artist, Collection)
        face, edge = (blend(c) if several or not len(c) else blend(c)[0] for c in (face, edge))
        setp(artist, alpha=None, facecolor=face, edgecolor=edge)
    try:
        yield
    finally:
        for artist, was in before:
            setp(artist, **was)
