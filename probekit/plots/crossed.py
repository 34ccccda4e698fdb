"""What was trained on one data set and evaluated on others: the heat maps that transfer and shift share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from probekit.plots.legends import NARROW, add_legend, legend_of, wrapped
from probekit.plots.look import INK, Look
from probekit.plots.matrix import (
    Cells,
    colour_bar,
    draw_cells,
    frame_cell,
    line_height,
    name_cells,
    numbered,
    set_line_height,
    slant,
    write_cells,
)
from probekit.plots.panels import grid, same_labels

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

CELL = 0.5
"""Natural width of a cell in inches."""


@dataclass(frozen=True, slots=True)
class Crossed:
    """One map: its title, its values (lines: trained on; columns: evaluated on), and the cells that have a frame."""

    title: str
    values: pd.DataFrame
    framed: Collection[tuple[int, int]]

    def over(self, lines: Sequence[str], columns: Sequence[str]) -> Crossed:
        """The same map with other lines and columns, such as those of all maps."""
        names = [(self.values.index[i], self.values.columns[j]) for i, j in self.framed]
        places = [(list(lines).index(a), list(columns).index(b)) for a, b in names]
        return Crossed(self.title, self.values.reindex(index=list(lines), columns=list(columns)), places)

    def draw(
        self, ax: Axes, metric: str, frame: str, limits: tuple[float | None, float | None], centre: float | None,
        cell: float,
    ) -> AxesImage:  # fmt: skip
        """Draw cells, numbers and frames into ``ax``.

        Parameters
        ----------
        frame : str
            What a frame says.
        limits, centre
            As in :func:`probekit.plots.matrix.draw_cells`.
        cell : float
            Width of a cell in inches.
        """
        values = self.values.to_numpy(dtype=float)
        image = draw_cells(ax, values, metric, limits=limits, centre=centre)
        write_cells(image, values, cell=cell)
        for i, j in self.framed:
            frame_cell(ax, i, j, frame)
        ax.set_title(self.title, loc="left", fontsize=8, color=INK, parse_math=False)
        return image


def crossed_maps(
    maps: Sequence[Crossed],
    metric: str,
    title: str,
    frame: str,
    *,
    limits: tuple[float | None, float | None],
    centre: float | None = None,
    shared: str = "",
    columns: int,
    width: float | None,
    look: Look,
) -> Figure:
    """Maps with the same lines and columns side by side, with one colour scale.

    Parameters
    ----------
    title : str
        Title of the colour scale.
    frame, limits, centre
        As in :meth:`Crossed.draw`.
    shared : str
        What the names of all lines and columns begin with.
    columns, width, look
        As in :func:`layer_panels`.
    """
    lines, under = numbered(list(maps[0].values.index), list(maps[0].values.columns))
    fit = Cells.of(len(maps), columns, len(under), lines, width, CELL)
    line = max(line_height(lines, fit.side), min(0.3, 0.6 * fit.cell))
    across, heading = fit.across, max(fit.cell * len(under), fit.width / fit.across - fit.side - 0.2)
    words = ["\n".join(wrapped(row, heading, 8) for row in one.title.splitlines()) for one in maps]
    high = line * len(lines) + 0.25 + 0.15 * max(one.count("\n") for one in words)
    page, _ = look.of_page(-(-len(maps) // across), high)
    shown = slice(page.start * across, page.stop * across)
    maps, words = maps[shown], words[shown]
    figure, axes = grid(len(maps), across, high, fit.width, 1.0)
    figure.set_figheight(figure.get_figheight() + slant(under, fit.cell))
    drawn, of = list(axes.ravel())[: len(maps)], f" ({shared})" if shared else ""
    for i, (ax, one, above) in enumerate(zip(drawn, maps, words, strict=True)):
        one.draw(ax, metric, frame, limits, centre, fit.cell)
        name_cells(ax, lines, under, fit.side, line, fit.cell)
        ax.set_title(above, loc="left", fontsize=8, color=INK, parse_math=False)
        last = i + across >= len(maps)
        ax.tick_params(axis="x", labelbottom=last)
        ax.set_xlabel(f"Evaluated on{of}" if last else "", fontsize=9, color=INK)
        ax.set_ylabel(f"Trained on{of}", fontsize=9, color=INK)
    same_labels(drawn, across)
    room = fit.cell * len(under) * across if fit.width < NARROW else line * len(lines) * -(-len(maps) // across)
    colour_bar(drawn[0].images[0], title, drawn, room=room)
    add_legend(figure, legend_of(drawn), look)
    set_line_height(figure, drawn[0], line * len(lines))
    return figure
