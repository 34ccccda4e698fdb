"""Domains: heat map of distances, dendrogram, terms that contribute most, effect of corpus size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.caption import sizes_of
from probekit.plots.curves import of_analyses, with_names
from probekit.plots.legends import SMALL, add_legend, legend_of, plain_legend
from probekit.plots.look import COLOURS, INK, MARKERS, Look, metric_title
from probekit.plots.matrix import axes_or_new, colour_bar, draw_cells, draw_tree, hatch_cells, name_cells, write_cells
from probekit.plots.options import WIDTHS, FigureKind, PlotOptions
from probekit.plots.panels import bare, new_figure, width_of
from probekit.rows import as_rows, make_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOISE = "no larger than sampling noise"
WRITTEN = 12  # domains, up to which the cells show numbers
SIZES, TERMS = "js-divergence-by-size", "js-contribution"
REST = "(all other terms)"


def domain_matrix(rows: Any, *, metric: str | None = None, level: float = 0.05, ax: Axes | None = None) -> Axes:
    """Draw a measure of all pairs of domains as a heat map.

    Row a, column b is the value from domain_a to domain_b. The diagonal shows two random halves of one domain, if the
    other values are raw (not corrected). Cells with a p-value above ``level`` are hatched: they are no larger than
    sampling noise. With up to 12 domains, the cells show numbers if they fit.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.domains`; their order sets the order of the domains.
    metric : str, optional
        By default the first in the rows.
    level : float
        Threshold for the p-value.
    ax : Axes, optional
        Axes to draw into, part of which becomes a colour bar; by default those of a new figure. Nothing is shown or
        saved.

    Returns
    -------
    Axes
        The Axes with the plot.

    Raises
    ------
    UsageError
        If the rows lack the measure, or have two values for one pair.
    """
    rows, metric = _of_metric(rows, metric)
    values = domain_values(rows, metric)
    names, cells = list(values.index), values.to_numpy(copy=True)
    if rows["estimator"].isin(("corrected", "null-corrected")).any():
        np.fill_diagonal(cells, np.nan)
    ax = axes_or_new(ax, 0.55 * len(names) + 2, 0.5 * len(names) + 1.4)
    low = min(0.0, np.ma.masked_invalid(cells).min())
    image = draw_cells(ax, cells, metric, limits=(low, None))
    digits = ".2f" if np.max(np.abs(cells), initial=0, where=np.isfinite(cells)) >= 0.1 else ".2g"
    if len(names) <= WRITTEN:
        cell = (width_of(ax) - 1.5) / len(names)
        write_cells(image, cells, lambda value: f"{value:{digits}}".replace("inf", "∞"), cell=cell)
    noise = set(_places(names, rows[(rows["p"] > level) & (rows["target"] == "gold")]))
    hatch_cells(ax, noise | {(j, i) for i, j in noise} if _symmetric(rows) else noise, NOISE)
    name_cells(ax, names, names)
    colour_bar(image, metric_title(metric))
    return ax


def domain_tree(rows: Any, *, metric: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw domains as a dendrogram (average linkage).

    Parameters
    ----------
    rows : DataFrame, Result or path
        As in :func:`domain_matrix`.
    metric : str, optional
        By default the first in the rows.
    ax : Axes, optional
        Axes to draw into; by default those of a new figure. Nothing is shown or saved.

    Returns
    -------
    Axes
        The Axes with the plot.

    Raises
    ------
    UsageError
        For fewer than two domains, for missing or infinite values, and for measures that are asymmetric or large for
        similar domains.

    References
    ----------
    Average linkage (Sokal & Michener 1958), as implemented in SciPy.
    """
    rows, metric = _of_metric(rows, metric)
    if metric_called(metric).alike or not _symmetric(rows):
        raise UsageError(f"a tree needs a symmetric distance, such as js-distance, not {metric}.")
    names, values = _distances(rows)
    if len(names) < 2 or not np.isfinite(values).all():
        raise UsageError("a tree needs at least two domains and a finite distance for every pair; the rows lack some.")
    ax = axes_or_new(ax, 3.6, 0.3 * len(names) + 1)
    draw_tree(ax, names, values, metric_title(metric))
    return ax


def domain_terms(rows: Any, *, top: int = 20, ax: Axes | None = None) -> Axes:
    """Draw the largest contributions of terms to the divergence of two domains as bars.

    Terms more frequent in the first domain have bars to the left, those more frequent in the second to the right; the
    largest contribution is on top.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.domains` with ``explain``, for one pair.
    top : int
        Number of terms.
    ax : Axes, optional
        Axes to draw into; by default those of a new figure. Nothing is shown or saved.

    Returns
    -------
    Axes
        The Axes with the plot.

    Raises
    ------
    UsageError
        For rows of several pairs or without any pair.
    """
    rows = make_rows(as_rows(rows))
    rows = rows[rows["metric"] == TERMS]
    if rows.empty or len(pairs := rows[["domain_a", "domain_b"]].drop_duplicates()) > 1:
        raise UsageError(f"domain_terms draws the terms of one pair of domains, not of {len(rows) and len(pairs)}.")
    (a, b), whole = pairs.iloc[0], rows["value"].sum()
    shown = rows[rows["term"] != REST].head(top)
    ax = axes_or_new(ax, 3.8, 0.17 * len(shown) + 1.1)
    at, left = np.arange(len(shown)), (shown["mostly"] == a).to_numpy(dtype=bool)
    for some, colour, sign in ((left, COLOURS[0], -1), (~left, COLOURS[1], 1)):
        ax.barh(at[some], sign * shown["value"][some], color=colour, height=0.75)
    ax.set_yticks(at, shown["term"], parse_math=False)  # a term may hold "$"
    ax.invert_yaxis()
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.xaxis.set_major_formatter(lambda x, _: f"{abs(x):g}")
    part = f", {shown['value'].sum() / whole:.0%} of {whole:.3f}" if whole else ""
    ax.set_xlabel(f"Bits of divergence{part}", fontsize=9, color=INK)
    sides: tuple[tuple[Literal["left", "right"], str, str], ...] = (("left", a, COLOURS[0]), ("right", b, COLOURS[1]))
    for side, name, colour in sides:
        title = ax.set_title(f"More in {name}", loc=side, fontsize=8, fontweight="bold", color=colour)
        title.set_parse_math(False)
    bare(ax, ("bottom",))
    return ax


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
    rows = rows[rows["metric"] == SIZES].sort_values("n", kind="stable")
    if rows.empty:
        raise UsageError("these rows contain no divergence by size; expected rows of probekit domains --sizes.")
    ax, styles = axes_or_new(ax, 4.2, 2.8), cycle(zip(COLOURS, MARKERS, strict=True))
    for (a, b), pair in rows.groupby(["domain_a", "domain_b"], sort=False):
        colour, marker = next(styles)
        style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
        ax.fill_between(
            pair["n"].astype(float), pair["raw_low"], pair["raw_high"], color=colour, alpha=0.15, linewidth=0
        )
        ax.plot(pair["n"], pair["raw"], linestyle="--", linewidth=1, **{**style, "markersize": 2})
        ax.plot(pair["n"], pair["value"], linewidth=1.6, label=f"{a} | {b}", **style)
    ax.plot([], [], color="#7F7F7F", linestyle="--", linewidth=1, label="raw")
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("Documents", fontsize=9, color=INK)
    ax.set_ylabel(metric_title("js-divergence"), fontsize=9, color=INK)
    plain_legend(ax.legend(**SMALL))
    bare(ax)
    return ax


def domain_panels(
    rows: Any, *, metric: str | None = None, top: int = 20, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot distances between domains: heat map, dendrogram, terms that contribute most, effect of sample size.

    The diagonal of the heat map compares two random halves of one domain. Hatched cells are no larger than sampling
    noise. Each kind of row in the files gets a panel.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit domains wrote.
    metric : str, optional
        Measure of the heat map and the dendrogram, as in :func:`domain_matrix`. The dendrogram is left out for measures
        that do not allow one.
    top : int
        Number of terms for each pair.
    width : float, optional
        Width of the figure in inches; panels wrap to as many lines as needed. By default at most a page.

    Returns
    -------
    Figure
        Not shown and not saved.

    Raises
    ------
    UsageError
        If there is nothing to draw.

    Notes
    -----
    Draw a panel for each kind of row: heat map and dendrogram, the terms of each pair, the effect of size.

    Examples
    --------
    On the command line::

        probekit plot domains domains.parquet --out domains.pdf --metric js-distance
    """
    look = look or Look()
    rows = with_names(of_analyses(make_rows(as_rows(rows)), "domains"), look)
    return _figure(_parts(rows, metric, top, width), width, look)


