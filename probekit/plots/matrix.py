"""Matrices as heat maps and dendrograms: colours, numbers and hatching of cells, names, colour bars, linkage."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from probekit.metrics import metric as metric_called
from probekit.plots.legends import NARROW, inches, wrapped
from probekit.plots.look import COLOURS, GREYS, INK, ink_on
from probekit.plots.panels import PAGE, bare, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

HATCHED: dict[str, Any] = {"edgecolor": ("white", 0.55), "hatch": "////", "linewidth": 0}
MISSING = "no value"


@dataclass(frozen=True, slots=True)
class Cells:
    """How the cells of several matrices with the same lines share a figure, in inches.

    Attributes
    ----------
    across : int
        Matrices side by side.
    cell, side, width : float
        Width of a cell, of the names at the left, and of the figure.
    """

    across: int
    cell: float
    side: float
    width: float

    @classmethod
    def of(
        cls, matrices: int, most: int, columns: int, names: Sequence[str], width: float | None, natural: float
    ) -> Self:
        """As many matrices side by side as leave cells of 0.2 inches, at most ``most``.

        Parameters
        ----------
        columns : int
            Columns of a matrix.
        names : sequence of str
            Names of the lines; they have at most a third of the width, and wrap.
        width : float, optional
            Width of the figure; by default that of cells as wide as ``natural``, at most a page.
        """
        longest = max((inches(name, 8) for name in names), default=0.0) / 1.1 + 0.15
        whole = width or PAGE
        side, bar = min(longest, 0.34 * whole), 0.15 if whole < NARROW else 0.75
        fit = next((k for k in range(min(most, matrices), 1, -1) if (whole - side - bar) / k >= 0.2 * columns + 0.2), 1)
        across = -(-matrices // -(-matrices // fit))
        whole = width or min(PAGE, side + bar + across * (natural * columns + 0.25))
        return cls(across, min(1.5 * natural, ((whole - side - bar) / across - 0.2) / columns), side, whole)


def axes_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """``ax``, or the Axes of a new figure of this size in inches."""
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(width, height), layout="constrained")[1]
    return ax


def colours_of(metric: str) -> str:
    """The colour map of a metric: light is better, or larger for a metric without a better direction.

    Viridis is perceptually uniform, ordered in grey, and readable with every kind of colour vision.
    """
    return "viridis_r" if metric_called(metric).better == "lower" else "viridis"


def draw_cells(
    ax: Axes,
    values: np.ndarray,
    metric: str,
    *,
    limits: tuple[float | None, float | None] = (None, None),
    from_below: bool = False,
    colours: str | None = None,
) -> AxesImage:
    """Draw a matrix as coloured cells; missing values are white, and grey where white is a colour of the map.

    Parameters
    ----------
    ax : Axes
        Axes to draw into.
    values : ndarray, shape (rows, columns)
        NaN for missing values.
    metric : str
        The metric of the values, which says whether light is large or small.
    limits : tuple of float or None
        Ends of the colour scale; by default those of the values.
    from_below : bool
        Draw the first row at the bottom.
    colours : str, optional
        The name of another colour map, such as one with white in the middle.
    """
    import matplotlib as mpl

    chosen = mpl.colormaps[colours or colours_of(metric)].with_extremes(bad=GREYS[1] if colours else "white")
    style: dict[str, Any] = {"cmap": chosen, "aspect": "auto", "origin": "lower" if from_below else "upper"}
    return ax.imshow(np.ma.masked_invalid(values), vmin=limits[0], vmax=limits[1], **style)


def write_cells(
    image: AxesImage, values: np.ndarray, *texts: Callable[[float], str], cell: float, numbers: np.ndarray | None = None
) -> None:
    """Write numbers into the cells of an image, light on dark, if they fit with letters of 6 points or more.

    Parameters
    ----------
    *texts : callable
        How a number may be written; the first that fits is taken.
    cell : float
        Width of a cell in inches.
    numbers : ndarray, optional
        Other numbers than those that the colours show.
    """
    known = np.argwhere(~np.isnan(values))
    for text in texts:
        words = [text((values if numbers is None else numbers)[i, j]) for i, j in known]
        longest = max(words, key=len, default="")
        if size := next((size for size in (7.0, 6.5, 6.0) if 0.91 * inches(longest, size) + 0.03 <= cell), None):
            break
    else:
        return
    for (i, j), word in zip(known, words, strict=True):
        ink = ink_on(image.to_rgba(values[i, j]))
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size, "color": ink}
        image.axes.text(j, i, word, **style).set_in_layout(False)


def short(value: float, digits: int = 2) -> str:
    """A share with two digits, or others: ".25", "−.25", "1.0"."""
    words = f"{value:z.{digits}f}" if abs(value) < 1 - 0.5 * 0.1**digits else f"{value:.1f}"
    return (words.replace("0.", ".", 1) if abs(float(words)) < 1 else words).replace("-", "−")


def hatch_cells(ax: Axes, cells: Collection[tuple[int, int]], label: str = "") -> None:
    """Hatch cells, given as row and column, but not their numbers; ``label`` is their entry in the legend."""
    from matplotlib.patches import Rectangle

    hatched = [Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="none", **HATCHED) for i, j in cells]
    numbers, image = {text.get_position(): text for text in ax.texts}, next(iter(ax.images), None)
    for cell, (i, j) in zip(hatched, cells, strict=True):
        ax.add_patch(cell)
        if image is not None and (shown := image.get_array()) is not None and (number := numbers.get((j, i))):
            number.set_bbox({"facecolor": image.to_rgba(shown[i, j]), "linewidth": 0, "pad": 1.0})
    if hatched and label:
        ax.add_patch(Rectangle((0, 0), 0, 0, label=label, **HATCHED | {"facecolor": "#555555", "edgecolor": "white"}))


def missing_key(values: np.ndarray, colour: str = GREYS[1]) -> dict[str, Any]:
    """The legend entry of cells without a value, if there are any."""
    from matplotlib.patches import Patch

    return {MISSING: Patch(facecolor=colour, zorder=1)} if np.isnan(values).any() else {}


def frame_cell(ax: Axes, row: int, column: int, label: str = "", **style: Any) -> None:
    """Draw a frame into a cell, dark with a white edge, so that it is visible on any colour; ``label`` is its entry."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, withStroke

    own: dict[str, Any] = {"facecolor": "none", "edgecolor": INK, "linewidth": 1.2, "zorder": 3, **style}
    own["path_effects"] = [withStroke(linewidth=own["linewidth"] + 1.4, foreground="white"), Normal()]
    ax.add_patch(Rectangle((column - 0.43, row - 0.4), 0.86, 0.8, label=label, **own))


