"""More curves than a panel can show: a heat map with a line for each, in place of lines with few colours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.plots.caption import widest
from probekit.plots.curves import INFORMATION
from probekit.plots.legends import NARROW, common
from probekit.plots.look import INK, Look, metric_title, reference_title
from probekit.plots.matrix import (
    colour_bar,
    draw_cells,
    hatch_cells,
    line_height,
    name_cells,
    set_line_height,
    side_of,
    write_cells,
)
from probekit.plots.panels import PAGE, dress, fitting, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

WHY, LOWER_HIGHER = "Curves are lines of a heat map, without their intervals", "white is 0, blue lower, red higher"


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
    how: str = "",
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
    how : str
        What stands below the title, before the split.
    """
    look, images, whole = look or Look(), [], width or PAGE
    ends = rows[rows["target"] == "gold"].groupby("metric")["value"].agg(["min", "max"])
    groups = ["task", by] if by else ["task"]
    parts = {key: cells_of(points_of(part), labels) for key, part in rows.groupby(groups, sort=False)}
    tall, wide = (max(cells.shape[i] for cells, _ in parts.values()) for i in (0, 1))
    names = _names(list(dict.fromkeys(str(label) for cells, _ in parts.values() for label in cells.index)), look)
    side = side_of(names, whole)
    line = line_height(names, side)
    across = fitting(columns, whole - side - 0.3, max(2.0, 0.16 * wide))
    several = len(ends) > 1 and whole < NARROW  # colour bars, which then are below their panels
    height = line * tall + (1.55 if several else 1.0)
    figure, drawn = panels(rows, across, height, by=by, width=whole, natural=2.0, look=look, side=side)
    across = min(across, len(parts))
    bars = 0.2 if whole < NARROW else 0.6 if len(ends) == 1 else 0.85 * across
    room = (figure.get_figwidth() - side - bars) / across - 0.04
    for ax, part in drawn:
        lines, metric = parts[tuple(part[groups].iloc[0])], str(part["metric"].iloc[0])
        size: dict[str, float] = {"side": side, "line": line, "cell": room / lines[0].shape[1]}
        limits = tuple(ends.loc[metric])
        images.append((metric, draw_heat(ax, lines, metric, look, limits=limits, hollow=hollow, **size)))
        estimator = look.shown(str(part["estimator"].iloc[0])) if metric == INFORMATION else ""
        dress(ax, part, ylabel="", how=how or estimator or reference_title(part, look), look=look, side=side)
        ax.grid(visible=False)
        ax.margins(0)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(xlabel, fontsize=9, color=INK)
    add_bars(figure, images, room * (1 if several else across), line * tall)
    set_line_height(figure, images[0][1].axes, line * tall)
    return figure


def heat_words(
    points: pd.DataFrame, panel: Sequence[str] = ("task",), *, differences: bool = False, look: Look | None = None
) -> Iterator[str]:
    """What a caption says of heat maps of these points: why, means over seeds, and cells without a value.

    Parameters
    ----------
    points : DataFrame
        As ``points_of`` of :func:`heat_panels` returns them, of all panels.
    panel : sequence of str
        The columns that tell panels apart.
    differences : bool
        Whether the values are differences, which are white at 0.
    look : Look, optional
        The coverage of the intervals; without it, they are not spoken of.
    """
    yield f"{WHY}; {LOWER_HIGHER if differences else 'light is better, or larger'}."
    if look:
        yield from widest(points, look)
    if points.duplicated([*panel, "label", "layer_name"]).any():
        yield "Cells: means over seeds."
    parts = [part for _, part in points.groupby(list(panel), sort=False)]
    if any(cells_of(part, part["label"].unique())[0].isna().any(axis=None) for part in parts):
        of = "Grey" if differences else "White"
        yield f"{of} cells: {'undetermined, or ' * bool(points['value'].isna().any())}no value."


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
    side: float,
    line: float,
    cell: float,
    limits: tuple[float | None, float | None] = (None, None),
    centre: float | None = None,
    hollow: str = "not above noise",
) -> AxesImage:
    """Draw lines of values as a heat map, with their names at the left.

    Parameters
    ----------
    lines : tuple of DataFrame and ndarray
        As :func:`cells_of` returns them.
    side, line, cell : float
        Room for the names of lines, height of a line and width of a cell in inches.
    limits, centre
        As in :func:`probekit.plots.matrix.draw_cells`.
    hollow : str
        What hatched cells are.
    """
    cells, hatched = lines
    image = draw_cells(ax, cells.to_numpy(dtype=float), metric, limits=limits, centre=centre)
    write_cells(image, cells.to_numpy(dtype=float), cell=cell)
    hatch_cells(ax, [(int(i), int(j)) for i, j in np.argwhere(hatched)], hollow, cell)
    names = _names([str(label) for label in cells.index], look)
    columns = ["norm" if name == "final_norm" else str(name) for name in cells.columns]
    name_cells(ax, names, columns, side, line, cell)
    return image


def _names(labels: Sequence[str], look: Look) -> list[str]:
    """The display names of lines, without what all share."""
    names = [look.shown(label) for label in labels]
    same = common(names)
    return [name.removeprefix(f"{same}, ") for name in names]


def add_bars(figure: Figure, images: Sequence[tuple[str, AxesImage]], room: float, high: float) -> None:
    """Draw a colour bar for each metric, if it is the only one or has a column of panels, and else for each image.

    Parameters
    ----------
    room, high : float
        Width of the panels of a metric side by side, and their height, in inches.
    """
    of: dict[str, list[AxesImage]] = {}
    for metric, image in images:
        of.setdefault(metric, []).append(image)
    narrow = figure.get_figwidth() < NARROW
    columns = all(len(own) > 1 and len({_column(image) for image in own}) == 1 for own in of.values())
    for metric, own in of.items():
        if len(of) == 1 or columns:
            below = narrow or len(of) > 1
            colour_bar(own[0], metric_title(metric), [x.axes for x in own], room=room if below else high, below=below)
            continue
        for image in own:
            colour_bar(image, metric_title(metric), [image.axes] if narrow else None, room=room if narrow else high)


def _column(image: AxesImage) -> int:
    place = image.axes.get_subplotspec()
    return place.colspan.start if place else 0
