"""Figures of panels of several kinds: in lines as wide as the figure, with a letter for each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from probekit.errors import UsageError
from probekit.plots.legends import add_legend, legend_of, wrapped
from probekit.plots.look import Look
from probekit.plots.panels import PAGE, even, new_figure, same_labels, width_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SQUEEZED = 1.25
"""How much wider than the figure the natural widths of a line may be."""


class Part(NamedTuple):
    """A panel: its kind, title, natural width and height in inches, and the function that draws it into ``ax``."""

    kind: str
    title: str
    width: float
    height: float
    draw: Callable[..., object]
    facet: bool = False


def parts_figure(parts: Sequence[Part], width: float | None, look: Look) -> Figure:
    """The panels, in as many lines as the width requires, and on as many pages as the lines.

    The first panel of each kind has its letter. Facets have lines of their own, each with the same number.
    """
    if not parts:
        raise UsageError("there are no rows to draw.")
    width = width or min(PAGE, sum(part.width for part in parts))
    kinds, facets = list(dict.fromkeys(part.kind for part in parts)), [part for part in parts if part.facet]
    across = even(len(facets), max(1, int(SQUEEZED * width / facets[0].width))) if facets else 0
    lines = _lines(parts, width, across)
    heights = [max(part.height for part in line) for line in lines]
    page = look.of_heights(heights)
    lines, heights = [lines[i] for i in page], [heights[i] for i in page]
    figure = new_figure((width, sum(heights)), "constrained")
    strips = figure.subfigures(len(lines), 1, squeeze=False, height_ratios=heights)[:, 0]
    drawn = []
    for strip, line in zip(strips, lines, strict=True):
        wide = [part.width for part in line]
        wide += [wide[0]] * (across - len(line)) * line[0].facet
        axes = list(strip.subplots(1, len(wide), squeeze=False, width_ratios=wide)[0])
        for ax in axes[len(line) :]:
            ax.remove()
        for ax, part in zip(axes, line, strict=False):
            part.draw(ax=ax)
            first = part is next(other for other in parts if other.kind == part.kind)
            letter = f"{'abcd'[kinds.index(part.kind)]}  " if len(kinds) > 1 and first else ""
            title = wrapped(letter + (part.title or ax.get_title("left")), width_of(ax) - 0.5, 8, "bold")
            ax.set_title(title, loc="left", fontsize=8, fontweight="bold", parse_math=False)
        same_labels(axes[: len(line)], len(line))
        drawn += axes[: len(line)]
    add_legend(figure, legend_of(drawn), look)
    return figure


def _lines(parts: Sequence[Part], width: float, across: int) -> list[list[Part]]:
    """The parts by line, ``across`` facets or what fits into ``width`` inches."""
    lines: list[list[Part]] = []
    for part in parts:
        last = lines[-1] if lines else []
        full = len(last) == across if part.facet else sum(p.width for p in (*last, part)) > SQUEEZED * width
        if not last or full or last[0].facet != part.facet:
            lines.append([])
        lines[-1].append(part)
    return lines
