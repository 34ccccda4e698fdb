"""Matrices as heat maps and dendrograms: colours, numbers and hatching of cells, names, colour bars, linkage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.plots.legends import wrapped
from probekit.plots.look import COLOURS, INK
from probekit.plots.panels import bare, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

HATCHED: dict[str, Any] = {"edgecolor": ("white", 0.7), "hatch": "////", "linewidth": 0}


def axes_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """``ax``, or the Axes of a new figure of this size in inches."""
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(width, height), layout="constrained")[1]
    return ax


def draw_cells(
    ax: Axes,
    values: np.ndarray,
    *,
    light_is_small: bool = False,
    limits: tuple[float | None, float | None] = (None, None),
    from_below: bool = False,
    colours: str | None = None,
) -> AxesImage:
    """Draw a matrix as coloured cells; missing values are white.

    Parameters
    ----------
    ax : Axes
        Axes to draw into.
    values : ndarray, shape (rows, columns)
        NaN for missing values.
    light_is_small : bool
        Give light colours to small values.
    limits : tuple of float or None
        Ends of the colour scale; by default those of the values.
    from_below : bool
        Draw the first row at the bottom.
    colours : str, optional
        The name of another colour map, such as one with white in the middle.
    """
    import matplotlib as mpl

    chosen = mpl.colormaps[colours or ("viridis_r" if light_is_small else "viridis")].with_extremes(bad="white")
    style: dict[str, Any] = {"cmap": chosen, "aspect": "auto", "origin": "lower" if from_below else "upper"}
    return ax.imshow(np.ma.masked_invalid(values), vmin=limits[0], vmax=limits[1], **style)


def write_cells(image: AxesImage, values: np.ndarray, text: Callable[[float], str], *, size: float = 7) -> None:
    """Write numbers into the cells of an image, light on dark; ``size`` is that of the font in points."""
    for i, j in np.argwhere(~np.isnan(values)):
        value = values[i, j]
        dark = np.isfinite(value) and np.dot(image.to_rgba(value)[:3], (0.299, 0.587, 0.114)) < 0.5
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size, "color": "white" if dark else INK}
        image.axes.text(j, i, text(value), **style)


def hatch_cells(ax: Axes, cells: Iterable[tuple[int, int]], label: str = "") -> None:
    """Hatch cells, given as row and column; ``label`` is their entry in the legend."""
    from matplotlib.patches import Rectangle

    hatched = [Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="none", **HATCHED) for i, j in cells]
    for cell in hatched:
        ax.add_patch(cell)
    if hatched and label:
        ax.add_patch(Rectangle((0, 0), 0, 0, label=label, **HATCHED | {"facecolor": "#555555", "edgecolor": "white"}))


def frame_cell(ax: Axes, row: int, column: int, high: float = 0.88, **style: Any) -> None:
    """Draw a frame into a cell."""
    from matplotlib.patches import Rectangle

    own: dict[str, Any] = {"facecolor": "none", "edgecolor": INK, "linewidth": 1.2, **style}
    ax.add_patch(Rectangle((column - 0.46, row - high / 2), 0.92, high, **own))


def name_cells(ax: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Write the names of rows and columns beside the cells."""
    ax.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor", parse_math=False)
    ax.set_yticks(range(len(rows)), rows, parse_math=False)
    bare(ax, ())


def colour_bar(cells: Any, title: str, beside: Any = None) -> None:
    """Draw the colour scale of an image or mesh next to its Axes, or to those given."""
    bar = cells.figure.colorbar(cells, ax=cells.axes if beside is None else beside, pad=0.03, aspect=18)
    bar.outline.set_visible(False)
    bar.set_label(title, fontsize=8, color=INK)
    bare(bar.ax, ())


def draw_tree(ax: Axes, names: Sequence[str], distances: np.ndarray, title: str) -> None:
    """Draw a dendrogram of a matrix of distances, with average linkage; ``title`` labels the axis of distances."""
    from scipy.cluster.hierarchy import dendrogram, linkage
    from scipy.spatial.distance import squareform

    joined = linkage(squareform(distances, checks=False), method="average")
    style: dict[str, Any] = {"link_color_func": lambda _: COLOURS[0], "leaf_font_size": 8}
    dendrogram(joined, labels=list(names), orientation="right", ax=ax, **style)
    for label in ax.get_yticklabels():
        label.set_parse_math(False)
    ax.set_xlabel(wrapped(title, width_of(ax) - 1, 9), fontsize=9, color=INK)
    bare(ax, ("bottom",))
