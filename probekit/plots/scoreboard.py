"""Tasks by layer, each between its control and its ceiling: a heat map for each model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.metrics import metric as metric_called
from probekit.plots.caption import listed, metrics_of, sizes_of
from probekit.plots.curves import of_one, plot_rows
from probekit.plots.layers import INPUTS
from probekit.plots.legends import add_legend, inches, legend_of, wrapped
from probekit.plots.look import INK, PAGE_HEIGHT, Look, control_title
from probekit.plots.matrix import Cells, colour_bar, draw_cells, frame_cell, hatch_cells, name_cells, write_cells
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import PAGE, grid
from probekit.rows import called, layer_labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

CELL, LINE, AROUND = 0.36, 0.2, 0.75
"""Width of a layer, height of a task, and height of title and axis of a model, in inches."""
LEAST = 3.0
"""The least width of a figure in inches, of which half is the least height: the colour bar has room."""
FEWEST = 8
"""The fewest tasks for which a page keeps all models together."""
ON_TRAIN, ON_DEV, REACHES = "layer chosen on train", "best layer on dev", "interval reaches the control"


def board_values(rows: Any) -> pd.DataFrame:
    """Return the normalised scores that :func:`board_panels` draws, with columns ``name`` (the model) and ``at``.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.scoreboard`.

    Returns
    -------
    DataFrame
        A row for each model, line and layer (``at``; "" for a model that is scored as a whole), by group.

    Raises
    ------
    UsageError
        If the rows have no normalised scores.
    """
    rows = plot_rows(rows)
    lacking = "the rows have no normalised scores; give those of probekit scoreboard or probekit suite."
    rows = of_one(rows[rows["metric"].str.startswith("normalised(")], "scoreboard", lacking)
    names = [called({**row, "representation": ""}) for row in rows.to_dict("records")]
    rows = rows.assign(name=names, at=layer_labels(rows))
    groups = list(dict.fromkeys(rows["group"]))
    return rows.sort_values("group", key=lambda g: g.map(groups.index), kind="stable").reset_index(drop=True)


def board_panels(
    rows: Any, *, columns: int | None = None, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot tasks by layer, each between its control (0) and its ceiling (100): one heat map for each model.

    A frame marks the layer that train chooses (dashed: the best on dev, where train chooses none). Hatched cells are
    not shown to be above the control.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit scoreboard or probekit suite wrote (.parquet, .csv).
    columns : int, optional
        Largest number of panels side by side, 3 by default.
    width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw a heat map for each model: tasks by layer, from the control (0) to the ceiling (100).

    A frame marks the layer chosen on train, a dashed one the best layer on dev where train chooses none. Hatched cells
    are not shown to be above the control.

    Examples
    --------
    On the command line::

        probekit plot scoreboard suites/syntax/rows/scoreboard.parquet --out syntax.pdf
    """
    values, look = board_values(rows), look or Look()
    models, lines = (list(dict.fromkeys(values[name])) for name in ("name", "line"))
    layers = list(dict.fromkeys(values.sort_values("layer", kind="stable")["at"]))
    shown = [look.task(line) for line in lines]
    groups = max((inches(group, 7) for group in values["group"].unique()), default=0.0)
    room = None if width is None else width - groups
    fit = Cells.of(len(models), columns or 3, len(layers), shown, room, CELL)
    models, lines, line = _page(models, lines, fit.across, look)
    high = max(LEAST / 2, line * len(lines) + AROUND)
    figure, axes = grid(len(models), fit.across, high, width or min(PAGE, max(LEAST, fit.width + groups)), 1.0)
    drawn = list(axes.ravel())[: len(models)]
    values = values[values["line"].isin(lines)]
    images: list[Any] = []
    for i, (ax, model) in enumerate(zip(drawn, models, strict=True)):
        images.append(_draw(ax, values[values["name"] == model], lines, layers, fit.cell))
        shown = [look.task(line) if i % fit.across == 0 else "" for line in lines]
        name_cells(ax, shown, [layer or "head" for layer in layers], fit.side, line, fit.cell)
        title = wrapped(look.shown(model), fit.cell * len(layers) + 0.5, 9)
        ax.set_title(title, fontsize=9, color=INK, loc="left", parse_math=False)
        ax.set_xlabel("Layer", fontsize=9, color=INK)
        if i % fit.across == fit.across - 1 or i == len(models) - 1:
            _name_groups(ax, values, lines)
    lowest = min(images, key=lambda image: float(np.ma.min(image.get_array())))
    colour_bar(lowest, "Between control (0) and ceiling (100)", drawn)
    add_legend(figure, legend_of(drawn), look)
    return figure


def _page(models: list[str], lines: list[str], across: int, look: Look) -> tuple[list[str], list[str], float]:
    """The models and lines of a page, and the height of a line: all models of some lines, if these are not too few."""
    down = -(-len(models) // across)
    height = LINE / max(1 / PAGE_HEIGHT, 1 / down - AROUND / PAGE_HEIGHT)  # of a line of all models on a page
    if PAGE_HEIGHT / height >= FEWEST:
        page, high = look.of_page(len(lines), height)
        return models, lines[page.start : page.stop], LINE * high / height
    page, high = look.of_page(down, LINE * len(lines) + AROUND)
    return models[page.start * across : page.stop * across], lines, (high - AROUND) / len(lines)


def _name_groups(ax: Axes, values: pd.DataFrame, lines: list[str]) -> None:
    """Write the names of groups to the right of their lines."""
    of = dict(zip(values["line"], values["group"], strict=True))
    for group in filter(None, dict.fromkeys(of.values())):
        places = [i for i, line in enumerate(lines) if of[line] == group]
        style: dict[str, Any] = {"fontsize": 7, "color": INK, "va": "center", "parse_math": False}
        ax.text(1.02, sum(places) / len(places), group, transform=ax.get_yaxis_transform(), **style)


def _draw(ax: Axes, values: pd.DataFrame, lines: list[str], layers: list[str], cell: float) -> AxesImage:
    """One model, with cells of this width in inches."""
    table = values.pivot_table("value", "line", "at", dropna=False).reindex(index=lines, columns=layers)
    grid = 100 * table.to_numpy(dtype=float)
    image = draw_cells(ax, grid, str(values["metric"].iloc[0]), limits=(0, 100))
    write_cells(image, grid, lambda value: f"{value:z.0f}".replace("-", "−"), cell=cell)
    for row in values.to_dict("records"):
        i, j = lines.index(str(row["line"])), layers.index(str(row["at"]))
        if not row["above"]:
            hatch_cells(ax, [(i, j)], REACHES)
        if row["chosen"]:
            on_dev = row["chosen_by"] == "dev"
            frame_cell(ax, i, j, ON_DEV if on_dev else ON_TRAIN, linestyle="--" if on_dev else "-")
    of = dict(zip(values["line"], values["group"], strict=True))
    for i in range(1, len(lines)):
        if of.get(lines[i]) != of.get(lines[i - 1]):
            ax.axhline(i - 0.5, color="white", linewidth=3)
    return image


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    values = board_values(rows)
    names = {name: INPUTS.get(name, control_title(name).replace("-", " ")) for name in values["against"].unique()}
    yield f"0: the control ({listed(sorted(names.values()))}, whichever is better); 100: the best possible value."
    yield f"Metrics: {metrics_of(values.assign(metric=[metric_called(m).of for m in values['metric']]))}."
    yield from sizes_of(values)
    if (values["chosen_by"] == "held-out").any():
        yield "Frames: the layer with the lowest loss on held-out parts of train."
    if (values["chosen_by"] == "dev").any():
        yield "Dashed frames: the best layer on dev."
    if (~values["above"].astype(bool)).any():
        corrected = (
            ", corrected for the number of layers where dev chose," if (values["chosen_by"] == "dev").any() else ""
        )
        yield f"Hatched: the {look.interval}{corrected} reaches the control."


FIGURE = FigureKind(
    head="Tasks by layer, each between its control (0) and its ceiling (100).",
    draw=board_panels,
    caption=caption,
    of_rows=("models",),
)
