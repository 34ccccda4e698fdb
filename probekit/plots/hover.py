"""Tooltips of points in SVG files: <title> elements, which browsers show without a script."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = ["hover", "in_words", "with_values"]

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
        tested = f", p {p:.3g} (corrected)" if isinstance(p, float) and np.isfinite(p) else ""
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