def name_cells(
    ax: Axes, rows: Sequence[str], columns: Sequence[str], room: float = 2.0, line: float = 0.0, cell: float = 0.0
) -> None:
    """Write the names of rows and columns beside the cells.

    Parameters
    ----------
    room : float
        Room for the names of rows in inches.
    line, cell : float
        Height and width of a cell in inches; names of columns that are wider than a cell are slanted.
    """
    lines, size = fit_names(rows, room, line)
    bare(ax, ())
    across = 8 if max((inches(name, 8) for name in columns), default=0.0) <= (cell or room) else 7
    upright = max((inches(name, across) for name in columns), default=0.0) <= (cell or 0.3)
    style: dict[str, Any] = {} if upright else {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(columns)), columns, parse_math=False, fontsize=across, **style)
    ax.set_yticks(range(len(rows)), lines, parse_math=False, fontsize=size, linespacing=0.85)
    ax.tick_params(axis="y", length=0)


def fit_names(names: Sequence[str], room: float, line: float = 0.0) -> tuple[list[str], float]:
    """Names with as large letters as fit, of 6 points or more, and on two lines where a line's height allows it."""
    for size in (8, 7, 6.5, 6):
        two = line * 72 >= 1.9 * size
        lines = [name if inches(name, size) <= 1.1 * room or not two else _halved(name, size) for name in names]
        if max((inches(name, size) for name in lines), default=0.0) <= 1.1 * room:
            break
    return lines, size


def _halved(name: str, size: float) -> str:
    """A name on two lines, broken where both are short: after a space, a dash, an underscore or a stop."""
    cuts = [found.end() for found in re.finditer(r"[ _:,/-]+", name) if found.end() < len(name)]
    halves = [f"{name[:cut].rstrip()}\n{name[cut:]}" for cut in cuts]
    return min([name, *halves], key=lambda lines: inches(lines, size))


def colour_bar(cells: Any, title: str, beside: Any = None, names: Sequence[str] = ()) -> Any:
    """Draw the colour scale of an image or mesh next to its Axes; under all Axes given, if the figure is narrow.

    names : what the colours of the whole numbers from 0 on stand for, if not for numbers of a scale
    """
    from matplotlib.ticker import MaxNLocator

    below = beside is not None and cells.figure.get_figwidth() < NARROW
    place: dict[str, Any] = {"location": "bottom", "aspect": 30} if below else {"aspect": 18 if beside is None else 30}
    if (shown := cells.get_array()) is not None and shown.size and np.ma.min(shown) < cells.norm.vmin:
        place["extend"] = "min"
    bar = cells.figure.colorbar(cells, ax=cells.axes if beside is None else beside, pad=0.03, **place)
    bar.outline.set_visible(False)
    bar.set_label(title.replace("\n", " ") if below else wrapped(title, 1.6, 8), fontsize=8, color=INK)
    bar.locator = MaxNLocator(nbins=5)
    bar.update_ticks()
    if names:
        some = range(0, len(names), -(-len(names) // 9))
        bar.set_ticks(list(some), labels=[names[i] for i in some])
    bare(bar.ax, ())
    bar.ax.tick_params(labelsize=7)
    return bar


def draw_tree(ax: Axes, names: Sequence[str], distances: np.ndarray, title: str) -> None:
    """Draw a dendrogram of a matrix of distances, with average linkage; ``title`` labels the axis of distances."""
    from scipy.cluster.hierarchy import dendrogram, linkage
    from scipy.spatial.distance import squareform

    joined = linkage(squareform(distances, checks=False), method="average")
    lines, size = fit_names(names, 0.4 * width_of(ax), 0.3)
    style: dict[str, Any] = {"link_color_func": lambda _: COLOURS[0], "leaf_font_size": size}
    dendrogram(joined, labels=lines, orientation="right", ax=ax, **style)
    for label in ax.get_yticklabels():
        label.set_parse_math(False)
    ax.set_xlabel(wrapped(title, 0.5 * width_of(ax), 9), fontsize=9, color=INK)
    bare(ax, ("bottom",))
    ax.tick_params(axis="y", labelsize=size, length=0)