def _parts(rows: pd.DataFrame, metric: str | None, top: int, width: float | None) -> list[_Part]:
    """A panel for each kind of row."""
    parts: list[_Part] = []
    if metric is not None or not rows["metric"].isin((SIZES, TERMS)).all():
        chosen, _ = _of_metric(rows, metric)
        names = max(len(domain_values(chosen)), 4)
        cell = 0.5 if width is None else min(0.5, (width - 2) / names)
        parts.append(_Part(0.42 * names + 1.9, cell * names + 1, partial(domain_matrix, chosen)))
        if _is_tree(chosen):
            parts.append(_Part(2.8, 0.27 * names + 0.8, partial(domain_tree, chosen)))
    if (rows["metric"] == TERMS).any():
        for _, pair in rows[rows["metric"] == TERMS].groupby(["domain_a", "domain_b"], sort=False):
            shown = min(top, len(pair))
            parts.append(_Part(3.4, 0.17 * shown + 1, partial(domain_terms, pair, top=top)))
    if (rows["metric"] == SIZES).any():
        parts.append(_Part(3.8, 2.8, partial(divergence_by_size, rows)))
    return parts


def _figure(parts: list[_Part], width: float | None, look: Look) -> Figure:
    """The panels, in as many lines as the width requires, and on as many pages as the lines."""
    if not parts:
        raise UsageError("there are no rows to draw.")
    width = width or min(WIDTHS["page"], sum(part.width for part in parts))
    lines: list[list[_Part]] = []
    for part in parts:
        if not lines or sum(p.width for p in (*lines[-1], part)) > 1.25 * width:
            lines.append([])
        lines[-1].append(part)
    heights = [max(part.height for part in line) for line in lines]
    page = look.of_heights(heights)
    lines, heights = [lines[i] for i in page], [heights[i] for i in page]
    figure = new_figure((width, sum(heights)), "constrained")
    strips = figure.subfigures(len(lines), 1, squeeze=False, height_ratios=heights)[:, 0]
    drawn = []
    for strip, line in zip(strips, lines, strict=True):
        axes = strip.subplots(1, len(line), squeeze=False, width_ratios=[part.width for part in line])[0]
        for ax, part in zip(axes, line, strict=True):
            part.draw(ax=ax)
            drawn.append(ax)
    hatched = {label: x for label, x in legend_of(drawn).items() if label == NOISE}
    if hatched:
        add_legend(figure, hatched, look)
    return figure


