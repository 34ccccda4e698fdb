"""A strip under a layer curve: summary statistics such as the best layer, on the same axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.curves import CurveStyles, curves
from probekit.plots.panels import bare

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["draw_summary", "summary_rows"]

STATISTICS = {
    "best-layer": "best layer",
    "first-good-layer": "first good layer",
    "centre-of-gravity": "centre of gravity",
    "expected-layer": "expected layer",
}
"""In the order from top to bottom."""
HEIGHT = 0.6
"""Height of the strip in inches."""


def draw_summary(ax: Axes, summary: pd.DataFrame, rows: pd.DataFrame, styles: CurveStyles) -> None:
    """Draw a strip under ``ax`` with its layer axis: one line per statistic, one marker with its interval per curve.

    Parameters
    ----------
    ax : Axes
        Axes of the curves.
    summary : DataFrame
        Rows of :func:`probekit.summary`, as :func:`probekit.plots.curves.plot_rows` returns them. Other curves are
        ignored, and undetermined statistics have no marker.
    rows : DataFrame
        Rows of the curves.
    styles : CurveStyles
        Styles of the figure.

    Raises
    ------
    UsageError
        For other rows, and if no row matches the curves.
    """
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    corner: Any = ax.transAxes
    inches: Any = ax.figure.dpi_scale_trans
    under = blended_transform_factory(corner, inches + ScaledTranslation(0, 0, corner))
    strip = ax.inset_axes((0, -HEIGHT - 0.06, 1, HEIGHT), transform=under, sharex=ax)
    for key, part in summary_rows(summary, rows):
        style = styles.style[styles.called(key)]
        y, x, low, high = (part[c].to_numpy(dtype=float) for c in ("line", "value", "ci_low", "ci_high"))
        strip.hlines(y, np.fmin(low, x), np.fmax(high, x), color=style["color"], linewidth=1.1)
        strip.plot(x, y, linestyle="none", marker=style["marker"], markersize=3.2, color=style["color"])
    place = ax.get_subplotspec()
    strip.set_yticks(range(len(STATISTICS)), STATISTICS.values() if place is None or place.is_first_col() else [""] * 4)
    strip.set_ylim(len(STATISTICS) - 0.5, -0.5)
    bare(strip, ("bottom",))
    strip.tick_params(axis="y", length=0, labelsize=7)
    ax.tick_params(axis="x", labelbottom=False)
    ax.xaxis.set_label_coords(0.5, -HEIGHT - 0.3, transform=under)


def summary_rows(summary: pd.DataFrame, rows: pd.DataFrame) -> list[tuple[dict[str, str], pd.DataFrame]]:
    """The statistics of each curve of ``rows``, with the place of each on the strip in a column ``line``."""
    if "of_metric" not in summary:
        raise UsageError("these rows are not a summary of curves; expected rows of probekit summary.")
    same = (summary["task"] == rows["task"].iloc[0]) & (summary["of_metric"] == rows["metric"].iloc[0])
    summary = summary[same & summary["metric"].isin(list(STATISTICS))]
    there = [key for key, _ in curves(rows)]
    found = [(key, part.dropna(subset="value")) for key, part in curves(summary) if key in there]
    if not found:
        raise UsageError(f"the summary has no rows of {rows['metric'].iloc[0]} on {rows['task'].iloc[0]}.")
    order = list(STATISTICS).index
    beside = [0.6 * ((i + 0.5) / len(found) - 0.5) for i in range(len(found))]
    return [
        (key, part.assign(line=part["metric"].map(order).astype(float) + shift))
        for (key, part), shift in zip(found, beside, strict=True)
    ]
