"""Scalar-mix weights by layer: the share of each layer in feature extraction and in edge probes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.caption import measured
from probekit.plots.curves import CurveStyles, curves, plot_rows
from probekit.plots.heat import heat_panels, heat_words
from probekit.plots.layers import kept
from probekit.plots.look import GREYS, INK, Look
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import Scale, dress, legend, one_axes, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIX = "mix-weight"
BY = ("model", "method", "representation", "run", "split")
EVEN = "even mix"


def mix_weights(rows: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the softmax-normalised weight of each layer in the scalar mix.

    There is one curve per model and head. Runs that differ only in the seed are one curve, their mean, with a band from
    the smallest to the largest weight. The dotted line is the even mix, one over the number of layers. The axis starts
    at 0 and ends at twice the even mix or above, so that nearly even mixes look even.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of feature-extraction runs or of edge probes for one task; the final ``mix-weight`` rows are drawn.
    ax : Axes, optional
        Axes to draw into; by default those of a new figure. Nothing is shown or saved.

    Returns
    -------
    Axes
        The Axes with the plot.

    Raises
    ------
    UsageError
        If the rows are of several tasks, contain no weights, or have two values of one run for one layer.
    """
    rows, new_figure = _of_mixes(rows), ax is None
    ax = one_axes(rows, ax, 2.8, ("mix_weights", "mix_panels"))
    _draw(ax, rows, _styles(rows))
    legend(ax, below=new_figure)
    return ax


def mix_panels(rows: Any, *, columns: int = 4, width: float | None = None, look: Look | None = None) -> Figure:
    """Plot the weight of each layer in the final scalar mix: one panel per task, one curve per head.

    Runs that differ only in the seed are one curve, their mean, with a band from the smallest to the largest weight.
    The dotted line marks equal weights. For the weights by training step: probekit plot trajectory --metric mix-weight.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of feature-extraction runs, or of probekit edges (.parquet, .csv).
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw one :func:`mix_weights` per task, side by side in the order of the rows, with one legend.

    Examples
    --------
    On the command line::

        probekit plot mix cola-run/rows.parquet mrpc-run/rows.parquet --out mix.pdf
    """
    rows = _of_mixes(rows)
    styles = _styles(rows)
    if styles.crowd:
        return heat_panels(
            rows, styles.style, partial(_means, styles=styles), columns=columns, width=width, look=look, by=None
        )
    figure, drawn = panels(rows, columns, 2.2, width=width, look=look)
    axes = []
    for ax, part in drawn:
        _draw(ax, part, styles, look)
        axes.append(ax)
    for ax in axes:
        ax.set_ylim(0, max(one.get_ylim()[1] for one in axes))
    return figure


def mix_rows(rows: Any, *, styles: CurveStyles | None = None) -> pd.DataFrame:
    """Return the values that :func:`mix_weights` draws, one row per curve and layer, in drawing order.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of one task.
    styles : CurveStyles, optional
        Styles of the whole figure; by default those of these rows.

    Returns
    -------
    DataFrame
        Columns label, layer, layer_name, mean, min, max, seeds (number of runs) and layers (number in the model).
    """
    import pandas as pd

    rows = _of_mixes(rows)
    styles, parts = styles or _styles(rows), []
    for key, part in sorted(curves(rows, BY), key=lambda pair: styles.rank(pair[0])):
        label = styles.called(key)
        if (twice := part.duplicated(["seed", "layer_name"])).any():
            layer = part.loc[twice, "layer_name"].iloc[0]
            raise UsageError(f"{label} has two weights for layer {layer}; were the same rows given twice?")
        by_layer = part.groupby(["layer", "layer_name"], dropna=False)["value"].agg(["mean", "min", "max"])
        counts: dict[str, Any] = {"seeds": part["seed"].nunique(), "layers": part["layer_name"].nunique()}
        parts.append(by_layer.reset_index().assign(label=label, **counts))
    return pd.concat(parts, ignore_index=True)


def _of_mixes(rows: Any) -> pd.DataFrame:
    """The final weights, with runs named by their kind without the seed."""
    rows = kept(plot_rows(rows))
    rows = rows[(rows["metric"] == MIX) & (rows["layer_name"] != "") & rows["value"].notna()]
    if rows.empty:
        raise UsageError(
            f"these rows contain no {MIX} by layer; expected rows of probekit train --regime feature-extraction, or of "
            "probekit edges."
        )
    return rows.assign(run=rows["run_kind"])


def _styles(rows: pd.DataFrame) -> CurveStyles:
    """Labels name the head if the figure has several, and pooling and run if one head has several."""
    labelled_by = ["model", *["method"] * (rows["method"].nunique() > 1)]
    for column in BY[2:]:
        if (rows.groupby(["task", *labelled_by])[column].nunique() > 1).any():
            labelled_by.append(column)
    return CurveStyles.of(rows, BY, labelled_by=labelled_by)


def _means(rows: pd.DataFrame, styles: CurveStyles) -> pd.DataFrame:
    return mix_rows(rows, styles=styles).rename(columns={"mean": "value"})


def _draw(ax: Axes, rows: pd.DataFrame, styles: CurveStyles, look: Look | None = None) -> None:
    from matplotlib.patches import Rectangle

    scale, found = Scale.of(rows, ax), mix_rows(rows, styles=styles)
    for label, curve in found.groupby("label", sort=False):
        curve = curve.assign(at=scale.at(curve)).sort_values("at")
        style = styles.style[str(label)]
        x, low, high = (np.asarray(curve[c], dtype=float) for c in ("at", "min", "max"))
        colour = style["color"]
        ax.plot(x, curve["mean"], label=label, zorder=5, **{**scale.sized(style), "markeredgecolor": colour})
        if curve["seeds"].iloc[0] > 1:
            band: dict[str, Any] = {"facecolor": (colour, 0.15), "edgecolor": (colour, 0.5), "linewidth": 0.4}
            ax.fill_between(x, low, high, zorder=3, **band)
    for layers in sorted(set(found["layers"])):
        ax.axhline(1 / layers, color=INK, linestyle=(0, (1, 2)), linewidth=1.0, zorder=1.7, label=EVEN)
    seeds = int(found["seeds"].max())
    if seeds > 1:
        ax.add_patch(Rectangle((0, 0), 0, 0, facecolor=(GREYS[0], 0.3), zorder=1, label=f"range of {seeds} seeds"))
    dress(ax, rows, ylabel="Weight in the mix", look=look, sized=False)
    scale.set(ax)
    ax.set_ylim(0, max(ax.get_ylim()[1], 2 / rows["layer_name"].nunique()))


def caption(rows: pd.DataFrame, _options: PlotOptions, look: Look) -> Iterator[str]:
    import pandas as pd

    rows = kept(rows)
    rows = rows[(rows["metric"] == MIX) & (rows["layer_name"] != "")]
    yield from measured(rows, look, sized=False)
    seeds = int(rows.groupby(["task", "model", "method", "run_kind"])["seed"].nunique().max())
    if seeds > 1:
        yield f"Lines: means of {seeds} seeds; bands: from the smallest to the largest weight."
    styles = _styles(rows := _of_mixes(rows))
    if styles.crowd:
        parts = [_means(part, styles).assign(task=task) for task, part in rows.groupby("task", sort=False)]
        yield from heat_words(pd.concat(parts))
    else:
        yield "Dotted line: equal weights."


FIGURE = FigureKind(head="Weight of each layer in the final scalar mix.", draw=mix_panels, caption=caption)
