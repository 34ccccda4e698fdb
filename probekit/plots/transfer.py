"""What transfers from domain to domain: maps of what training on one is worth on each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.display import shown_model
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.domains import WRITTEN, write
from probekit.plots.look import Look
from probekit.plots.palette import COLOURS, INK
from probekit.plots.panels import bare, even, fitting, grid, same_labels, width_of
from probekit.plots.relation import is_derived, of_study, with_columns
from probekit.plots.titles import metric_title

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["transfer_matrix", "transfer_panels", "transfer_rows", "transfer_values"]

CELL = 0.55
NAMED_SIDE, BAR = 1.2, 0.8
"""Inches of a cell of a map at its best, of the names at its side, and of the bar of colours."""


def transfer_rows(rows: Any) -> pd.DataFrame:
    """Of the rows of a study of domains, those that :func:`transfer_panels` draws; raises UsageError for others."""
    rows = of_study(rows)
    return rows[(rows["trained_on"] != "") & (rows["corpus"] == "") & ~is_derived(rows, "lost")]


def transfer_matrix(
    rows: Any, *, metric: str | None = None, limits: tuple[float, float] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw what training on one domain is worth on each other as a heat map.

    Frames mark what was evaluated on the domain it was trained on. Up to 12 domains have numbers, where there is room
    for them.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Of one regime and head, with the own columns ``trained_on``, down the side, and ``domain``, evaluated on, along
        the bottom.
    metric : str, optional
        The rows' first for None.
    limits : tuple of float, optional
        Of the colours; those of the values for None.
    ax : Axes, optional
        A new figure's for None. Nothing is shown or saved.

    Returns
    -------
    Axes
        Those drawn into.

    Raises
    ------
    UsageError
        For several regimes, a metric that is not there, and two values for one pair.
    """
    import matplotlib as mpl
    from matplotlib.patches import Rectangle

    rows, metric = _of_metric(rows, metric)
    cells = transfer_values(rows)
    down, columns, values = list(cells.index), list(cells.columns), cells.to_numpy()
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(CELL * len(columns) + 2.2, 0.5 * len(down) + 1.4), layout="constrained")[1]
    lower = metric_called(metric).better == "lower"
    colours = mpl.colormaps["viridis_r" if lower else "viridis"].with_extremes(bad="white")
    low, high = limits or (None, None)
    image = ax.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=low, vmax=high, aspect="auto")
    cell = (width_of(ax) - NAMED_SIDE - BAR / 2) / len(columns)
    if max(values.shape) <= WRITTEN and cell > 0.24:
        write(ax, image, values, ".3f" if cell > 0.33 else ".2f")
    for i, name in enumerate(down):
        if name in columns:
            at = (columns.index(name) - 0.46, i - 0.46)
            ax.add_patch(Rectangle(at, 0.92, 0.92, facecolor="none", edgecolor=COLOURS[1], linewidth=1.6))
    ax.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor", parse_math=False)
    ax.set_yticks(range(len(down)), down, parse_math=False)
    ax.set_xlabel("Evaluated on", fontsize=9, color=INK)
    ax.set_ylabel("Trained on", fontsize=9, color=INK)
    title = rows["series"].iloc[0]
    ax.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK, parse_math=False)
    bare(ax, ())
    if limits is None:
        _bar(ax.figure, image, metric, ax)
    return ax


def transfer_values(rows: Any, metric: str | None = None) -> pd.DataFrame:
    """Work out what :func:`transfer_matrix` shows.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Of one regime and head.
    metric : str, optional
        The rows' first for None.

    Returns
    -------
    DataFrame
        A line for each domain trained on, a column for each evaluated on.

    Raises
    ------
    UsageError
        For several regimes, and two values for one pair.
    """
    rows, _ = _of_metric(rows, metric)
    if len(several := rows["series"].unique()) > 1:
        raise UsageError(f"transfer_matrix draws one regime, these are {', '.join(several)}; see transfer_panels.")
    if (twice := rows.duplicated(["trained_on", "domain"])).any():
        pair = rows.loc[twice, ["trained_on", "domain"]].iloc[0]
        raise UsageError(f"{' → '.join(pair)} has two values; are these rows of two seeds?")
    columns, trained = list(rows["domain"].unique()), set(rows["trained_on"])
    down = [*(c for c in columns if c in trained), *(t for t in rows["trained_on"].unique() if t not in columns)]
    return rows.pivot(index="trained_on", columns="domain", values="value").loc[down, columns]


def transfer_panels(
    rows: Any,
    *,
    metric: str | None = None,
    columns: int = 3,
    width: float | None = None,
    look: Look | None = None,
) -> Figure:
    """Draw one :func:`transfer_matrix` a regime (task, model), side by side on one scale of colours.

    Parameters
    ----------
    rows : DataFrame, Result or path
        As of :func:`transfer_matrix`, of any number of regimes.
    metric : str, optional
        The rows' first for None.
    columns, width
        As of :func:`layer_panels`.
    look : Look, optional
        Names.

    Returns
    -------
    Figure
        Not shown and not saved.
    """
    rows, metric = _of_metric(rows, metric)
    look = look or Look()
    parts = list(rows.groupby(["task", "model", "series"], sort=False))
    told = [c for c in ("task", "model") if rows[c].nunique() > 1]
    limits = (float(rows["value"].min()), float(rows["value"].max()))
    across, down = (rows[c].nunique() for c in ("domain", "trained_on"))
    natural = CELL * across + NAMED_SIDE
    beside = even(len(parts), fitting(columns, None if width is None else width - BAR, natural))
    width = width or natural * beside + BAR
    cell = min(0.9 * CELL, ((width - BAR) / beside - NAMED_SIDE) / across)
    figure, grid_ = grid(len(parts), beside, cell * down + 1.3, width, natural)
    axes = list(grid_.ravel())[: len(parts)]
    for i, (ax, (_, part)) in enumerate(zip(axes, parts, strict=True)):
        transfer_matrix(part, metric=metric, limits=limits, ax=ax)
        over = ", ".join(shown_model(str(part[c].iloc[0])) for c in told)
        title = "\n".join(filter(None, (over, look.shown(part["series"].iloc[0]))))
        ax.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK, parse_math=False)
        if i % beside and _names(ax) == _names(axes[i - 1]):
            ax.tick_params(axis="y", labelleft=False)
        if i + beside < len(parts):
            ax.set_xlabel("")
    same_labels(axes, beside)
    _bar(figure, axes[0].images[0], metric, axes)
    return figure


def _names(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def _bar(figure: Any, image: Any, metric: str, of: Any) -> None:
    bar = figure.colorbar(image, ax=of, pad=0.03, aspect=18)
    bar.outline.set_visible(False)
    bar.set_label(metric_title(metric), fontsize=8, color=INK)
    bare(bar.ax, ())


def _of_metric(rows: Any, metric: str | None) -> tuple[pd.DataFrame, str]:
    rows = with_columns(rows, "trained_on", "domain")
    known = list(rows["metric"].unique())
    if metric not in (None, *known):
        raise UsageError(f"there is no {metric} in these rows, only {', '.join(known)}.")
    metric = metric or str(known[0])
    return rows[rows["metric"] == metric], metric
