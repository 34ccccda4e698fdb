"""Matrices as heat maps and dendrograms: colours, numbers and hatching of cells, names, colour bars, linkage."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from probekit.metrics import metric as metric_called
from probekit.plots.legends import NARROW, inches, wrapped
from probekit.plots.look import COLOURS, GREYS, INK, ink_on
from probekit.plots.panels import PAGE, bare, figure_width, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

CENTRED = "RdBu_r"
"""White in the middle, blue below and red above."""
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
        whole = width or PAGE
        side, bar = side_of(names, whole), 0.15 if whole < NARROW else 0.75
        fit = next((k for k in range(min(most, matrices), 1, -1) if (whole - side - bar) / k >= 0.2 * columns + 0.2), 1)
        across = -(-matrices // -(-matrices // fit))
        whole = width or min(PAGE, side + bar + across * (natural * columns + 0.25))
        return cls(across, min(1.5 * natural, ((whole - side - bar) / across - 0.2) / columns), side, whole)


@dataclass(frozen=True, slots=True)
class Square:
    """How a matrix with the same names of lines and columns fills a panel, in inches.

    Attributes
    ----------
    lines, under : list of str
        Names of lines, and below the columns.
    side, line, cell : float
        Width of the names, height of a line, width of a cell.
    narrow : bool
        Whether the colour bar is below.
    """

    lines: list[str]
    under: list[str]
    side: float
    line: float
    cell: float
    narrow: bool

    @classmethod
    def of(cls, names: list[str], wide: float, whole: float) -> Self:
        """``wide``: the width of the panel; ``whole``: that of the figure, of which narrow ones have the bar below."""
        lines, under = numbered(names, names)
        side, narrow = side_of(lines, wide), whole < NARROW
        cell = (wide - side - (0.2 if narrow else 0.85)) / len(names)
        return cls(lines, under, side, max(line_height(lines, side), min(0.42, 0.8 * cell)), cell, narrow)

    @property
    def bar(self) -> float:
        """The length of the colour bar."""
        return len(self.lines) * (self.cell if self.narrow else self.line)

    @property
    def height(self) -> float:
        """The height of the whole panel."""
        return len(self.lines) * self.line + slant(self.under, self.cell) + 0.35 + 0.5 * self.narrow


def side_of(names: Sequence[str], whole: float) -> float:
    """The room for the names of lines in inches, at most a third of the whole width: longer ones wrap."""
    return min(max((inches(name, 8) for name in names), default=0.0) / 1.1 + 0.15, 0.34 * whole)


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
    centre: float | None = None,
) -> AxesImage:
    """Draw a matrix as coloured cells; missing values are white, and grey where white is the centre of the map.

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
    centre : float, optional
        The value that is white, between blue (lower) and red (higher), with both ends equally far; of differences 0.
    """
    import matplotlib as mpl

    if centre is None and metric_called(metric).derived == "difference":
        centre = 0.0
    colours = mpl.colormaps[colours_of(metric)].with_extremes(bad="white")
    if centre is not None:
        ends = [end for end in limits if end is not None] or [np.nanmin(values), np.nanmax(values)]
        most = max(abs(end - centre) for end in ends) or 1.0
        limits, colours = (centre - most, centre + most), mpl.colormaps[CENTRED].with_extremes(bad=GREYS[1])
    style: dict[str, Any] = {"cmap": colours, "aspect": "auto", "origin": "lower" if from_below else "upper"}
    return ax.imshow(np.ma.masked_invalid(values), vmin=limits[0], vmax=limits[1], **style)


def write_cells(
    image: AxesImage, values: np.ndarray, *texts: Callable[[float], str], cell: float, numbers: np.ndarray | None = None
) -> None:
    """Write numbers into the cells of an image, light on dark, if they fit with letters of 6 points or more.

    Parameters
    ----------
    *texts : callable
        How a number may be written; the first that fits is taken. By default :func:`short`, with as many digits as
        tell the values apart.
    cell : float
        Width of a cell in inches.
    numbers : ndarray, optional
        Other numbers than those that the colours show.
    """
    known = np.argwhere(~np.isnan(values))
    for text in texts or (partial(short, digits=digits_of(values)),):
        words = [text((values if numbers is None else numbers)[i, j]) for i, j in known]
        longest = max(words, key=len, default="")
        if size := next((size for size in (7.0, 6.5, 6.0) if 0.91 * inches(longest, size) + 0.02 <= cell), None):
            break
    else:
        return
    for (i, j), word in zip(known, words, strict=True):
        ink = ink_on(image.to_rgba(values[i, j]))
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size, "color": ink}
        image.axes.text(j, i, word, **style).set_in_layout(False)


def digits_of(values: np.ndarray) -> int:
    """Digits after the point, 2 to 4, with which the values are five numbers or more."""
    known = values[np.isfinite(values)]
    span = float(np.ptp(known)) if known.size else 0.0
    return min(4, max(2, math.ceil(-math.log10(span / 5)))) if span > 0 else 2


def short(value: float, digits: int = 2) -> str:
    """A share with two digits or more: ".25", "−.25", "1.0"."""
    word = f"{value:z.{digits}f}"
    if abs(float(word)) >= 1:
        word = f"{value:z.{max(1, digits - 1)}f}"
    return word.replace("0.", ".", 1 if abs(float(word)) < 1 else 0).replace("-", "−").replace("inf", "∞")


def hatch_cells(ax: Axes, cells: Collection[tuple[int, int]], label: str = "", cell: float = math.inf) -> None:
    """Hatch cells, given as row and column, but not their numbers; ``label`` is their entry in the legend.

    Parameters
    ----------
    cell : float
        Width of a cell in inches; where numbers nearly fill it, hatching replaces them.
    """
    from matplotlib.patches import Rectangle

    numbers, image = {text.get_position(): text for text in ax.texts}, next(iter(ax.images), None)
    centred = image is not None and image.get_cmap().name == CENTRED
    style = {**HATCHED, **({"edgecolor": (GREYS[2], 0.6)} if centred else {})}
    widest = max((inches(x.get_text(), x.get_fontsize()) for x in numbers.values()), default=0.0)
    for i, j in cells:
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor="none", **style))
        if image is None or (shown := image.get_array()) is None or not (number := numbers.get((j, i))):
            continue
        if widest > 0.83 * cell:
            number.remove()
        else:
            number.set_bbox({"facecolor": image.to_rgba(shown[i, j]), "linewidth": 0, "pad": 1.0})
    if len(cells) and label:
        key = {"facecolor": "white"} if centred else {"facecolor": "#555555", "edgecolor": "white"}
        ax.add_patch(Rectangle((0, 0), 0, 0, label=label, **style | key))


def frame_cell(ax: Axes, row: int, column: int, label: str = "", **style: Any) -> None:
    """Draw a frame along the edge of a cell, dark with a white edge, visible on any colour; ``label`` is its entry."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, withStroke

    own: dict[str, Any] = {"facecolor": "none", "edgecolor": INK, "linewidth": 0.9, "zorder": 3, **style}
    own["path_effects"] = [withStroke(linewidth=own["linewidth"] + 1.0, foreground="white"), Normal()]
    ax.add_patch(Rectangle((column - 0.45, row - 0.44), 0.9, 0.88, label=label, **own))


