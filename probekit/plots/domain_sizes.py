"""The divergence of pairs of domains by the number of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.legends import SMALL, plain_legend, wrapped
from probekit.plots.look import COLOURS, INK, MARKERS, MOST, metric_title
from probekit.plots.matrix import axes_or_new
from probekit.plots.panels import bare
from probekit.rows import as_rows, make_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SIZES = "js-divergence-by-size"
HIGH = 1.9
"""Height of a panel of one domain in inches."""


def divergence_by_size(rows: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the divergence of pairs of domains by the number of documents used.

    Solid lines are corrected, dashed lines raw; bands show the range of raw values for random subsets.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.domains` with ``sizes``.
    ax : Axes, optional
        Axes to draw into; by default those of a new figure. Nothing is shown or saved.

    Returns
    -------
    Axes
        The Axes with the plot.

    Raises
    ------
    UsageError
        If there are no such rows.
    """
    rows = make_rows(as_rows(rows))
    rows = rows[rows["metric"] == SIZES]
    if rows.empty:
        raise UsageError("these rows contain no divergence by size; expected rows of probekit domains --sizes.")
    new, ax = ax is None, axes_or_new(ax, 4.2, 2.8)
    draw_sizes(ax, rows.assign(label=rows["domain_a"] + " | " + rows["domain_b"]))
    if new:
        plain_legend(ax.legend(**SMALL))
    return ax


def draw_sizes(ax: Axes, rows: pd.DataFrame, order: Sequence[str] = (), top: float | None = None) -> None:
    """Curves by the number of documents, one for each ``label``.

    Parameters
    ----------
    order : sequence of str
        Labels of all panels, which set colours and markers.
    top : float, optional
        The largest value of all panels.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    order = order or list(dict.fromkeys(rows["label"]))
    looks = dict(zip(order, zip(cycle(COLOURS), cycle(MARKERS), strict=False), strict=False))
    for label, pair in rows.sort_values("n", kind="stable").groupby("label", sort=False):
        style: dict[str, Any] = dict(zip(("color", "marker"), looks[str(label)], strict=True))
        low, high, n = (pair[c].to_numpy(dtype=float) for c in ("raw_low", "raw_high", "n"))
        ax.fill_between(n, low, high, color=style["color"], alpha=0.15, linewidth=0)
        ax.plot(n, pair["raw"], linestyle="--", linewidth=1, markersize=2, zorder=2, **style)
        ax.plot(n, pair["value"], linewidth=1.4, markersize=4, zorder=4, label=label, **style)
    ax.plot([], [], color="#7F7F7F", linestyle="--", linewidth=1, label="raw")
    ax.set_xscale("log")
    top = top or float(np.nanmax(rows[["value", "raw_high"]].to_numpy(dtype=float)))
    ax.set_ylim(-0.04 * top, 1.06 * top)  # so that markers at 0 are whole
    few = rows["n"].max() < 20 * rows["n"].min()
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=9))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("Documents", fontsize=9, color=INK)
    ax.set_ylabel(wrapped(metric_title("js-divergence"), HIGH - 0.7, 8), fontsize=8, color=INK)
    bare(ax)


def by_domain(rows: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of more pairs than one panel can show, each domain and the arguments of :func:`draw_sizes` for its panel.

    The panel has the others that are nearest with the most documents, at most eight.
    """
    names = list(dict.fromkeys(rows[["domain_a", "domain_b"]].to_numpy().ravel()))
    top = float(np.nanmax(rows[["value", "raw_high"]].to_numpy(dtype=float)))
    for name in names:
        own = rows[(rows["domain_a"] == name) | (rows["domain_b"] == name)]
        own = own.assign(label=own["domain_b"].where(own["domain_a"] == name, own["domain_a"]))
        last = own.sort_values("n", kind="stable").groupby("label", sort=False)["value"].last()
        near = own[own["label"].isin(last.nsmallest(MOST).index)]
        yield name, {"rows": near, "order": names, "top": top}


def pairs_of(rows: pd.DataFrame) -> int:
    """The number of pairs of domains."""
    return len(rows[["domain_a", "domain_b"]].drop_duplicates())
