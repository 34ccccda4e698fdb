"""Figures of panels at their printed width: layer axes, axes without a box, one common legend."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.legends import SMALL, add_legend, inches, narrower, plain_legend, wrapped
from probekit.plots.look import FAINT, INK, Look

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUBTITLE = "_subtitle"
"""The label of the line under a title; matplotlib leaves it out of legends."""
PANEL, PAGE = 2.35, 7.1
"""Natural width of a panel, and largest width of a figure for which none is given, in inches."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Positions of layers on the axis: numbers at their value, named layers (``final_norm``) apart, after the last.

    Attributes
    ----------
    deepest : int
        The largest number, -1 if there is none.
    named : tuple[str, ...]
        The layers without a number.
    ticks : int
        Largest number of ticks; with more layers, markers are smaller.
    marker : float
        About the radius of a marker, in layers.
    """

    deepest: int
    named: tuple[str, ...]
    ticks: int
    marker: float = 0.0

    @classmethod
    def of(cls, rows: pd.DataFrame, ax: Axes) -> Self:
        """Parameters
        ----------
        rows : pd.DataFrame
            Rows drawn into one Axes.
        """
        deepest = int(rows["layer"].max()) if rows["layer"].notna().any() else -1
        ticks = min(13, max(2, round(3 * width_of(ax))))
        named = rows.loc[rows["layer"].isna() & (rows["layer_name"] != ""), "layer_name"]
        wide = max(0.5, width_of(ax) - 0.75)  # without the labels at the left
        return cls(deepest, tuple(named.unique()), ticks, 0.05 * (deepest + 1) / wide)

    def place(self, name: str) -> int:
        """The position of a layer without a number."""
        return self.deepest + max(1, -(-self.deepest // 5)) * (1 + self.named.index(name))

    @property
    def room(self) -> float:
        """The margin outside the outermost layers, in layers, for markers beside them."""
        return 0.35 * max(1, self.deepest / 12) + self.marker

    def at(self, rows: pd.DataFrame) -> np.ndarray:
        """The position of each row, float64 (rows,)."""
        places = rows["layer"].astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
        named = rows["layer"].isna().to_numpy(dtype=bool)
        places[named] = [self.place(name) for name in rows["layer_name"][named]]
        return places

    @property
    def shrinks(self) -> bool:
        """Whether there are so many layers that markers are half their size or smaller."""
        return 1.3 * self.ticks / max(1, self.deepest + 1) < 0.5

    def sized(self, style: Mapping[str, Any]) -> dict[str, Any]:
        """A style with markers that do not hide each other."""
        shrink = min(1, (1.3 * self.ticks / max(1, self.deepest + 1)) ** 0.5)
        return {**style, **{size: shrink * style[size] for size in ("markersize", "markeredgewidth")}}

    def set(self, ax: Axes) -> None:
        """Set the ticks and limits of the axis."""
        step = next(s for s in (1, 2, 3, 4, 6, 8, 12, 16, 24, self.deepest) if self.deepest / s < self.ticks)
        at = {i: str(i) for i in range(0, self.deepest + 1, step)}
        at |= {self.place(name): "norm" if name == "final_norm" else name for name in self.named}
        ax.set_xticks(list(at), list(at.values()))
        ax.set_xlim(-self.room, max(*at, self.deepest) + self.room)
        ax.set_xlabel("Layer", fontsize=9, color=INK)


def dress(
    ax: Axes, rows: pd.DataFrame, *, ylabel: str, how: str = "", look: Look | None = None, sized: bool = True,
    side: float = 0.6,
) -> None:  # fmt: skip
    """Dress Axes for print: title, estimator (``how``), split and size (``sized``), faint horizontal lines, no box.

    side : room for the labels at the left in inches
    """
    ax.set_ylabel(ylabel, fontsize=9, color=INK)
    title = (look or Look()).task(str(rows["task"].iloc[0]))
    if inches(title, 10, "bold") > width_of(ax) - 0.5:
        title = re.sub(": ?", ":\n", title, count=1)
    about = (how, *rows["split"].unique(), size_of(rows)) if sized else (how,)
    subtitle = wrapped(", ".join(filter(None, about)), width_of(ax) - side, 7)
    style: dict[str, Any] = {"fontsize": 7, "color": "#666666", "va": "bottom", "parse_math": False}
    ax.annotate(subtitle, (0, 1), (0, 2.5), "axes fraction", "offset points", label=SUBTITLE, **style)
    _title(ax, title, subtitle)
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    bare(ax)
    ax.margins(y=0.08)


def _title(ax: Axes, title: str, subtitle: str) -> None:
    """The title above the subtitle."""
    pad = 14 + 10 * subtitle.count("\n") if subtitle else 6
    ax.set_title(title, loc="left", pad=pad, fontsize=10, fontweight="bold", color=INK, parse_math=False)


def same_scale(axes: Sequence[Axes]) -> None:
    """Give the vertical axes of some panels the ends of all."""
    low, high = zip(*(ax.get_ylim() for ax in axes), strict=True)
    for ax in axes:
        ax.set_ylim(min(low), max(high))


def size_of(rows: pd.DataFrame) -> str:
    """The number of examples of a panel (of span metrics, words) and of their groups: "n = 154 in 12 groups"."""
    probes = bool((rows["analysis"] == "probe").all())
    words = probes and any(metric_called(name).spans for name in rows["metric"].dropna())
    groups = set(rows["n_groups"].dropna()) if "n_groups" in rows else set()
    within = f" in {int(min(groups)):,} groups" if len(groups) == 1 and 2 * min(groups) <= rows["n"].max() else ""
    return f"n = {rows['n'].max():,}{' words' * words}{within}"


def bare(ax: Axes, sides: Sequence[str] = ("left", "bottom")) -> None:
    """Remove the box and make ticks small."""
    ax.tick_params(labelsize=8, colors=INK, length=2.5, width=0.7)
    ax.set_axisbelow(True)
    for side, spine in ax.spines.items():
        spine.set_visible(side in sides)
        spine.set_color("#888888")
        spine.set_linewidth(0.7)


def one_axes(rows: pd.DataFrame, ax: Axes | None, height: float, called: tuple[str, str]) -> Axes:
    """``ax``, or the Axes of a new figure; raises UsageError unless the rows are of exactly one task."""
    if len(tasks := rows["task"].unique()) != 1:
        raise UsageError(
            f"{called[0]} draws one task, but the rows are of {', '.join(tasks) or 'none'}; use {called[1]}."
        )
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(4.2, height), layout="constrained")[1]
    return ax


def legend(ax: Axes, *, below: bool) -> None:
    """The legend of one Axes: under it, where the figure is its own, or within it."""
    handles, labels = ax.get_legend_handles_labels()
    if below:
        add_legend(ax.figure, dict(zip(labels, handles, strict=True)), Look())
    elif len(set(labels)) > 1:
        named = dict(zip(labels, handles, strict=True))
        plain_legend(ax.legend(list(named.values()), list(named), **SMALL))


def figure_width(ax: Axes) -> float:
    """The width of the figure that holds the Axes, in inches."""
    return float(cast("Figure", ax.get_figure(root=True)).get_figwidth())


def width_of(ax: Axes) -> float:
    """The width of a panel with its labels, in inches."""
    width, place = figure_width(ax), ax.get_subplotspec()
    if place is None:
        return width
    ratios = np.array(place.get_gridspec().get_width_ratios(), dtype=np.float64)
    return float(width * ratios[place.colspan.start : place.colspan.stop].sum() / ratios.sum())


def grid(panels: int, columns: int, height: float, width: float | None, natural: float) -> tuple[Figure, np.ndarray]:
    """A figure and its Axes (lines, columns); unused Axes in the last line are removed.

    Parameters
    ----------
    width : float | None
        Width of the figure in inches; by default that of panels of ``natural`` inches, at most a page.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    down = -(-panels // columns)
    if width is None:
        width = min(PAGE, natural * max(columns, 1.5))
    pads = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, wspace=0.04)
    figure = new_figure((width, height * down + 0.1), pads)
    axes = figure.subplots(down, columns, squeeze=False)
    for ax in axes.ravel()[panels:]:
        ax.remove()
    return figure, axes