class _Part(NamedTuple):
    """A panel: its natural width and height in inches, and the function that draws it into ``ax``."""

    width: float
    height: float
    draw: Callable[..., object]


def _of_metric(rows: Any, metric: str | None) -> tuple[pd.DataFrame, str]:
    """The rows of one measure of pairs, and its name."""
    rows = make_rows(as_rows(rows))
    if missing := {"domain_a", "domain_b"} - set(rows.columns):
        raise UsageError(
            f"these rows lack the columns {', '.join(sorted(missing))}; expected rows of probekit domains."
        )
    rows = rows[~rows["metric"].isin((SIZES, TERMS))]
    known = list(rows["metric"].unique())
    if not known or metric not in (None, *known):
        raise UsageError(
            f"these rows contain no {metric or 'measure of pairs'}, only {', '.join(known) or 'other metrics'}."
        )
    metric = metric or str(known[0])
    return rows[rows["metric"] == metric], metric


def _symmetric(rows: pd.DataFrame) -> bool:
    """Whether the rows contain each pair only once."""
    pairs = rows[rows["target"] == "gold"]
    return not {(b, a) for a, b in zip(pairs["domain_a"], pairs["domain_b"], strict=True)} & set(
        zip(pairs["domain_a"], pairs["domain_b"], strict=True)
    )


def _is_tree(rows: pd.DataFrame) -> bool:
    names, values = _distances(rows)
    complete = len(names) > 1 and bool(np.isfinite(values).all())
    return complete and _symmetric(rows) and not metric_called(str(rows["metric"].iloc[0])).alike


def _distances(rows: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """The names of domains, and the values of all pairs with zeros on the diagonal."""
    values = domain_values(rows)
    square = values.to_numpy(copy=True)
    np.fill_diagonal(square, 0)
    return list(values.index), square


def domain_values(rows: Any, metric: str | None = None) -> pd.DataFrame:
    """Return the values that :func:`domain_matrix` draws, for all pairs of domains.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.domains`.
    metric : str, optional
        By default the first in the rows.

    Returns
    -------
    DataFrame, shape (domains, domains)
        The value from the row's domain to the column's domain, in the order of the rows; NaN if missing.

    Raises
    ------
    UsageError
        If the rows lack the measure, or have two values for one pair.
    """
    import pandas as pd

    rows, _ = _of_metric(rows, metric)
    named = rows[["domain_a", "domain_b"]].to_numpy().ravel()
    names, symmetric = list(dict.fromkeys(map(str, named))), _symmetric(rows)
    if (twice := rows.duplicated(["domain_a", "domain_b", "target"])).any():
        a, b = rows.loc[twice, ["domain_a", "domain_b"]].iloc[0]
        raise UsageError(f"{a} and {b} have two values; were the same rows given twice?")
    values = np.full((len(names), len(names)), np.nan)
    for (i, j), value in zip(_places(names, rows), rows["value"], strict=True):
        values[i, j] = value
        if symmetric:
            values[j, i] = value
    return pd.DataFrame(values, names, names)


def _places(names: list[str], rows: pd.DataFrame) -> list[tuple[int, int]]:
    return [(names.index(a), names.index(b)) for a, b in zip(rows["domain_a"], rows["domain_b"], strict=True)]


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    rows = of_analyses(rows, "domains")
    named = [m for m in rows["metric"].unique() if m not in (SIZES, TERMS)]
    pairs = rows[rows["metric"].isin([options.metric or (named or [""])[0]]) & (rows["target"] == "gold")]
    yield from sizes_of(pairs)
    if "p" in pairs and (pairs["p"] > 0.05).any():
        yield "Hatched cells: no larger than sampling noise (p > 0.05)."
    if (rows["metric"] == TERMS).any():
        yield f"Terms: the {options.top} that contribute most to the divergence of a pair."
    if (rows["metric"] == SIZES).any():
        yield "By size: solid lines are corrected for sampling noise, dashed lines are raw; bands show random subsets."


FIGURE = FigureKind(
    head="Distances between domains.",
    draw=domain_panels,
    caption=caption,
    metric="Measure of the heat map and the dendrogram, such as js-distance; by default the rows' first.",
)
