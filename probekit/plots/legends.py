"""Text in figures, its width and line breaks; legends: one for all panels, curves first, in as few lines as fit."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.look import GREYS, INK, Look

if TYPE_CHECKING:
    from matplotlib.legend import Legend


@lru_cache(maxsize=4096)
def inches(words: str, size: float, weight: str = "normal") -> float:
    """An upper bound of the widest line; letters in bitmaps are up to a tenth wider than drawn ones."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(weight=weight, size=size)
    widths = (text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] for line in words.splitlines())
    return 1.1 * max(0.0, max(widths, default=0.0) - 0.13 * size) / 72  # without the space beside the outer letters


def wrapped(words: str, room: float, size: float, weight: str = "normal", *, commas: bool = True) -> str:
    """Wrap text to ``room`` inches, first at commas (unless not ``commas``), then at spaces, and long words at dashes.

    What belongs together stays on a line: "p > 0.05", "95 %".
    """
    words = re.sub(r" ([<>=≤≥%]) ?", lambda found: found[0].replace(" ", "\u00a0"), words)
    parts, lines = words.split(", ") if commas else [words], [""]
    for i, part in enumerate(parts):
        piece = part + ("," if i + 1 < len(parts) else "")
        if lines[-1] and inches(f"{lines[-1]} {piece}", size, weight) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {piece}".lstrip()
    for i, line in enumerate(lines):
        if (wide := inches(line, size, weight)) > room:
            fits = max(4, int(len(line) * room / wide) - 1)
            long = max(map(len, line.split())) > fits
            lines[i] = "\n".join(textwrap.wrap(line, fits, break_on_hyphens=long))
    return "\n".join(lines).replace("\u00a0", " ")


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


def add_legend(figure: Any, named: Mapping[str, Any], look: Look, title: str = "") -> None:
    """Draw the legend into a figure, which grows to hold it.

    If all curves are of one model, its name is the title of the legend, unless there is a ``title``.
    """
    from matplotlib.lines import Line2D

    above = {label: _height(x) for label, x in named.items()}
    order = sorted(named, key=lambda label: above[label], reverse=True)
    if not order:
        return
    order = _by_step(order, sum(height >= CURVES for height in above.values()))
    entries = dict(zip(order, order, strict=True))
    for (first, second), both in ALIKE.items():
        if isinstance(named.get(first), Line2D) and isinstance(named.get(second), Line2D):
            order.remove(second)
            entries[first] = both
    entries = {label: look.shown(entry) for label, entry in entries.items()}
    same = "" if title else common([entries[label] for label in order if above[label] >= CURVES])
    entries = {label: entry.removeprefix(f"{same}, ") for label, entry in entries.items()}
    title = title or same
    if look.legend == "none":
        return
    right, wide = look.legend == "right", BESIDE if look.legend == "right" else figure.get_figwidth()
    size = 7 if wide < NARROW else SMALL["fontsize"]
    style = {**SMALL, **TIGHT, "fontsize": size, "title_fontsize": size, "columnspacing": 1.0, "alignment": "left"}
    if not right and (placed := _within(figure, [entries[x] for x in order], size, bool(title))):
        words, corner = placed
        style |= {"loc": "upper left", "bbox_to_anchor": corner}
        plain_legend(figure.legend([named[x] for x in order], words, title=title or None, **style))
        return
    if wide < NARROW and not right:  # curves, lines, and the others, short entries side by side
        kinds = {label: 0 if above[label] >= CURVES else 1 + (not _is_line(named[label])) for label in order}
        order.sort(key=lambda label: (kinds[label], len(entries[label]) * (kinds[label] > 0)))
    words, columns, lines = _arranged([entries[x] for x in order], wide, size, most=1 if right else len(order))
    height = _height_of(lines + bool(title), size)
    if right:
        figure.set_size_inches(figure.get_figwidth() + BESIDE, max(figure.get_figheight(), height + 0.2))
    else:
        figure.set_figheight(figure.get_figheight() + height)
    style |= {"loc": "outside right upper" if right else "outside lower center", "ncols": columns}
    plain_legend(figure.legend([named[x] for x in order], words, title=title or None, **style))


def _within(
    figure: Any, entries: Sequence[str], size: float, titled: bool
) -> tuple[list[str], tuple[float, float]] | None:
    """The entries of a legend in the empty places at the end of the last line of panels, and its upper left corner.

    None if there is no room, or if something else than panels is in the figure, such as a colour bar.
    """
    places = [ax.get_subplotspec() for ax in figure.axes]
    if not places or any(place is None or place.num1 != i for i, place in enumerate(places)):
        return None
    down, across = places[0].get_gridspec().get_geometry()
    free = down * across - len(places)
    room = figure.get_figwidth() * free / across - 0.2
    words, _, lines = _arranged(entries, room, size, most=1)
    if not free or down < 2 or _width(words, 1, size) > room:
        return None
    if _height_of(lines + titled, size) > 0.8 * figure.get_figheight() / down - 0.3:
        return None
    return words, (1 - free / across + 0.17 / figure.get_figwidth(), 1 / down - 0.2 / figure.get_figheight())


