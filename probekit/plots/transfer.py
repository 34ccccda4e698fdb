"""Transfer between domains: heat maps of a metric by training and evaluation domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from probekit.display import shown_model
from probekit.errors import UsageError
from probekit.plots.caption import metrics_of, sizes_of
from probekit.plots.curves import with_names
from probekit.plots.domains import WRITTEN
from probekit.plots.legends import add_legend, legend_of
from probekit.plots.look import INK, Look, metric_title
from probekit.plots.matrix import axes_or_new, colour_bar, draw_cells, frame_cell, name_cells, short, write_cells
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import even, fitting, grid, same_labels, width_of
from probekit.plots.relation import is_derived, of_study, with_columns

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL, OWN = 0.55, "trained on this domain"
NAMED_SIDE, BAR = 1.2, 0.8
"""Natural size of a cell, width of the names at the side, and width of the colour bar, in inches."""


def transfer_rows(rows: Any) -> pd.DataFrame:
    """Select the rows of a table of domains that :func:`transfer_panels` draws; raises UsageError for other tables."""
    rows = of_study(rows)
    return rows[(rows["trained_on"] != "") & (rows["corpus"] == "") & ~is_derived(rows, "lost")]


def transfer_matrix(
    rows: Any, *, metric: str | None = None, limits: tuple[float, float] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a metric by training and evaluation domain as a heat map.

    Frames mark evaluation on the training domain. With up to 12 domains, the cells show numbers if they fit.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of one regime and head, with the additional columns ``trained_on`` (vertical axis) and ``domain``, the
        evaluation domain (horizontal axis).
    metric : str, optional
        By default the first in the rows.
    limits : tuple of float, optional
        Ends of the colour scale; by default those of the values.
    ax : Axes, optional
        Axes to draw into; by default those of a new figure. Nothing is shown or saved.

    Returns
    -------
    Axes
        The Axes with the plot.

    Raises
    ------
    UsageError
        For several regimes, a metric that the rows lack, and two values for one pair.
    """
    rows, metric = _of_metric(rows, metric)
    cells = transfer_values(rows)
    down, columns, values = list(cells.index), list(cells.columns), cells.to_numpy()
    ax = axes_or_new(ax, CELL * len(columns) + 2.2, 0.5 * len(down) + 1.4)
    image = draw_cells(ax, values, metric, limits=limits or (None, None))
    if max(values.shape) <= WRITTEN:
        room = (width_of(ax) - NAMED_SIDE - BAR / 2) / len(columns)
        write_cells(image, values, "{:.3f}".format, "{:.2f}".format, short, cell=room)
    for i, name in enumerate(down):
        if name in columns:
            frame_cell(ax, i, columns.index(name), OWN)
    name_cells(ax, down, columns)
    ax.set_xlabel("Evaluated on", fontsize=9, color=INK)
    ax.set_ylabel("Trained on", fontsize=9, color=INK)
    title = rows["series"].iloc[0]
    ax.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK, parse_math=False)
    if limits is None:
        colour_bar(image, metric_title(metric))
    return ax


def transfer_values(rows: Any, metric: str | None = None) -> pd.DataFrame:
    """Return the values that :func:`transfer_matrix` draws.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of one regime and head.
    metric : str, optional
        By default the first in the rows.

    Returns
    -------
    DataFrame
        One row for each training domain, one column for each evaluation domain.

    Raises
    ------
    UsageError
        For several regimes, and two values for one pair.
    """
    rows, _ = _of_metric(rows, metric)
    if len(several := rows["series"].unique()) > 1:
        raise UsageError(
            f"transfer_matrix draws one regime, but the rows are of {', '.join(several)}; use transfer_panels."
        )
    if (twice := rows.duplicated(["trained_on", "domain"])).any():
        pair = rows.loc[twice, ["trained_on", "domain"]].iloc[0]
        raise UsageError(f"{' → '.join(pair)} has two values; do the rows contain two seeds?")
    columns, trained = list(rows["domain"].unique()), set(rows["trained_on"])
    down = [*(c for c in columns if c in trained), *(t for t in rows["trained_on"].unique() if t not in columns)]
    return rows.pivot(index="trained_on", columns="domain", values="value").loc[down, columns]


def transfer_panels(
    rows: Any, *, metric: str | None = None, columns: int = 3, width: float | None = None, look: Look | None = None
) -> Figure:
    """Draw one :func:`transfer_matrix` per regime (task, model), side by side with one colour scale.

    Parameters
    ----------
    rows : DataFrame, Result or path
        As in :func:`transfer_matrix`, for any number of regimes.
    metric : str, optional
        By default the first in the rows.
    columns, width
        As in :func:`layer_panels`.
    look : Look, optional
        Display names.

    Returns
    -------
    Figure
        Not shown and not saved.
    """
    rows, metric = _of_metric(rows, metric)
    look = look or Look()
    parts = list(rows.groupby(["task", "model", "series"], sort=False))
    titled = [c for c in ("task", "model") if rows[c].nunique() > 1]
    limits = (float(rows["value"].min()), float(rows["value"].max()))
    across, down = (rows[c].nunique() for c in ("domain", "trained_on"))
    natural = CELL * across + NAMED_SIDE
    beside = even(len(parts), fitting(columns, None if width is None else width - BAR, natural))
    width = width or natural * beside + BAR
    cell = min(0.9 * CELL, ((width - BAR) / beside - NAMED_SIDE) / across)
    page, height = look.of_page(-(-len(parts) // beside), cell * down + 1.3)
    parts = parts[page.start * beside : page.stop * beside]
    figure, grid_ = grid(len(parts), beside, height, width, natural)
    axes = list(grid_.ravel())[: len(parts)]
    for i, (ax, (_, part)) in enumerate(zip(axes, parts, strict=True)):
        transfer_matrix(part, metric=metric, limits=limits, ax=ax)
        over = ", ".join(shown_model(str(part[c].iloc[0])) for c in titled)
        title = "\n".join(filter(None, (over, look.shown(str(part["series"].iloc[0])))))
        ax.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK, parse_math=False)
        if i + beside < len(parts):
            ax.set_xlabel("")
    same_labels(axes, beside)
    colour_bar(axes[0].images[0], metric_title(metric), axes)
    add_legend(figure, legend_of(axes), look)
    return figure


def _of_metric(rows: Any, metric: str | None) -> tuple[pd.DataFrame, str]:
    rows = with_columns(rows, "trained_on", "domain")
    known = list(rows["metric"].unique())
    if metric not in (None, *known):
        raise UsageError(f"these rows contain no {metric}, only {', '.join(known)}.")
    metric = metric or str(known[0])
    return rows[rows["metric"] == metric], metric


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    yield from sizes_of(transfer_rows(rows))
    yield f"Metric: {metrics_of(transfer_rows(rows))}."


def transfer_figure(rows: Any, *, columns: int = 3, width: float | None = None, look: Look | None = None) -> Figure:
    """Plot transfer between domains: the metric by training and evaluation domain, one heat map per regime.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit table domains --rows-out wrote.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Examples
    --------
    On the command line::

        probekit plot transfer table6.parquet --out transfer.pdf
    """
    return transfer_panels(transfer_rows(with_names(rows, look)), columns=columns, width=width, look=look)


FIGURE = FigureKind(
    head="Transfer between domains; frames mark evaluation on the training domain.",
    draw=transfer_figure,
    caption=caption,
)
