"""How far layers moved, and how many dimensions they fill, as curves by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from probekit.errors import UsageError
from probekit.plots.curves import CurveStyles, plot_rows
from probekit.plots.layer_axes import draw_layers
from probekit.plots.layers import as_curves, curve_rows, gold_of
from probekit.plots.look import Look
from probekit.plots.panels import panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["drawn_rows", "geometry_panels", "movement_panels", "others_drawn"]

LESS = ("rank", "mean-cosine-without-top")
"""Measures of geometry that are drawn only if named."""


def movement_panels(
    rows: Any, *, metric: str | None = None, columns: int = 3, width: float | None = None, look: Look | None = None
) -> Figure:
    """Draw how far each layer moved: a panel per distance and task, a curve per model.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.movement`.
    metric : str, optional
        By default all distances.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved. A dotted line shows the mean distance to *other* examples where it is not more than
        three times the largest value.
    """
    return _metric_panels(rows, "movement", metric, columns, width, look)


def geometry_panels(
    rows: Any, *, metric: str | None = None, columns: int = 3, width: float | None = None, look: Look | None = None
) -> Figure:
    """Draw rank, dimension and anisotropy by layer: a panel per measure and task, a curve per model.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.geometry`.
    metric : str, optional
        By default participation ratio, intrinsic dimension and mean cosine. The rank says little, and the mean cosine
        without the top is near 0 by construction.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.
    """
    return _metric_panels(rows, "geometry", metric, columns, width, look)


def _metric_panels(
    rows: Any, analysis: str, metric: str | None, columns: int, width: float | None, look: Look | None
) -> Figure:
    rows = drawn_rows(rows, analysis, metric)
    rows = rows.assign(panel=rows["metric"])
    figure, drawn = panels(rows, columns, 2.35, by="panel", width=width, look=look)
    styles = CurveStyles.of(gold_of(rows), panel=("task", "panel"), alike=True)
    for ax, part in drawn:
        draw_layers(ax, curve_rows(part, styles=styles), styles, look=look)
        if len(others := others_drawn(part)):
            at = others.index.to_numpy(dtype=float)
            ax.plot(at, others, color="#4D4D4D", linestyle=":", label="other examples", zorder=1.6)
    return figure


def drawn_rows(rows: Any, analysis: str, metric: str | None) -> pd.DataFrame:
    """The rows of movement or geometry that are drawn; raises UsageError without any."""
    rows = as_curves(plot_rows(rows))
    rows = rows[rows["analysis"] == analysis]
    if rows.empty:
        raise UsageError(f"there are no rows of probekit {analysis} to draw.")
    if metric is not None and metric not in set(rows["metric"]):
        raise UsageError(f"the rows have no {metric!r}; they have {', '.join(rows['metric'].unique())}.")
    return rows[rows["metric"] == metric] if metric else rows[~rows["metric"].isin(LESS)]


def others_drawn(rows: pd.DataFrame) -> pd.Series:
    """The mean distance to other examples by layer; empty if it would flatten the curves."""
    import pandas as pd

    others = rows.groupby("layer", sort=True)["others"].mean() if "others" in rows else pd.Series(dtype=float)
    return others if others.notna().any() and others.max() <= 3 * rows["value"].max() else others.iloc[:0]
