"""Scalar-mix weights by layer: how much of each layer feature extraction takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.layers import kept
from probekit.plots.panels import Scale, dress, legend, one_axes, panels
from probekit.plots.style import INK, Looks, curves, run_kind
from probekit.rows import make_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MIX", "mix_panels", "mix_weights"]

MIX = "mix-weight"
BY = ("model", "estimator", "representation", "checkpoint", "split")
EVEN = "even mix"


def mix_weights(rows: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the softmax-normalised weight of each layer in the scalar mix into ``ax``; returns the Axes.

    rows : of one task, as trainings with frozen layers make them: those of ``mix-weight``, of the weights kept, are
        drawn. One curve a model and head; runs that differ in the seed alone are one curve, their mean, over a band
        from the least to the greatest. The dotted line is the even mix, one over the number of layers, and the axis
        starts at 0, with the even mix at half of it at most, so that mixes that are next to even look so.
    ax : a new figure's for None. Nothing is shown or saved.
    Raises UsageError where the rows hold several tasks, no weights, or two values of one run for one layer.
    """
    rows, own = _of_mixes(rows), ax is None
    ax = one_axes(rows, ax, 2.8, ("mix_weights", "mix_panels"))
    _draw(ax, rows, _looks(rows))
    legend(ax, below=own)
    return ax


def mix_panels(rows: pd.DataFrame, *, columns: int = 4, width: float | None = None) -> Figure:
    """One :func:`mix_weights` a task, side by side in the order of the rows, under one legend; returns the Figure.

    columns, width : as of :func:`layer_panels`
    """
    rows = _of_mixes(rows)
    figure, drawn = panels(rows, columns, 2.2, width=width)
    looks = _looks(rows)
    for ax, part in drawn:
        _draw(ax, part, looks)
    return figure


def _of_mixes(rows: pd.DataFrame) -> pd.DataFrame:
    """The weights that trainings ended with; runs go by what is left of their names without task and seed."""
    rows = kept(make_rows(rows))
    rows = rows[(rows["metric"] == MIX) & (rows["layer_name"] != "") & rows["value"].notna()]
    if rows.empty:
        raise UsageError(f"these rows hold no {MIX} by layer; probekit train --regime feature-extraction mixes layers.")
    named = zip(rows["checkpoint"], rows["task"], rows["seed"], strict=True)
    return rows.assign(checkpoint=[re.sub(rf"[-_.](s|seed-?)?{s}$", "", run_kind(str(c), str(t))) for c, t, s in named])


def _looks(rows: pd.DataFrame) -> Looks:
    """Heads are told apart in the whole figure, poolings and runs where one head has several."""
    tell = ["model", *["estimator"] * (rows["estimator"].nunique() > 1)]
    for column in BY[2:]:
        if (rows.groupby(["task", *tell])[column].nunique() > 1).any():
            tell.append(column)
    return Looks.of(rows, BY, tell=tell)


def _draw(ax: Axes, rows: pd.DataFrame, looks: Looks) -> None:
    scale, seeds = Scale.of(rows, ax), 1
    for key, part in sorted(curves(rows, BY), key=lambda pair: looks.rank(pair[0])):
        label, look = looks.known(key)
        if (twice := part.duplicated(["seed", "layer_name"])).any():
            layer = part.loc[twice, "layer_name"].iloc[0]
            raise UsageError(f"{label} has two weights of layer {layer}; were the same rows given twice?")
        by_layer = part.assign(at=scale.at(part)).groupby("at")["value"].agg(["mean", "min", "max"])
        many = part["seed"].nunique()
        x, low, high = (np.asarray(v, dtype=float) for v in (by_layer.index, by_layer["min"], by_layer["max"]))
        colour = look["color"]
        ax.plot(x, by_layer["mean"], label=label, zorder=5, **{**scale.sized(look), "markeredgecolor": colour})
        if many > 1:
            band: dict[str, Any] = {"facecolor": (colour, 0.15), "edgecolor": (colour, 0.5), "linewidth": 0.4}
            ax.fill_between(x, low, high, zorder=3, **band)
        seeds = max(seeds, many)
    for layers in sorted(set(rows.groupby(list(BY), dropna=False)["layer_name"].nunique())):
        ax.axhline(1 / layers, color=INK, linestyle=(0, (1, 2)), linewidth=1.0, zorder=1.7, label=EVEN)
    dress(ax, rows, ylabel="Weight in the mix", how=f"{seeds} seeds, mean and range" if seeds > 1 else "")
    scale.set(ax)
    ax.set_ylim(0, max(ax.get_ylim()[1], 2 / rows["layer_name"].nunique()))