def new_figure(size: tuple[float, float], layout: Any) -> Figure:
    """A figure that notebooks display, even if pyplot was never imported.

    Parameters
    ----------
    size : tuple[float, float]
        Width and height in inches.
    layout : str or LayoutEngine
        Layout engine of matplotlib's Figure.
    """
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
            page = BytesIO()
            self.savefig(page, format="png", dpi=2 * self.dpi)
            width, height = self.get_size_inches() * self.dpi
            return page.getvalue(), {"width": round(width), "height": round(height)}

    return ShownFigure(figsize=size, layout=layout)


def fitting(columns: int, width: float | None, natural: float) -> int:
    """The number of panels that fit side by side at 0.64 of their natural width or more, without a width on a page."""
    return min(columns, max(1, int((width or PAGE) / (0.64 * natural))))


def even(panels: int, columns: int) -> int:
    """The number of columns that fills the same number of lines as evenly as possible."""
    return -(-panels // -(-panels // columns))


def panels(
    rows: pd.DataFrame,
    columns: int,
    height: float,
    by: str | None = None,
    *,
    width: float | None = None,
    natural: float = PANEL,
    look: Look | None = None,
    keys: Mapping[str, Any] | None = None,
    side: float = 0.6,
) -> tuple[Figure, Iterator[tuple[Axes, pd.DataFrame]]]:
    """A figure, and an iterator over the Axes and rows of each task; the legend is drawn after the last.

    Parameters
    ----------
    by : str, optional
        A column; each of its values has a separate panel, those of one task side by side.
    width, natural : float
        As in :func:`grid`.
    look : Look, optional
        Display names, and the position of the legend.
    keys : mapping, optional
        Further entries of the legend, by their labels.
    side : float
        Room for the labels at the left of a panel in inches.
    """
    look = look or Look()
    width = narrower(width, look)
    if rows.empty:
        raise UsageError("there are no rows to draw.")
    tasks: list[list[Any]] = [[part] for _, part in rows.groupby("task", sort=False)]
    if by is not None:
        tasks = [[part[part[by] == v] for v in rows[by].unique() if (part[by] == v).any()] for [part] in tasks]
    columns, most = fitting(columns, width, natural), max(map(len, tasks))
    lines = len(tasks) * -(-most // columns)
    if most > columns >= len(tasks) > 1 and most <= lines:  # a task is a column
        width = width or min(PAGE, natural * len(tasks))
        tasks = [[t[i] if i < len(t) else None for t in tasks] for i in range(most)]
        columns = most = len(tasks[0])
    together = most if most <= columns else even(most, columns)  # a line contains panels of one task only
    across = together * even(len(tasks), max(1, columns // together))
    cells = [cell for parts in tasks for cell in (*parts, *[None] * (-len(parts) % together))]
    page, height = look.of_page(-(-len(cells) // across), height)
    cells = cells[page.start * across : page.stop * across]
    while cells[-1] is None:
        cells.pop()
    figure, grid_ = grid(len(cells), across, height, width, natural)
    axes = list(grid_.ravel())

    def drawn() -> Iterator[tuple[Axes, pd.DataFrame]]:
        named: dict[str, Any] = {}
        for ax, cell in zip(axes, cells, strict=False):
            if cell is None:
                ax.remove()
                continue
            yield ax, cell
            handles, labels = ax.get_legend_handles_labels()
            named |= dict(zip(labels, handles, strict=True))
        same_labels(axes, across)
        same_titles(axes, across, side)
        add_legend(figure, {**named, **(keys or {})}, look)

    return figure, drawn()


def same_labels(axes: Sequence[Axes], across: int) -> None:
    """Show a label that the panel below or on the left has, too, only there; so also names of lines of heat maps."""
    labels = [ax.get_ylabel() for ax in axes]
    names = [[t.get_text() for t in ax.get_yticklabels()] if ax.images else [] for ax in axes]
    for ax, below in zip(axes, axes[across:], strict=False):
        if below.figure is not None and ax.get_xlabel() == below.get_xlabel():
            ax.set_xlabel("")
    for i, ax in enumerate(axes):
        if i % across and labels[i] == labels[i - 1]:
            ax.set_ylabel("")
            if names[i] and names[i] == names[i - 1]:
                ax.tick_params(axis="y", labelleft=False)


def same_titles(axes: Sequence[Axes], across: int, side: float) -> None:
    """Put the titles of panels side by side at one height, and show one that the panel on the left or above has only
    there; a subtitle may extend over the panels that share it. ``side``: room for labels at the left in inches.
    """
    under = [next((t for t in ax.texts if ax.figure is not None and t.get_label() == SUBTITLE), None) for ax in axes]
    heads = [
        (ax.get_title("left"), text.get_text().replace("\n", " ")) if text else None
        for ax, text in zip(axes, under, strict=True)
    ]
    for start in range(0, len(axes), across):
        line = range(start, min(start + across, len(axes)))
        shown: dict[int, tuple[str, str]] = {}
        for i in line:
            if (head := heads[i]) is None:
                continue
            near = [heads[j] for j in (i - 1, i - across) if j >= 0 and (j in line or j == i - across)]
            run = next((j for j in line if j > i and heads[j] != head), line.stop) - i
            again = any(other is not None and other[0] == head[0] for other in near)
            words = "" if again and head in near else wrapped(head[1], run * width_of(axes[i]) - side, 7)
            shown[i] = "" if again else head[0], words
        most = max((words.count("\n") for _, words in shown.values()), default=0)
        for i, (title, words) in shown.items():
            under[i].set_text(words + "\n" * (most - words.count("\n")) if words else "")  # type: ignore[union-attr]
            under[i].set_in_layout(not title)  # type: ignore[union-attr]  # the title above keeps its height
            _title(axes[i], title, " " * any(words for _, words in shown.values()) + "\n" * most)
            if not title + words:
                axes[i].set_title("", loc="left", pad=4)
