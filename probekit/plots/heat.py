"""More curves than a panel can show: a heat map with a line for each, in place of lines with few colours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.plots.curves import INFORMATION
from probekit.plots.legends import NARROW, common, inches
from probekit.plots.look import INK, Look, metric_title, reference_title
from probekit.plots.matrix import colour_bar, draw_cells, hatch_cells, name_cells, short, write_cells
from probekit.plots.panels import PAGE, dress, figure_width, fitting, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

LINE = 0.165
"""Height of a line in inches."""
WHY = "Curves are lines of a heat map, without their intervals; light is better, or larger."


def heat_panels(
    rows: pd.DataFrame,
    labels: Iterable[str],
    points_of: Callable[[pd.DataFrame], pd.DataFrame],
    *,
    columns: int,
    width: float | None,
    look: Look | None,
    by: str | None = "panel",
    xlabel: str = "Layer",
    hollow: str = "not above noise",
) -> Figure:
    """A heat map for each panel of curves: lines are curves, columns are layers, or what else the curves go over.

    Hollow values are hatched cells. The colours of all panels of a metric have one scale.

    Parameters
    ----------
    rows : DataFrame
        Rows of all panels.
    labels : iterable of str
        Labels of all curves, in the order of the lines.
    points_of : callable
        Rows of a panel to points with the columns label, layer, layer_name, value and hollow; those with the role
        "line" are one value for all layers, "control" is left out.
    columns, width, look, by
        As in :func:`probekit.plots.panels.panels`.
    xlabel : str
        What the columns are.
    hollow : str
        What hatched cells are.
    """
    look, images = look or Look(), []
    ends = rows[rows["target"] == "gold"].groupby("metric")["value"].agg(["min", "max"])
    groups = ["task", by] if by else ["task"]
    parts = {key: cells_of(points_of(part), labels) for key, part in rows.groupby(groups, sort=False)}
    across = fitting(columns, (width or PAGE) - 1.0, 2.0)
    several = len(ends) > 1 and (width or PAGE) < NARROW  # colour bars, which then are below their panels
    height = LINE * max(len(cells) for cells, _ in parts.values()) + (1.55 if several else 1.0)
    figure, drawn = panels(rows, across, height, by=by, width=width or PAGE, natural=2.0, look=look)
    names = _names([str(label) for cells, _ in parts.values() for label in cells.index], look)
    side = min(name_room(figure.get_figwidth()), max(inches(name, 8) for name in names)) + 0.1
    room = (figure.get_figwidth() - side - (0.15 if several else 0.6)) / min(across, len(parts))
    for ax, part in drawn:
        lines, metric = parts[tuple(part[groups].iloc[0])], str(part["metric"].iloc[0])
        cell = room / lines[0].shape[1] - 0.03
        limits = tuple(ends.loc[metric])
        images.append((metric, draw_heat(ax, lines, metric, look, cell=cell, limits=limits, hollow=hollow)))
        estimator = look.shown(str(part["estimator"].iloc[0])) if metric == INFORMATION else ""
        dress(ax, part, ylabel="", how=estimator or reference_title(part, look), look=look)
        ax.grid(visible=False)
        ax.margins(0)
        ax.set_xlabel(xlabel, fontsize=9, color=INK)
    add_bars(figure, images)
    return figure


def heat_words(points: pd.DataFrame, panel: Sequence[str] = ("task",)) -> Iterator[str]:
    """What a caption says of heat maps of these points: why, means over seeds, and white cells.

    Parameters
    ----------
    points : DataFrame
        As ``points_of`` of :func:`heat_panels` returns them, of all panels.
    panel : sequence of str
        The columns that tell panels apart.
    """
    yield WHY
    if points.duplicated([*panel, "label", "layer_name"]).any():
        yield "Cells: means over seeds."
    parts = [part for _, part in points.groupby(list(panel), sort=False)]
    if any(cells_of(part, part["label"].unique())[0].isna().any(axis=None) for part in parts):
        yield f"White cells: {'undetermined, or ' * bool(points['value'].isna().any())}no value."


def name_room(width: float) -> float:
    """The room for names of lines in a figure of this width, in inches."""
    return 0.95 if width < NARROW else 1.5


def cells_of(points: pd.DataFrame, labels: Iterable[str]) -> tuple[pd.DataFrame, np.ndarray]:
    """The values of curves by layer, below them the values for all layers, and whether a value is not above noise."""
    import pandas as pd

    if "role" in points:
        lines = points[points["role"] == "line"].drop_duplicates("label")
        points = points[points["role"] == "curve"]
    else:
        lines = points.iloc[:0]
    points = points.sort_values("layer", kind="stable", na_position="last")
    layers, order = list(dict.fromkeys(points["layer_name"])), [x for x in labels if x in set(points["label"])]
    values = points.groupby(["label", "layer_name"], sort=False)["value"].mean().unstack().reindex(order)[layers]
    hollow = points["hollow"].astype(bool) if "hollow" in points else pd.Series(data=False, index=points.index)
    hatched = hollow.groupby([points["label"], points["layer_name"]]).any().unstack().reindex(order)[layers]
    whole = pd.DataFrame([[v] * len(layers) for v in lines["value"]], index=list(lines["label"]), columns=layers)
    unmarked = np.zeros((len(lines), len(layers)), dtype=bool)
    return pd.concat([values, whole.astype(float)]), np.vstack([hatched.fillna(value=False).to_numpy(bool), unmarked])


def draw_heat(
    ax: Axes,
    lines: tuple[pd.DataFrame, np.ndarray],
    metric: str,
    look: Look,
    *,
    cell: float,
    limits: tuple[float | None, float | None] = (None, None),
    colours: str | None = None,
    hollow: str = "not above noise",
) -> AxesImage:
    """Draw lines of values as a heat map, with their names at the left.

    Parameters
    ----------
    lines : tuple of DataFrame and ndarray
        As :func:`cells_of` returns them.
    cell : float
        Width of a cell in inches, for the numbers.
    limits, colours
        As in :func:`probekit.plots.matrix.draw_cells`.
    hollow : str
        What hatched cells are.
    """
    cells, hatched = lines
    image = draw_cells(ax, cells.to_numpy(dtype=float), metric, limits=limits, colours=colours)
    write_cells(image, cells.to_numpy(dtype=float), short, cell=cell)
    hatch_cells(ax, [(int(i), int(j)) for i, j in np.argwhere(hatched)], hollow)
    names, width = _names([str(label) for label in cells.index], look), figure_width(ax)
    columns = ["norm" if name == "final_norm" else str(name) for name in cells.columns]
    name_cells(ax, names, columns, name_room(width), LINE, cell)
    return image


def _names(labels: Sequence[str], look: Look) -> list[str]:
    """The display names of lines, without what all share."""
    names = [look.shown(label) for label in labels]
    same = common(names)
    return [name.removeprefix(f"{same}, ") for name in names]


def add_bars(figure: Figure, images: Sequence[tuple[str, AxesImage]]) -> None:
    """Draw one colour bar for all images, if they have the same metric, and otherwise one for each."""
    if len({metric for metric, _ in images}) == 1:
        metric, first = images[0]
        colour_bar(first, metric_title(metric), [image.axes for _, image in images])
    else:
        for metric, image in images:
            colour_bar(image, metric_title(metric), [image.axes] if figure.get_figwidth() < NARROW else None)
