"""How far layers moved, and how many dimensions they fill, as curves by layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from probekit.metrics import metric as metric_called
from probekit.plots.caption import curve_names, listed, measured
from probekit.plots.curves import CurveStyles, check_metric, of_one, plot_rows
from probekit.plots.heat import heat_panels, heat_words
from probekit.plots.layer_axes import draw_layers, hides_random
from probekit.plots.layers import as_curves, curve_rows, gold_of
from probekit.plots.look import Look
from probekit.plots.options import FigureKind
from probekit.plots.panels import panels

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from matplotlib.figure import Figure

    from probekit.plots.options import PlotOptions

LESS = ("rank", "mean-cosine-without-top")
"""Measures of geometry that are drawn only if named."""


def movement_panels(
    rows: Any, *, metric: str | None = None, columns: int = 3, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot how far each layer is from the reference: one panel per distance, one curve per model.

    A dotted line shows the distance to the reference vectors of other examples, unless it is far above the curves: a
    layer that reaches it is no closer to its own reference vectors.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit movement wrote (.parquet, .csv).
    metric : str, optional
        By default all distances.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved. A dotted line shows the mean distance to *other* examples where it is not more than
        three times the largest value.

    Examples
    --------
    On the command line::

        probekit plot movement movement.parquet --out movement.pdf
        probekit plot trajectory steps.parquet --metric relative-distance
    """
    return _metric_panels(rows, "movement", metric, columns, width, look)


def geometry_panels(
    rows: Any, *, metric: str | None = None, columns: int = 4, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot dimension and anisotropy by layer: one panel per measure, one curve per model.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit geometry wrote (.parquet, .csv).
    metric : str, optional
        By default participation ratio, intrinsic dimension and mean cosine. The rank says little, and the mean cosine
        without the top is near 0 by construction.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Examples
    --------
    On the command line::

        probekit plot geometry geometry.parquet --out geometry.pdf
        probekit plot geometry geometry.parquet --metric intrinsic-dimension --width column
    """
    return _metric_panels(rows, "geometry", metric, columns, width, look)


def _metric_panels(
    rows: Any, analysis: str, metric: str | None, columns: int, width: float | None, look: Look | None
) -> Figure:
    rows = _drawn(rows, analysis, metric)
    rows = rows.assign(panel=rows["metric"])
    styles = CurveStyles.of(gold_of(rows), panel=("task", "panel"), alike=True)
    if styles.crowd:
        return heat_panels(
            rows, styles.style, partial(curve_rows, styles=styles), columns=columns, width=width, look=look
        )
    figure, drawn = panels(rows, columns, 2.35, by="panel", width=width, look=look)
    for ax, part in drawn:
        draw_layers(ax, curve_rows(part, styles=styles), styles, look=look)
        for text in ax.texts:  # the vertical axis says that it is a distance
            text.set_text(text.get_text().removeprefix("distance "))
        if len(others := _others(part)):
            at = others.index.to_numpy(dtype=float)
            ax.plot(at, others, color="#4D4D4D", linestyle=":", label="other examples", zorder=1.6)
    return figure


def _drawn(rows: Any, analysis: str, metric: str | None) -> pd.DataFrame:
    """The rows of movement or geometry that are drawn; raises UsageError without any."""
    rows = of_one(as_curves(plot_rows(rows)), analysis, f"there are no rows of probekit {analysis} to draw.")
    check_metric(metric, rows["metric"].unique())
    return rows[rows["metric"] == metric] if metric else rows[~rows["metric"].isin(LESS)]


def _others(rows: pd.DataFrame) -> pd.Series:
    """The mean distance to other examples by layer; empty if it would flatten the curves."""
    import pandas as pd

    others = rows.groupby("layer", sort=True)["others"].mean() if "others" in rows else pd.Series(dtype=float)
    return others if others.notna().any() and others.max() <= 3 * rows["value"].max() else others.iloc[:0]


def movement_caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    """The caption of :func:`movement_panels` after its first sentence."""
    rows = _drawn(rows, "movement", options.metric)
    yield from _by_metric(rows, look)
    yield f"Reference: {listed(look.shown(name) for name in rows['reference'].unique())}."
    if any(len(_others(part)) for _, part in rows.groupby(["task", "metric"], sort=False)):
        yield (
            "Dotted lines: mean distance to the reference vectors of other examples. Where a curve comes near the "
            "dotted line, most of the movement may be common to all examples."
        )


def geometry_caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    """The caption of :func:`geometry_panels` after its first sentence."""
    yield from _by_metric(_drawn(rows, "geometry", options.metric), look)


def _by_metric(rows: pd.DataFrame, look: Look) -> Iterator[str]:
    import pandas as pd

    yield from measured(rows, look)
    yield curve_names(CurveStyles.of(rows, panel=("task", "metric"), alike=True).style, look)
    styles = CurveStyles.of(gold_of(rows), panel=("task", "metric"), alike=True)
    parts = [curve_rows(part, styles=styles) for _, part in rows.groupby(["task", "metric"], sort=False)]
    points = [part[part["role"] == "curve"] for part in parts]
    if styles.crowd:
        yield from heat_words(pd.concat(points), ("task", "metric"), look=look)
    elif rows["ci_low"].notna().any():
        yield f"Bands and bars: {look.interval}s, each for a single layer."
        if any(map(hides_random, points)):
            yield "Intervals of random weights are left out."


def mean_distances(rows: pd.DataFrame) -> pd.DataFrame:
    """The means over all examples, with the name of the reference, as curves by layer."""
    if "example" not in rows:
        return rows.iloc[:0]
    derived = rows["metric"].map(lambda name: bool(metric_called(name).derived))
    rows = rows[rows["example"].fillna("").eq("") & rows["label"].fillna("").eq("") & ~derived]
    if "against" not in rows:
        return rows
    pairs = zip(rows["against"], rows["representation"], strict=True)
    return rows.assign(reference=[str(against).removesuffix(f", {pooling}") for against, pooling in pairs])


MOVEMENT = FigureKind(
    head="Distance of each layer from the reference model.",
    draw=movement_panels,
    caption=movement_caption,
    metric="Distance to plot, such as relative-distance; by default all in the rows.",
)


GEOMETRY = FigureKind(
    head="Dimension and anisotropy of each layer.",
    draw=geometry_panels,
    caption=geometry_caption,
    metric="Measure to plot, such as rank; by default participation ratio, intrinsic dimension and mean cosine.",
)
