"""Do layers that move more learn more? The gain of each layer's probe against its distance from the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analysis import Reads, analyses
from probekit.display import shown_label
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.metrics import within
from probekit.plots.caption import by_task, listed, metrics_of
from probekit.plots.curves import check_metric, plot_rows
from probekit.plots.layers import as_curves
from probekit.plots.legends import NARROW, add_legend, bar_key, inches, marks, wrapped
from probekit.plots.look import FAINT, GREYS, INK, MARKERS, Look, one_line
from probekit.plots.matrix import colour_bar
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import bare, even, fitting, grid, width_of
from probekit.plots.relation import arms, name_apart
from probekit.rows import called, layer_labels
from probekit.rows.families import ALPHA

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYER = ("task", "split", "model", "checkpoint", "step", "representation", "site", "layer")
PANEL = ("task", "model", "metric")
HIGH = 2.9  # inches of a panel


def gain_rows(rows: Any, *, metric: str | None = None) -> pd.DataFrame:
    """Return the points that :func:`gain_panels` draws: differences of probes, and how far the same layers moved.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.compare` (a tuned model or its checkpoints, against the reference), and rows of
        similarity or movement (the reference first) for the same models.
    metric : str, optional
        The similarity or distance; by default the first in the rows.

    Returns
    -------
    DataFrame
        The differences with the columns ``x``, ``x_low``, ``x_high`` and ``x_metric``: 1 minus a similarity, or a
        distance. One row for each layer of each model or checkpoint that has both.

    Raises
    ------
    UsageError
        If rows of either kind are missing, or they have no layer in common.
    """
    rows = plot_rows(rows)
    gains = rows[(rows["analysis"] == "compare") & rows["layer"].notna()]
    compared = [one.name for one in analyses().values() if one.reads in (Reads.REFERENCE, Reads.MODELS)]
    moved = as_curves(rows[rows["analysis"].isin(compared)])
    moved = moved[moved["target"] == "gold"]
    if gains.empty or moved.empty:
        lacking = "compare" if gains.empty else "similarity or movement"
        raise UsageError(f"a figure of gains also needs rows of probekit {lacking}, for the same models.")
    metric = metric or str(moved["metric"].iloc[0])
    check_metric(metric, moved["metric"].unique())
    moved = moved[moved["metric"] == metric]
    alike = metric_called(metric).alike
    value, low, high = (moved[c].astype("float64") for c in ("value", "ci_low", "ci_high"))
    x, x_low, x_high = (1 - value, 1 - high, 1 - low) if alike else (value, low, high)
    moved = moved.assign(x=x, x_low=x_low, x_high=x_high, x_metric=metric).drop_duplicates(list(LAYER))
    found = gains.merge(moved[[*LAYER, "x", "x_low", "x_high", "x_metric"]], on=list(LAYER), how="inner")
    if found.empty:
        raise UsageError(
            "the differences and the distances have no layer in common; they must be of the same task, split, model "
            "and checkpoint, with the reference as the first cache of similarity and the second table of compare."
        )
    return found


def gain_panels(
    rows: Any, *, metric: str | None = None, columns: int = 2, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot the gain of each layer's probe against how far the layer moved: do layers that move more learn more?

    Filled points differ from the reference (p <= 0.05, corrected over layers). Lines join the checkpoints of a layer.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit compare TUNED REFERENCE wrote: the tuned model or its checkpoints, minus the reference; rows
        of probekit similarity REFERENCE TUNED or movement REFERENCE TUNED, for the same models.
    metric : str, optional
        The similarity or distance; by default the first in the rows.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw what the probe of each layer gained against how far the layer moved: a panel for each task and metric.

    Colours are layers, and numbers name those with room for one; shapes are runs, if a panel has several. A line joins
    the checkpoints of a layer in the order of their steps, from small points to the last one, which alone has
    intervals. Filled points differ from the reference (p_adjusted of the comparison at most .05). No regression line is
    drawn: layers and checkpoints of one run are not independent.

    Examples
    --------
    On the command line::

        probekit similarity pretrained.dev.h5 tuned.dev.h5 --out similarity.parquet
        probekit compare tuned.parquet pretrained.parquet --out gains.parquet
        probekit plot gains gains.parquet similarity.parquet --out figure.pdf
    """
    points, look = gain_rows(rows, metric=metric), look or Look()
    drawn = list(points.groupby(list(PANEL), sort=False))
    across = even(len(drawn), fitting(columns, width, 3.2))
    page, high = look.of_page(-(-len(drawn) // across), HIGH)
    drawn = drawn[page.start * across : page.stop * across]
    figure, axes = grid(len(drawn), across, high, width, 3.2)
    if figure.get_figwidth() < NARROW:  # the colour bar is under the panels
        figure.set_figheight(figure.get_figheight() + 0.5)
    same = {"step": None} | ({"representation": ""} if points["representation"].nunique() == 1 else {})
    runs = points.apply(lambda row: look.shown(shown_label(called({**row, **same}))), axis=1)
    several = runs.groupby([points[c] for c in PANEL]).nunique().max() > 1
    shapes = dict(zip(dict.fromkeys(runs), cycle(MARKERS if several else MARKERS[:1]), strict=False))
    layers = list(dict.fromkeys(layer_labels(points.sort_values("layer", kind="stable", na_position="last"))))
    for ax, ((task, model, _), part) in zip(axes.ravel(), drawn, strict=False):
        image = _draw(ax, part, runs[part.index].map(shapes), layers)
        title = look.task(str(task)) + (f", {look.shown(str(model))}" if points["model"].nunique() > 1 else "")
        ax.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK, parse_math=False)
        ax.set_xlabel(_distance(part, look, width_of(ax) - 0.8), fontsize=9, color=INK, parse_math=False)
        ax.set_ylabel(_difference(part, look), fontsize=9, color=INK, parse_math=False)
    colour_bar(image, "Layer", list(axes.ravel())[: len(drawn)], names=layers)
    add_legend(figure, _keys(points, shapes if several else {}, look), look)
    name_apart(figure, all_names=False)
    return figure


def _keys(points: pd.DataFrame, shapes: Mapping[str, str], look: Look) -> dict[str, Any]:
    """The legend: shapes of runs, filled and hollow points, checkpoints, intervals."""
    from matplotlib.lines import Line2D

    point: dict[str, Any] = {"color": GREYS[2], "marker": "o", "markersize": 5, "linestyle": "none", "zorder": 3}
    hollow: dict[str, Any] = {**point, "markerfacecolor": "white", "zorder": 2.9}
    small: dict[str, Any] = {**point, "markersize": 3.5, "linestyle": "-", "linewidth": 0.9, "zorder": 2.8}
    known, keys = points["p_adjusted"] <= ALPHA, marks({run: (INK, shape) for run, shape in shapes.items()})
    if known.any():
        keys[f"probe differs (p ≤ {ALPHA:g})"] = Line2D([], [], **point)
    if not known.all():
        keys["not shown to differ"] = Line2D([], [], **hollow)
    if points["step"].nunique() > 1:
        keys["earlier checkpoints, the smaller the earlier"] = Line2D([], [], **small)
    return keys | bar_key(look.interval, "+")


def _distance(part: pd.DataFrame, look: Look, room: float) -> str:
    """The title of the horizontal axis: "Distance from pretrained (1 − CKA)", without what does not fit."""
    of, references = metric_called(str(part["x_metric"].iloc[0])), part["against"].unique().tolist()
    reference = look.shown(references[0].removeprefix(f"{part['model'].iloc[0]}, ")) if len(references) == 1 else ""
    measure = f"1 − {of.title}" if of.alike else of.title
    titles = [f"Distance from {name} ({measure})" for name in filter(None, (reference, "the reference"))]
    return next((title for title in titles if inches(title, 9) <= room), measure)


def _difference(part: pd.DataFrame, look: Look) -> str:
    """The title of the vertical axis: "Accuracy: fine-tuned − pretrained"."""
    runs, references = part["run"].unique().tolist(), part["against"].unique().tolist()
    model = f"{part['model'].iloc[0]}, "
    first = look.shown(runs[0]) if len(runs) == 1 and runs[0] else "model"
    second = look.shown(references[0].removeprefix(model)) if len(references) == 1 else "reference"
    title = one_line(metric_called(str(part["metric"].iloc[0])).of)
    return f"{title}:\n{wrapped(f'{first} − {second}', HIGH - 0.9, 9)}"


def _draw(ax: Axes, part: pd.DataFrame, shapes: pd.Series, layers: Sequence[str]) -> Any:
    """The points of a panel; returns what a colour bar of the layers describes."""
    import matplotlib as mpl
    from matplotlib.colors import ListedColormap
    from matplotlib.patheffects import withStroke

    colours = mpl.colormaps["viridis"](np.linspace(0, 0.8, len(layers)))
    ends: dict[str, Any] = {"vmin": -0.5, "vmax": len(layers) - 0.5}
    ax.axhline(0, color="#888888", linewidth=0.8, zorder=1)
    labels, steps = layer_labels(part), sorted(part["step"].dropna().unique())
    size = dict(zip(steps, np.linspace(2.2, 3.8, len(steps)), strict=True))
    style: dict[str, Any] = {"fontsize": 8, "color": INK, "parse_math": False, "zorder": 4}
    style |= {"path_effects": [withStroke(linewidth=2, foreground="white")], "textcoords": "offset points"}
    for name in dict.fromkeys(labels):
        of, colour = part[labels == name].sort_values("step", kind="stable"), colours[layers.index(name)]
        for _, run in of.groupby("checkpoint", sort=False):
            ax.plot(run["x"], run["value"], color=colour, linewidth=0.9, alpha=0.7, zorder=2)
        last = of.groupby("checkpoint", sort=False).tail(1).index
        for i, row in of.iterrows():
            at, end = (row["x"], row["value"]), i in last
            ax.errorbar(
                *at, xerr=arms(row, "x", "x_low", "x_high") if end else None,
                yerr=arms(row, "value", "ci_low", "ci_high") if end else None, color=colour, elinewidth=0.8, zorder=3,
                marker=shapes[i], markersize=5 if end else size[row["step"]], linestyle="none",
                markerfacecolor=colour if row["p_adjusted"] <= ALPHA else "white",
            )  # fmt: skip
            if end:
                ax.annotate(name, at, (0, 0), **style)
    ax.margins(0.08)
    ax.grid(color=FAINT, linewidth=0.5)
    bare(ax)
    return ax.scatter([], [], c=[], cmap=ListedColormap(colours), **ends)


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    points = gain_rows(rows, metric=options.metric)
    of, steps = metric_called(str(points["x_metric"].iloc[0])), sorted(points["step"].dropna().unique())
    yield f"{metrics_of(points)}, against {'1 − ' * of.alike}{within(of.title)} with the reference's same layer."
    yield f"Reference: {listed(look.shown(name) for name in points['against'].unique())}."
    yield from by_task(points, look)
    if len(steps) > 1:
        yield f"Lines join the checkpoints of a layer in the order of their steps ({steps[0]:,} to {steps[-1]:,})."
    yield "Numbers name layers where there is room, colours all."
    yield f"Bars: {look.interval}s{' of the last checkpoint' * (len(steps) > 1)}, each for a single layer."
    over = ", not over checkpoints" if len(steps) > 1 else ""
    yield f"Filled: the probe differs from the reference's (p ≤ .05, corrected over layers{over})."


FIGURE = FigureKind(
    head="Gain of each layer's probe against the layer's distance from the reference model.",
    draw=gain_panels,
    caption=caption,
    metric="Similarity or distance on the horizontal axis, such as cka or relative-distance; by default the rows' "
    "first. The vertical axis shows the metric that probekit compare compared.",
)
