"""Domains: heat map of distances, dendrogram, terms that contribute most, effect of corpus size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.caption import metrics_of, sizes_of, widest
from probekit.plots.curves import of_analyses, with_names
from probekit.plots.domain_sizes import HIGH, SIZES, by_domain, divergence_by_size, draw_sizes, pairs_of
from probekit.plots.legends import NARROW, wrapped
from probekit.plots.look import COLOURS, INK, MOST, Look, metric_title
from probekit.plots.matrix import (
    Square,
    axes_or_new,
    colour_bar,
    colours_of,
    digits_of,
    draw_cells,
    draw_tree,
    hatch_cells,
    line_height,
    name_cells,
    short,
    write_cells,
)
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import PAGE, bare, figure_width, width_of
from probekit.plots.parts import Part, parts_figure
from probekit.rows import as_rows, make_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOISE = "no larger than sampling noise"
WRITTEN = 12  # domains, up to which the cells show numbers
TERMS = "js-contribution"
REST = "(all other terms)"
CORRECTED = ("corrected", "null-corrected")


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
    if rows["estimator"].isin(CORRECTED).any():
        np.fill_diagonal(cells, np.nan)
    ax = axes_or_new(ax, 0.55 * len(names) + 2, 0.5 * len(names) + 1.4)
    low = min(0.0, np.ma.masked_invalid(cells).min())
    image = draw_cells(ax, cells, metric, limits=(low, None))
    place = Square.of(names, width_of(ax), figure_width(ax))
    if len(names) <= WRITTEN:
        write_cells(image, cells, partial(short, digits=digits_of(cells)), short, cell=place.cell)
    noise = set(_places(names, rows[(rows["p"] > level) & (rows["target"] == "gold")]))
    both = noise | {(j, i) for i, j in noise} if _symmetric(rows) else noise
    hatch_cells(ax, both, NOISE, place.cell)
    name_cells(ax, place.lines, place.under, place.side, place.line, place.cell)
    colour_bar(image, metric_title(metric), [ax], room=place.bar)
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
    part = f"\n(these terms: {100 * shown['value'].sum() / whole:.0f} % of {whole:.3f} bits)" if whole else ""
    ax.set_xlabel(f"Contribution to the divergence (bits){part}", fontsize=8, color=INK)
    sides: tuple[tuple[Literal["left", "right"], str, str], ...] = (("left", a, COLOURS[0]), ("right", b, COLOURS[1]))
    for side, name, colour in sides:
        words = wrapped(f"More in {name}", 0.5 * width_of(ax) - 0.2, 8, "bold")
        title = ax.set_title(words, loc=side, fontsize=8, fontweight="bold", color=colour)
        title.set_parse_math(False)
    bare(ax, ("bottom",))
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
    return parts_figure(_parts(rows, metric, top, width), width, look)


def _parts(rows: pd.DataFrame, metric: str | None, top: int, width: float | None) -> list[Part]:
    """A panel for each kind of row; of divergences by size one for each domain, if one cannot show all pairs."""
    parts: list[Part] = []
    kinds = _kinds(rows, metric)
    if "pairs" in kinds:
        chosen, _ = _of_metric(rows, metric)
        names = list(domain_values(chosen).index)
        whole = width or PAGE
        wide = whole if whole < NARROW else min(0.36 * len(names) + 1.9, whole)
        place = Square.of(names, wide, whole)
        parts.append(Part("pairs", "Pairs of domains", wide, place.height, partial(domain_matrix, chosen)))
        if "tree" in kinds:
            leaf = line_height(names, 0.4 * min(whole, 2.8), 0.22)
            parts.append(Part("tree", "Average linkage", 2.8, leaf * len(names) + 0.9, partial(domain_tree, chosen)))
    if "terms" in kinds:
        for _, pair in rows[rows["metric"] == TERMS].groupby(["domain_a", "domain_b"], sort=False):
            shown = min(top, len(pair))
            parts.append(Part("terms", "", 3.4, 0.17 * shown + 1.1, partial(domain_terms, pair, top=top)))
    if "sizes" in kinds:
        found = rows[rows["metric"] == SIZES]
        if pairs_of(found) <= MOST:
            parts.append(Part("sizes", "By number of documents", 3.4, 2.4, partial(divergence_by_size, found)))
        else:
            many = by_domain(found)
            parts += [Part("sizes", name, 2.0, HIGH, partial(draw_sizes, **own), facet=True) for name, own in many]
    return parts


def _kinds(rows: pd.DataFrame, metric: str | None) -> list[str]:
    """The kinds of panels, in the order of their letters."""
    kinds = []
    if metric is not None or not rows["metric"].isin((SIZES, TERMS)).all():
        chosen, _ = _of_metric(rows, metric)
        kinds = ["pairs", "tree"] if _is_tree(chosen) else ["pairs"]
    return kinds + [kind for kind, of in (("terms", TERMS), ("sizes", SIZES)) if (rows["metric"] == of).any()]


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
    kinds = _kinds(rows, options.metric)
    of = {kind: f"({letter}) " for kind, letter in zip(kinds, "abcd", strict=False)} if len(kinds) > 1 else {}
    if "pairs" in kinds:
        chosen, name = _of_metric(rows, options.metric)
        corrected = chosen["estimator"].isin(CORRECTED).any()
        pairs = chosen[chosen["target"] == "gold"]
        larger = "less alike" if colours_of(name) == "viridis" and not metric_called(name).alike else "more alike"
        yield (
            f"{of.get('pairs', '')}{metrics_of(pairs)} of pairs{', corrected for sampling noise' * bool(corrected)}; "
            f"light is {larger}; {'the white diagonal is not measured' if corrected else _DIAGONAL}."
        )
        sizes = "".join(sizes_of(pairs)).removesuffix(".")
        if sizes:
            yield f"Documents of a pair: {sizes}."
        yield from widest(pairs, look)
        if "p" in pairs and (pairs["p"] > 0.05).any():
            yield "Hatched cells: no larger than sampling noise (p > 0.05)."
    if "tree" in kinds:
        yield f"{of['tree']}Tree of these distances, joined by average linkage."
    if "terms" in kinds:
        yield f"{of.get('terms', '')}Terms: the {options.top} that contribute most to the divergence of a pair."
    if "sizes" in kinds:
        found = rows[rows["metric"] == SIZES]
        domains = len(set(found["domain_a"]) | set(found["domain_b"]))
        near = f" with the {MOST} nearest others" * (domains > MOST + 1)
        each = f"a panel for each domain{near}; " * (pairs_of(found) > MOST)
        yield (
            f"{of.get('sizes', '')}By size: {each}solid lines are corrected for sampling noise, dashed lines are raw; "
            "bands show random subsets."
        )


_DIAGONAL = "the diagonal compares two random halves of a domain"


FIGURE = FigureKind(
    head="Distances between domains.",
    draw=domain_panels,
    caption=caption,
    metric="Measure of the heat map and the dendrogram, such as js-distance; by default the rows' first.",
)
