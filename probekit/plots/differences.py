"""Paired differences by layer: between layers, between models, against controls, with intervals for all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.panels import Scale, dress, legend, one_axes, panels
from probekit.plots.style import CURVE, INK, Looks, curves, metric_title, plain
from probekit.rows import make_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["difference_panels", "layer_differences"]

BY = (*CURVE, "against")
HOLLOW = "p > {:g}, corrected"


def layer_differences(rows: pd.DataFrame, *, level: float = 0.05, ax: Axes | None = None) -> Axes:
    """Draw paired differences by layer into ``ax``, one series a curve, side by side; returns the Axes.

    rows : of one task and one metric, as :func:`probekit.compare` makes them. The thick bar is the
        interval of a layer alone, the thin one that of all layers at once (max-t only); a marker is hollow where the
        corrected p-value is above ``level``.
    ax : a new figure's for None. Nothing is shown or saved.
    Raises UsageError for rows of several tasks or metrics, or of something else than comparisons.
    """
    rows, own = _of_comparisons(rows), ax is None
    ax = one_axes(rows, ax, 2.8, ("layer_differences", "difference_panels"))
    _draw(ax, rows, Looks.of(rows, BY), level)
    legend(ax, below=own)
    return ax


def difference_panels(
    rows: pd.DataFrame, *, level: float = 0.05, columns: int = 4, width: float | None = None
) -> Figure:
    """One :func:`layer_differences` a task, side by side under one legend; returns the Figure.

    columns, width : as of :func:`layer_panels`
    """
    rows = _of_comparisons(rows)
    figure, drawn = panels(rows, columns, 2.4, width=width)
    looks = Looks.of(rows, BY)
    for ax, part in drawn:
        _draw(ax, part, looks, level)
    return figure


def _of_comparisons(rows: pd.DataFrame) -> pd.DataFrame:
    rows = make_rows(rows)
    wanted = {"against", "p_adjusted", "joint_low", "joint_high"}
    if missing := wanted - set(rows.columns):
        raise UsageError(
            f"these rows lack {', '.join(sorted(missing))}; probekit compare makes differences of evaluated examples."
        )
    return rows[rows["analysis"] == "compare"]


def _draw(ax: Axes, rows: pd.DataFrame, looks: Looks, level: float) -> None:
    if len(metrics := [metric_called(name).of for name in rows["metric"].unique()]) != 1:
        raise UsageError(f"differences in {' and '.join(metrics)} have no common axis; give one metric's.")
    scale, found, against = Scale.of(rows, ax), list(curves(rows, BY)), rows["against"].unique()
    ax.axhline(0, color=INK, linewidth=0.9, zorder=1)
    for i, (key, part) in enumerate(found):
        label, look = looks.known(key)
        if part["layer_name"].duplicated().any():
            raise UsageError(f"{label} has two differences for one layer; were the same rows given twice?")
        shift = min(0.24, 0.7 / len(found)) * (i - (len(found) - 1) / 2)
        _draw_series(ax, part, scale.at(part) + shift, label, scale.sized(look), level)
    title, _, better = metric_title(str(metrics[0])).partition("\n")
    named = f"minus {plain(against[0])}" if len(against) == 1 else "difference"
    dress(ax, rows, ylabel=f"{title}\n{named} {better}".rstrip())
    scale.set(ax)


def _draw_series(
    ax: Axes, part: pd.DataFrame, x: np.ndarray, label: str, look: Mapping[str, Any], level: float
) -> None:
    colour = look["color"]
    points = {**look, "linestyle": "none", "markeredgecolor": colour, "zorder": 4}
    ax.vlines(x, part["joint_low"], part["joint_high"], color=colour, linewidth=0.8, zorder=3)
    ax.vlines(x, part["ci_low"], part["ci_high"], color=colour, linewidth=2.4, alpha=0.45, zorder=2)
    ax.plot(x, part["value"], label=label, **points)
    open_ = (part["p_adjusted"] > level).to_numpy(dtype=bool)
    if open_.any():
        ax.plot(x[open_], part["value"][open_], **{**points, "markerfacecolor": "white", "zorder": 5})
        ax.plot(
            [], [], "o", color="#7F7F7F", markerfacecolor="white", markersize=4.5, zorder=3, label=HOLLOW.format(level)
        )
