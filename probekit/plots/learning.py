"""Learning curves: the result on a task against the number of training examples."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from probekit.errors import UsageError
from probekit.plots.curves import plot_rows
from probekit.plots.look import Look
from probekit.plots.palette import COLOURS, INK, MARKERS
from probekit.plots.panels import dress, panels
from probekit.plots.relation import arms
from probekit.plots.titles import metric_title

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["learning_panels", "learning_rows"]

REGIMES = ("fine-tune", "feature-extraction")
POINT = ["task", "label", "examples"]


def learning_rows(rows: Any) -> pd.DataFrame:
    """Return the points that :func:`learning_panels` draws.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.train`.

    Returns
    -------
    DataFrame
        For each task, model (in a regime and with a head, if there are several) and number of training examples the
        row of the run, with its main metric, or the means over seeds; ``seeds`` counts them.

    Raises
    ------
    UsageError
        If the rows contain no runs with their number of training examples, or a point has two values for one seed.
    """
    import pandas as pd

    rows = plot_rows(rows)
    runs = rows[(rows["analysis"] == "train") & rows["regime"].isin(REGIMES)]
    if {"headline", "examples"} <= set(runs):
        runs = runs[runs["headline"].fillna(value=False).astype(bool) & runs["examples"].notna()]
    else:
        runs = runs[:0]
    if runs.empty:
        raise UsageError(
            "the rows contain no training runs with their number of training examples (column examples); expected rows "
            "of probekit train."
        )
    names = runs["model"].astype(str)
    for column in ("regime", "head"):
        if runs.groupby("task")[column].nunique().max() > 1:
            names = names + ", " + runs[column].astype(str)
    runs = runs.assign(label=names)
    if (twice := runs.duplicated([*POINT, "seed"])).any():
        label, n = runs.loc[twice, ["label", "examples"]].iloc[0]
        raise UsageError(
            f"{label} has two values for {int(n):,} training examples and one seed; give the rows of one variant, and "
            "each only once."
        )
    points = [
        part.iloc[0].to_dict() | {c: part[c].mean() for c in ("value", "ci_low", "ci_high")} | {"seeds": len(part)}
        for _, part in runs.groupby(POINT, sort=False)
    ]
    return pd.DataFrame(points)


def learning_panels(rows: Any, *, columns: int = 4, width: float | None = None, look: Look | None = None) -> Figure:
    """Draw learning curves: a panel for each task, a curve for each model, over the number of training examples.

    Points are means over seeds. Bars are intervals over the evaluated examples, of several seeds their mean; they do
    not cover the variation over seeds or over drawn training examples. The horizontal axis is logarithmic.

    Parameters
    ----------
    rows : DataFrame, Result or path
        As in :func:`learning_rows`.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.
    """
    points = learning_rows(rows)
    figure, drawn = panels(points, columns, 2.4, width=width, look=look)
    styles = dict(zip(points["label"].unique(), cycle(zip(COLOURS, MARKERS, strict=True)), strict=False))
    for ax, part in drawn:
        for label, (colour, marker) in styles.items():
            curve = part[part["label"] == label].sort_values("examples")
            if len(curve):
                ax.plot(curve["examples"], curve["value"], color=colour, marker=marker, markersize=4, label=label)
            for _, point in curve.iterrows():
                bars = arms(point, "value", "ci_low", "ci_high")
                ax.errorbar(point["examples"], point["value"], yerr=bars, color=colour, elinewidth=0.8)
        _dress(ax, part, look)
    return figure


def _dress(ax: Axes, part: pd.DataFrame, look: Look | None) -> None:
    from matplotlib.ticker import NullLocator

    dress(ax, part, ylabel=metric_title(str(part["metric"].iloc[0])), look=look)
    ax.set_xscale("log")
    ax.set_xlabel("Training examples", fontsize=9, color=INK)
    at = sorted({int(n) for n in part["examples"]})
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(at, [f"{n:,}" for n in at])