def name_cells(
    ax: Axes, rows: Sequence[str], columns: Sequence[str], room: float = 2.0, line: float = math.inf, cell: float = 0.3
) -> None:
    """Write the names of rows and columns beside the cells; of numbers of layers as many as fit.

    Parameters
    ----------
    room : float
        Room for the names of rows in inches.
    line, cell : float
        Height and width of a cell in inches; names of columns that are wider than a cell are slanted.
    """
    lines, size = fit_names(rows, room, line)
    bare(ax, ())
    widest = max((inches(name, 8) for name in columns), default=0.0)
    kept, across, style = list(range(len(columns))), 8, dict[str, Any]()
    if all(name.replace(",", "").isdigit() for name in columns[:-1]):
        kept = thinned(columns, cell)
    elif 0.91 * widest > cell - 0.04:
        across, style = 7 if cell > 0.17 else 6, {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(kept, [columns[i] for i in kept], parse_math=False, fontsize=across, **style)
    ax.set_yticks(range(len(rows)), lines, parse_math=False, fontsize=size, linespacing=1.0)
    ax.tick_params(axis="y", length=0)


def numbered(lines: Sequence[str], columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of lines and columns of a square matrix: where slanted ones are long, the number of the line under it."""
    if list(lines) != list(columns) or slant(columns, 0.0) <= 0.75:
        return list(lines), list(columns)
    return [f"{name}  {i}" for i, name in enumerate(lines, 1)], [str(i) for i in range(1, len(lines) + 1)]


def slant(columns: Sequence[str], cell: float) -> float:
    """The height of the names of columns in inches, which are slanted if they are wider than a cell."""
    widest = max((inches(name, 8) for name in columns), default=0.0)
    return (
        0.15 if 0.91 * widest <= cell - 0.04 else 0.05 + 0.71 * max((inches(name, 7) for name in columns), default=0.0)
    )


def thinned(names: Sequence[str], cell: float, *, upright: bool = True) -> list[int]:
    """Positions of evenly spaced names of layers or steps that do not touch, from the first on; a last word stays.

    Parameters
    ----------
    cell : float
        Distance of names in inches.
    upright : bool
        Whether names stand side by side, and not one above the other.
    """
    wide = [inches(name, 8) + 0.03 if upright else 0.135 for name in names]
    last = [len(names) - 1] * (len(names) > 1 and not names[-1][-1:].isdigit())
    for step in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, len(names)):
        kept = [i for i in range(0, len(names), step) if not last or i <= last[0] - step] + last
        if all((wide[a] + wide[b]) / 2 <= (b - a) * cell for a, b in pairwise(kept)):
            break
    return kept


def fit_names(names: Sequence[str], room: float, line: float = math.inf) -> tuple[list[str], float]:
    """Names with as large letters as fit into a room in inches, of 6 points or more, and on as few lines as needed.

    Parameters
    ----------
    line : float
        Height in inches that a name has at most; what does not fit in any way is higher.
    """
    for size, most in ((8, 1), (7, 1), (7.5, 2), (7, 2), (6, 2), (6.5, 3), (6, 3), (6, 9)):
        both = ([wrapped(name, 1.1 * room, size, commas=commas) for commas in (True, False)] for name in names)
        lines = [min(ways, key=lambda way: way.count("\n")) for ways in both]
        if max((name.count("\n") for name in lines), default=0) < most and most * size / 72 + 0.025 <= max(line, 0.137):
            break
    return lines, size


def line_height(names: Sequence[str], room: float, least: float = 0.165) -> float:
    """The height of a line of a matrix in inches, on which the longest of the names fits."""
    lines, size = fit_names(names, room)
    return max(least, (1 + max((name.count("\n") for name in lines), default=0)) * size / 72 + 0.06)


def set_line_height(figure: Figure, ax: Axes, height: float) -> None:
    """Make a figure as high as its Axes need that are like ``ax``, one of a grid: ``height`` inches each."""
    engine, place = figure.get_layout_engine(), ax.get_subplotspec()
    if engine is None or place is None:
        return
    figure.set_figheight(figure.get_figheight() + 1)  # room for what stands around the Axes
    engine.execute(figure)
    found = ax.get_position().height * figure.get_figheight()
    figure.set_figheight(figure.get_figheight() + place.get_gridspec().nrows * (height - found))


def colour_bar(
    cells: Any, title: str, beside: Any = None, *, room: float | None = None, below: bool | None = None,
    names: Sequence[str] = (),
) -> Any:  # fmt: skip
    """Draw the colour scale of an image or mesh next to its Axes; under all Axes given, if the figure is narrow.

    Parameters
    ----------
    room : float, optional
        Length of the bar in inches, for its numbers and its title.
    below : bool, optional
        Whether it is under the Axes.
    names : sequence of str
        What the colours of the whole numbers from 0 on stand for, if not for numbers of a scale.
    """
    from matplotlib.ticker import MaxNLocator

    whole = figure_width(cells.axes)
    below = beside is not None and whole < NARROW if below is None else below
    room = room or (0.65 * whole if below else 1.6)
    place: dict[str, Any] = {"location": "bottom", "aspect": 30} if below else {"aspect": 18 if beside is None else 30}
    if (shown := cells.get_array()) is not None and shown.size and np.ma.min(shown) < cells.norm.vmin:
        place["extend"] = "min"
    bar = cells.figure.colorbar(cells, ax=cells.axes if beside is None else beside, pad=0.03, **place)
    bar.outline.set_visible(False)
    bar.set_label(wrapped(title.replace("\n", " ") if below else title, room, 8), fontsize=8, color=INK)
    bar.locator = MaxNLocator(nbins=int(np.clip(room / (0.45 if below else 0.25), 2, 5)), steps=[1, 2, 2.5, 5, 10])
    bar.update_ticks()
    if names:
        some = range(0, len(names), -(-len(names) // 9))
        bar.set_ticks(list(some), labels=[names[i] for i in some])
    bare(bar.ax, ())
    bar.ax.tick_params(labelsize=7)
    return bar


def draw_tree(ax: Axes, names: Sequence[str], distances: np.ndarray, title: str, *, numbers: bool = False) -> list[int]:
    """Draw a dendrogram of a matrix of distances, with average linkage; returns the leaves from below.

    Parameters
    ----------
    title : str
        The label of the axis of distances.
    numbers : bool
        Whether the names have numbers, from above.
    """
    from scipy.cluster.hierarchy import dendrogram, linkage
    from scipy.spatial.distance import squareform

    joined = linkage(squareform(distances, checks=False), method="average")
    order = dendrogram(joined, no_plot=True)["leaves"]
    if numbers:
        names = [f"{name}  {len(names) - order.index(i)}" for i, name in enumerate(names)]
    lines, size = fit_names(names, 0.4 * width_of(ax), 0.3)
    style: dict[str, Any] = {"link_color_func": lambda _: COLOURS[0], "leaf_font_size": size}
    dendrogram(joined, labels=lines, orientation="right", ax=ax, **style)
    for label in ax.get_yticklabels():
        label.set_parse_math(False)
    ax.set_xlabel(wrapped(title, 0.6 * width_of(ax), 8), fontsize=8, color=INK)
    bare(ax, ("bottom",))
    ax.tick_params(axis="y", labelsize=size, length=0)
    return [int(leaf) for leaf in order]
