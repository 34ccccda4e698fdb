"""Scalar-mix weights by layer: how much of each layer feature extraction takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.curves import CurveStyles, curves, plot_rows
from probekit.plots.layers import kept
from probekit.plots.look import Look
from probekit.plots.palette import INK
from probekit.plots.panels import Scale, dress, legend, one_axes, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MIX", "mix_panels", "mix_rows", "mix_weights"]

MIX = "mix-weight"
BY = ("model", "method", "representation", "run", "split")
EVEN = "even mix"


def mix_weights(rows: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the softmax-normalised weight of each layer in the scalar mix.

    One curve a model and head; runs that differ in the seed alone are one curve, their mean, over a band from the least
    to the greatest. The dotted line is the even mix, one over the number of layers, and the axis starts at 0, with the
    even mix at half of it at most, so that mixes that are next to even look so.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Of one task, as trainings with frozen layers make them: those of ``mix-weight``, of the weights kept, are drawn.
    ax : Axes, optional
        A new figure's for None. Nothing is shown or saved.

    Returns
    -------
    Axes
        Those drawn into.

    Raises
    ------
    UsageError
        Where the rows hold several tasks, no weights, or two values of one run for one layer.
    """
    rows, own = _of_mixes(rows), ax is None
    ax = one_axes(rows, ax, 2.8, ("mix_weights", "mix_panels"))
    _draw(ax, rows, _styles(rows))
    legend(ax, below=own)
    return ax


def mix_panels(rows: Any, *, columns: int = 4, width: float | None = None, look: Look | None = None) -> Figure:
    """Draw one :func:`mix_weights` a task, side by side in the order of the rows, under one legend.

    Parameters
    ----------
    rows : DataFrame, Result or path
        As trainings with frozen layers make them.
    columns, width, look
        As of :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.
    """
    rows = _of_mixes(rows)
    figure, drawn = panels(rows, columns, 2.2, width=width, look=look)
    styles = _styles(rows)
    for ax, part in drawn:
        _draw(ax, part, styles, look)
    return figure


def mix_rows(rows: Any, *, styles: CurveStyles | None = None) -> pd.DataFrame:
    """Work out what :func:`mix_weights` shows, one row a curve and layer, in the order in which it is drawn.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Of one task.
    styles : CurveStyles, optional
        Of the whole figure; of these rows for None.

    Returns
    -------
    DataFrame
        Columns label, layer, layer_name, mean, min, max, seeds (how many runs) and layers (of the model).
    """
    import pandas as pd

    rows = _of_mixes(rows)
    styles, parts = styles or _styles(rows), []
    for key, part in sorted(curves(rows, BY), key=lambda pair: styles.rank(pair[0])):
        label = styles.called(key)
        if (twice := part.duplicated(["seed", "layer_name"])).any():
            layer = part.loc[twice, "layer_name"].iloc[0]
            raise UsageError(f"{label} has two weights of layer {layer}; were the same rows given twice?")
        by_layer = part.groupby(["layer", "layer_name"], dropna=False)["value"].agg(["mean", "min", "max"])
        own: dict[str, Any] = {"label": label, "seeds": part["seed"].nunique(), "layers": part["layer_name"].nunique()}
        parts.append(by_layer.reset_index().assign(**own))
    return pd.concat(parts, ignore_index=True)


def _of_mixes(rows: Any) -> pd.DataFrame:
    """The weights that trainings ended with; runs go by their kind, whatever their seed."""
    rows = kept(plot_rows(rows))
    rows = rows[(rows["metric"] == MIX) & (rows["layer_name"] != "") & rows["value"].notna()]
    if rows.empty:
        raise UsageError(f"these rows hold no {MIX} by layer; probekit train --regime feature-extraction mixes layers.")
    return rows.assign(run=rows["run_kind"])


def _styles(rows: pd.DataFrame) -> CurveStyles:
    """Heads are told apart in the whole figure, poolings and runs where one head has several."""
    tell = ["model", *["method"] * (rows["method"].nunique() > 1)]
    for column in BY[2:]:
        if (rows.groupby(["task", *tell])[column].nunique() > 1).any():
            tell.append(column)
    return CurveStyles.of(rows, BY, tell=tell)


def _draw(ax: Axes, rows: pd.DataFrame, styles: CurveStyles, look: Look | None = None) -> None:
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
    dress(ax, rows, ylabel="Weight in the mix", how=f"{seeds} seeds, mean and range" if seeds > 1 else "", look=look)
    scale.set(ax)
    ax.set_ylim(0, max(ax.get_ylim()[1], 2 / rows["layer_name"].nunique()))
