"""Transfer between domains: heat maps of a metric by training and evaluation domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from probekit.display import shown_model
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.caption import listed, metrics_of, sizes_of, widest
from probekit.plots.crossed import Crossed, crossed_maps
from probekit.plots.curves import with_names
from probekit.plots.look import INK, Look, metric_title
from probekit.plots.matrix import axes_or_new, colour_bar, name_cells
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import width_of
from probekit.plots.relation import is_derived, of_study, with_columns

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OWN = "trained on this domain"


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
    one = _map(rows, str(rows["series"].iloc[0]))
    down, columns = list(one.values.index), list(one.values.columns)
    ax = axes_or_new(ax, 0.55 * len(columns) + 2.2, 0.5 * len(down) + 1.4)
    image = one.draw(ax, metric, OWN, limits or (None, None), None, (width_of(ax) - 1.6) / len(columns))
    name_cells(ax, down, columns)
    ax.set_xlabel("Evaluated on", fontsize=9, color=INK)
    ax.set_ylabel("Trained on", fontsize=9, color=INK)
    if limits is None:
        colour_bar(image, metric_title(metric))
    return ax


def _map(rows: pd.DataFrame, title: str) -> Crossed:
    """The map of one regime, with a frame where both domains are the same."""
    values = transfer_values(rows)
    columns = list(values.columns)
    return Crossed(title, values, [(i, columns.index(name)) for i, name in enumerate(values.index) if name in columns])


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
    apart = [c for c in ("task", "model") if rows[c].nunique() > 1]
    maps = []
    for _, part in rows.groupby(["task", "model", "series"], sort=False):
        over = [shown_model(str(part[c].iloc[0])) for c in apart]
        maps.append(_map(part, ", ".join([*over, look.shown(str(part["series"].iloc[0]))])))
    ends = (float(rows["value"].min()), float(rows["value"].max()))
    named = [name for one in maps for name in one.values.index], [name for one in maps for name in one.values.columns]
    down, across = (list(dict.fromkeys(names)) for names in named)
    maps = [one.over(down, across) for one in maps]
    scale: dict[str, Any] = {"limits": ends, "columns": columns, "width": width, "look": look}
    return crossed_maps(maps, metric, metric_title(metric), OWN, **scale)


def _of_metric(rows: Any, metric: str | None) -> tuple[pd.DataFrame, str]:
    rows = with_columns(rows, "trained_on", "domain")
    known = list(rows["metric"].unique())
    if metric not in (None, *known):
        raise UsageError(f"these rows contain no {metric}, only {', '.join(known)}.")
    metric = metric or str(known[0])
    return rows[rows["metric"] == metric], metric


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    rows, metric = _of_metric(transfer_rows(rows), options.metric)
    sizes = "".join(sizes_of(rows)).rstrip(".")
    tasks, splits = listed(map(look.task, rows["task"].unique())), listed(rows["split"].unique())
    yield f"{metrics_of(rows)} on {tasks} ({splits}, {sizes} in a domain)."
    models = [look.shown(shown_model(str(name))) for name in rows["model"].unique()]
    yield f"{'Models' if len(models) > 1 else 'Model'}: {listed(models)}."
    yield f"{'Dark' if metric_called(metric).better == 'lower' else 'Light'} is better."
    yield from widest(rows, look)


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