def _height_of(lines: int, size: float) -> float:
    """The height in inches of a legend of so many lines."""
    return (1.02 + TIGHT["labelspacing"]) * size * lines / 72 + 0.08


def _is_line(drawn: Any) -> bool:
    """Whether a legend entry shows a line without markers, such as a baseline."""
    from matplotlib.lines import Line2D

    return isinstance(drawn, Line2D) and drawn.get_linestyle() != "None" and drawn.get_marker() in ("None", "", None)


def _by_step(order: list[str], curves: int) -> list[str]:
    """Labels with the curves, which come first, in the order of their steps, if they differ only in these."""
    steps = [re.fullmatch(r"(.*step )(\d+)", label) for label in order[:curves]]
    if len({step and step[1] for step in steps}) != 1 or steps[0] is None:
        return order
    return [*sorted(order[:curves], key=lambda label: int(label.rpartition(" ")[2])), *order[curves:]]


def _height(drawn: Any) -> float:
    """The zorder of what a legend entry shows; of several artists that of the last, of error bars that of the point."""
    while isinstance(drawn, tuple):
        drawn = getattr(drawn, "lines", drawn)[0 if hasattr(drawn, "lines") else -1]
    return float(drawn.get_zorder())


def legend_of(axes: Iterable[Any]) -> dict[str, Any]:
    """What the Axes show, by its label in the legend."""
    named: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        named |= {label: x for label, x in zip(labels, handles, strict=True) if label not in named}
    return named


def bar_key(words: str, marker: str = "|") -> dict[str, Any]:
    """The legend entry of error bars; those in both directions have the marker "+", horizontal ones "_"."""
    from matplotlib.lines import Line2D

    return {words: Line2D([], [], color=GREYS[0], marker=marker, markersize=8, linestyle="none", zorder=1)}


def band_key(words: str, colour: str = GREYS[0]) -> dict[str, Any]:
    """The legend entry of bands in the colours of their curves."""
    from matplotlib.patches import Patch

    return {words: Patch(facecolor=(colour, 0.3), linewidth=0, zorder=1)}


def marks(styles: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Legend entries of points: colour and marker by name."""
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"linestyle": "none", "markersize": 5, "zorder": CURVES}
    return {name: Line2D([], [], color=colour, marker=marker, **style) for name, (colour, marker) in styles.items()}


def plain_legend(drawn: Legend) -> None:
    """Take the texts of a legend as they are: a name may hold "$"; its title is bold."""
    for text in (*drawn.get_texts(), drawn.get_title()):
        text.set_parse_math(False)
    drawn.get_title().set(color=INK, fontweight="bold")


def common(curves: Sequence[str]) -> str:
    """The common first parts of the labels of all curves, after which each has another part."""
    parts = [label.split(", ") for label in curves]
    most = min(map(len, parts), default=1) - 1 if len(parts) > 1 else 0
    alike = next((i for i in range(most) if len({part[i] for part in parts}) > 1), most)
    return ", ".join(parts[0][:alike]) if parts else ""


def _arranged(entries: Sequence[str], wide: float, size: float, most: int) -> tuple[list[str], int, int]:
    """Entries with line breaks, the number of columns that takes the fewest lines, and these lines."""
    best: tuple[list[str], int, int] | None = None
    for columns in range(1, most + 1):
        room = (wide - 0.1) / columns - (SMALL["handlelength"] + TIGHT["handletextpad"] + 1.2) * size / 72
        if room < 0.6:
            break
        words = [wrapped(entry, wide - 0.5, size) for entry in entries]
        rows = -(-len(words) // columns)
        if _width(words, columns, size) > wide:
            for fits in np.linspace(wide - 0.5, room, 6):  # a column may be wider than the others
                words = [wrapped(entry, fits, size) for entry in entries]
                if _width(words, columns, size) <= wide:
                    break
            if max(word.count("\n") for word in words) > 2 or _width(words, columns, size) > wide:
                continue
        lines = sum(max(1 + x.count("\n") for x in words[i::rows]) for i in range(rows))
        if best is None or lines < best[2]:
            best = words, columns, lines
    return best or (list(entries), 1, len(entries))


def _width(words: Sequence[str], columns: int, size: float) -> float:
    """The width of a legend in inches."""
    text = sum(max(inches(x, size) for x in column) for column in np.array_split(words, columns))
    gaps = columns * (SMALL["handlelength"] + TIGHT["handletextpad"]) + 1.0 * (columns - 1) + 0.5
    return float(text + size * gaps / 72)
