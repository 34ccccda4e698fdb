"""Legends: one under, or beside, all panels; curves first, then what they lie over, in as few lines as fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.look import Look
from probekit.plots.palette import INK
from probekit.plots.text import inches, wrapped

__all__ = ["BESIDE", "SMALL", "add_legend", "common", "narrower"]

SMALL: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": INK, "handlelength": 2.0}
TIGHT: dict[str, Any] = {"labelspacing": 0.25, "borderpad": 0.2, "borderaxespad": 0.2, "handletextpad": 0.6}
NARROW = 4.0
"""Inches, below which letters of a legend have 7 points."""
BESIDE = 1.65
"""Inches of a legend at the right."""
CURVES = 4
"""From which zorder on an artist is a curve."""
ALIKE = {
    ("majority class", "mean of train"): "majority class or mean of train",
    ("not above noise (p > 0.05)", "not above noise (interval)"): "not above noise",
}
"""What looks the same as a line or a point, and is one entry of a legend."""


def narrower(width: float | None, look: Look) -> float | None:
    """The width that a legend at the right leaves to panels, in inches; None where none is asked for."""
    if width is None or look.legend != "right":
        return width
    if width < BESIDE + 1.6:
        raise UsageError(f"a legend at the right wants a figure of at least {BESIDE + 1.6:.2f} inches; give it below.")
    return width - BESIDE


def add_legend(figure: Any, named: Mapping[str, Any], look: Look) -> None:
    """Draw the legend into a figure, which grows by it.

    A model that all curves are of is said once, over the entries.
    """
    from matplotlib.lines import Line2D

    above = {label: (x[-1] if isinstance(x, tuple) else x).get_zorder() for label, x in named.items()}
    order = sorted(named, key=lambda label: above[label], reverse=True)
    if not order:
        return
    told = dict(zip(order, order, strict=True))
    for (first, second), both in ALIKE.items():
        if isinstance(named.get(first), Line2D) and isinstance(named.get(second), Line2D):
            order.remove(second)
            told[first] = both
    told = {label: look.shown(words) for label, words in told.items()}
    title = common([told[label] for label in order if above[label] >= CURVES])
    told = {label: words.removeprefix(f"{title}, ") for label, words in told.items()}
    if look.legend == "none":
        return
    right, wide = look.legend == "right", BESIDE if look.legend == "right" else figure.get_figwidth()
    size = 7 if wide < NARROW else SMALL["fontsize"]
    if wide < NARROW and not right:  # short ones side by side with long ones
        order.sort(key=lambda label: 0 if above[label] >= CURVES else len(told[label]))
    words = [wrapped(told[x], wide - (SMALL["handlelength"] + 2) * size / 72, size) for x in order]
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
    for text in (*drawn.get_texts(), drawn.get_title()):
        text.set_parse_math(False)
    drawn.get_title().set(color=INK, fontweight="bold")


def common(curves: Sequence[str]) -> str:
    """The first part of the names of all curves, where each has another part, too."""
    first = {label.partition(", ")[0] for label in curves}
    return first.pop() if len(first) == 1 and len(curves) > 1 and all(", " in label for label in curves) else ""


def _width(words: Sequence[str], columns: int, size: float) -> float:
    """Of a legend in inches."""
    text = sum(max(inches(x, size) for x in column) for column in np.array_split(words, columns))
    gaps = columns * (SMALL["handlelength"] + TIGHT["handletextpad"]) + 1.0 * (columns - 1) + 0.5
    return float(text + size * gaps / 72)
