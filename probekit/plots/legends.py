"""Text in figures, its width and line breaks; legends: one for all panels, curves first, in as few lines as fit."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.look import INK, Look

if TYPE_CHECKING:
    from matplotlib.legend import Legend


@lru_cache(maxsize=4096)
def inches(words: str, size: float, weight: str = "normal") -> float:
    """An upper bound of the widest line; letters in bitmaps are up to a tenth wider than drawn ones."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(weight=weight)
    plain = (line.replace("$", r"\$") for line in words.splitlines())  # a name is no mathematics
    widths = (TextPath((0, 0), line, size, font).get_extents().width for line in plain)
    return 1.1 * max(widths, default=0.0) / 72


def wrapped(words: str, room: float, size: float, weight: str = "normal") -> str:
    """Wrap text to ``room`` inches, at commas, or else at spaces and dashes."""
    parts, lines = words.split(", "), [""]
    for i, part in enumerate(parts):
        piece = part + ("," if i + 1 < len(parts) else "")
        if lines[-1] and inches(f"{lines[-1]} {piece}", size, weight) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {piece}".lstrip()
    for i, line in enumerate(lines):
        if (wide := inches(line, size, weight)) > room:
            fits = max(4, int(len(line) * room / wide) - 1)
            lines[i] = "\n".join(textwrap.wrap(line, fits))
    return "\n".join(lines)


SMALL: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": INK, "handlelength": 2.0}
TIGHT: dict[str, Any] = {"labelspacing": 0.25, "borderpad": 0.2, "borderaxespad": 0.2, "handletextpad": 0.6}
NARROW = 4.0
"""Width in inches below which the letters of a legend have 7 points."""
BESIDE = 1.65
"""Width in inches of a legend at the right."""
CURVES = 4
"""The lowest zorder of curves."""
ALIKE = {
    ("majority class", "mean of train"): "majority class or mean of train",
    ("not above noise (p > 0.05)", "not above noise (interval)"): "not above noise",
}
"""Labels that look the same as a line or a point, and share one legend entry."""


def narrower(width: float | None, look: Look) -> float | None:
    """The width that a legend at the right leaves for the panels, in inches; None if no width is given."""
    if width is None or look.legend != "right":
        return width
    if width < BESIDE + 1.6:
        raise UsageError(
            f"a legend at the right needs a figure width of at least {BESIDE + 1.6:.2f} inches, not {width:.2f}; use "
            "legend below."
        )
    return width - BESIDE


def add_legend(figure: Any, named: Mapping[str, Any], look: Look) -> None:
    """Draw the legend into a figure, which grows to hold it.

    If all curves are of one model, its name is the title of the legend.
    """
    from matplotlib.lines import Line2D

    above = {label: (x[-1] if isinstance(x, tuple) else x).get_zorder() for label, x in named.items()}
    order = sorted(named, key=lambda label: above[label], reverse=True)
    if not order:
        return
    entries = dict(zip(order, order, strict=True))
    for (first, second), both in ALIKE.items():
        if isinstance(named.get(first), Line2D) and isinstance(named.get(second), Line2D):
            order.remove(second)
            entries[first] = both
    entries = {label: look.shown(entry) for label, entry in entries.items()}
    title = common([entries[label] for label in order if above[label] >= CURVES])
    entries = {label: entry.removeprefix(f"{title}, ") for label, entry in entries.items()}
    if look.legend == "none":
        return
    right, wide = look.legend == "right", BESIDE if look.legend == "right" else figure.get_figwidth()
    size = 7 if wide < NARROW else SMALL["fontsize"]
    if wide < NARROW and not right:  # short entries side by side
        order.sort(key=lambda label: 0 if above[label] >= CURVES else len(entries[label]))
    words = [wrapped(entries[x], wide - (SMALL["handlelength"] + 2) * size / 72, size) for x in order]
    columns = 1 if right else max((k for k in range(1, len(order) + 1) if _width(words, k, size) <= wide), default=1)
    rows = -(-len(order) // columns)
    lines = sum(max(1 + x.count("\n") for x in words[i::rows]) for i in range(rows)) + bool(title)
    height = (1.02 + TIGHT["labelspacing"]) * size * lines / 72 + 0.08
    if right:
        figure.set_size_inches(figure.get_figwidth() + BESIDE, max(figure.get_figheight(), height + 0.2))
    else:
        figure.set_figheight(figure.get_figheight() + height)
    place = "outside right upper" if right else "outside lower center"
    style = {**SMALL, **TIGHT, "fontsize": size, "title_fontsize": size, "columnspacing": 1.0, "alignment": "left"}
    drawn = figure.legend([named[x] for x in order], words, loc=place, ncols=columns, title=title or None, **style)
    plain_legend(drawn)
    drawn.get_title().set(color=INK, fontweight="bold")


def mark_legend(
    figure: Any, marks: Mapping[str, tuple[str, str]], look: Look, entry: float, title: Sequence[str] = ()
) -> None:
    """Draw a legend of marks into a figure, which grows to hold it; only with a title it may be at the right.

    Parameters
    ----------
    figure : Figure
        The figure.
    marks : mapping
        Colour and shape by name.
    look : Look
        Position of the legend.
    entry : float
        Room for an entry below the figure, in inches.
    title : sequence of str
        What the marks show.
    """
    if look.legend == "none":
        return
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"linestyle": "none", "markersize": 5}
    drawn = [Line2D([], [], color=colour, marker=marker, **style) for colour, marker in marks.values()]
    right = look.legend == "right" and bool(title)
    columns = 1 if right else max(1 + bool(title), int(figure.get_figwidth() / entry))
    if right:
        figure.set_figwidth(figure.get_figwidth() + BESIDE)
    else:
        height = 0.1 + 0.1 * bool(title) + 0.17 * -(-len(marks) // columns)
        figure.set_figheight(figure.get_figheight() + height)
    style = {**SMALL, "ncols": columns, "loc": "outside right upper" if right else "outside lower center"}
    if title:
        words = "\n".join(part.capitalize() for part in title) if right else "; ".join(title)
        style |= {"title": words, "title_fontsize": 8}
    plain_legend(figure.legend(drawn, list(marks), **style))


def plain_legend(drawn: Legend) -> None:
    """Take the texts of a legend as they are: a name may hold "$"."""
    for text in (*drawn.get_texts(), drawn.get_title()):
        text.set_parse_math(False)


def common(curves: Sequence[str]) -> str:
    """The common first part of the labels of all curves, if each has a second part."""
    first = {label.partition(", ")[0] for label in curves}
    return first.pop() if len(first) == 1 and len(curves) > 1 and all(", " in label for label in curves) else ""


def _width(words: Sequence[str], columns: int, size: float) -> float:
    """The width of a legend in inches."""
    text = sum(max(inches(x, size) for x in column) for column in np.array_split(words, columns))
    gaps = columns * (SMALL["handlelength"] + TIGHT["handletextpad"]) + 1.0 * (columns - 1) + 0.5
    return float(text + size * gaps / 72)
