"""Does distance explain adaptation? A metric against distance, by domain or by pair of domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.display import p_equals, shown_model
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.metrics import within
from probekit.plots.caption import listed, metrics_of, sizes_of
from probekit.plots.curves import of_analyses, plot_rows, with_names
from probekit.plots.legends import add_legend, bar_key, inches, marks, narrower, wrapped
from probekit.plots.look import COLOURS, FAINT, INK, MARKERS, MOST, Look, ink_on, metric_title
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import bare, even, fitting, grid, same_labels, width_of
from probekit.rows import fit_labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = ("task", "model", "corpus", "metric", "series")
GAIN = "fine-tuning, gain"
NAMES = {"pearson": "Pearson's r", "spearman": "Spearman's ρ", "kendall": "Kendall's τ"}
SHORT = {"pearson": "r", "spearman": "ρ", "kendall": "τ"}
ADJUSTED = {"effects": ", adjusted"}
WIDE, HIGH = 2.9, 2.1  # inches of a panel
SPREAD = 7
"""With more points, their names need wider panels."""
SIDES, ENDS = ((5, "left"), (-5, "right")), ((0, "center"), (8, "right"), (-8, "left"))
PLACES = [  # offsets of a name from its point, in points
    (x, y, across, "bottom" if y > 0 else "top") for y in (3, -3, 10, -10, 18, -18) for x, across in SIDES
]


def relation_rows(rows: Any, *, transfer: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the points and correlations that :func:`relation_panels` draws.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of the table of domains (``probekit table domains --rows-out``).
    transfer : bool
        Return the loss from training on another domain, one point per pair, instead of one point per domain.

    Returns
    -------
    points, correlations : DataFrame
        In both, the column ``series`` names regime, head and variant.

    Raises
    ------
    UsageError
        For rows of another kind.
    """
    rows = of_study(rows)
    if transfer:
        points = rows[(rows["trained_on"] != "") & is_derived(rows, "lost")]
    else:
        points = rows[rows["x"].notna() & (rows["corpus"] != "")].drop(columns="trained_on")
    return points, rows[rows["of_metric"].notna() & ((rows["corpus"] == "") == transfer)]


def of_study(rows: Any) -> pd.DataFrame:
    rows = with_series(of_analyses(plot_rows(rows), "transfer"))
    if lacking := {"corpus", "x", "of_metric"} - set(rows.columns):
        raise UsageError(
            f"these rows lack the columns {', '.join(sorted(lacking))}; expected the rows of probekit table domains "
            "--rows-out."
        )
    return rows


def with_series(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column ``series``: regime, head and variant in words."""
    return rows.assign(series=fit_labels(rows))


def is_derived(rows: pd.DataFrame, word: str) -> pd.Series:
    return rows["metric"].map({name: metric_called(name).derived == word for name in rows["metric"].unique()})


def relation_panels(
    points: Any,
    relations: pd.DataFrame | None = None,
    *,
    columns: int = 3,
    width: float | None = None,
    look: Look | None = None,
) -> Figure:
    """Draw values against distance: a panel for each corpus, metric and regime (task, model).

    No regression line is drawn, because a few points do not determine one.

    Parameters
    ----------
    points : DataFrame, Result or path
        Rows with the additional columns ``domain``, ``corpus`` (from which distance is measured; "" for none), ``x``,
        ``x_low`` and ``x_high`` (NaN without an interval), see :func:`relation_rows`. Each point is a domain, labelled
        with its name. If ``trained_on`` is given, it is a pair of domains: colour and number show the evaluation
        domain, the shape the training domain (of more than eight domains neither); the two directions of a pair, which
        have one distance, stand side by side.
    relations : DataFrame, optional
        Rows of correlations, metric "pearson", "spearman" or "kendall", with the additional columns ``corpus`` and
        ``of_metric`` (the metric of the points). The first metric is printed above each panel, also ``adjust``-ed.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Raises
    ------
    UsageError
        Without rows, without one of these columns, and if a panel has two values for one point.
    """
    points, look = with_columns(points, "domain", "corpus", "x", "x_low", "x_high"), look or Look()
    width = narrower(width, look) if "trained_on" in points else width
    if relations is not None:
        relations = None if relations.empty else with_columns(relations, "corpus", "of_metric")
    pairs = "trained_on" in points and bool((points["trained_on"] != "").any())
    name = ["trained_on", "domain"] if pairs else ["domain"]
    if (twice := points.duplicated([*PANEL, *name])).any():
        pair = " → ".join(points.loc[twice, name].iloc[0])
        raise UsageError(f"{pair} has two values; do the rows contain two seeds?")
    most = points.groupby(list(PANEL), sort=False).size().max()
    fit = fitting(columns, width, (1 if pairs or most <= SPREAD else 1.3) * WIDE)  # names take room
    panels = _side_by_side(list(points.groupby(list(PANEL), sort=False)), fit)
    across = even(len(panels), fit)
    related = [] if relations is None else [row for _, row in relations.iterrows()]
    printed = [_first([row for row in related if _is_of(row, key)]) for key, _ in panels]
    lines = 1 + max(map(len, printed))
    page, high = look.of_page(-(-len(panels) // across), HIGH + 0.14 * lines)
    on_page = slice(page.start * across, page.stop * across)
    figure, axes = grid(len(panels[on_page]), across, high, width, WIDE)
    domains = points[name].melt()["value"].unique()
    styles = {d: (COLOURS[k], MARKERS[k]) for k, d in enumerate(domains)} if pairs and len(domains) <= MOST else {}
    alike: dict[tuple[str, str], list[Axes]] = {}
    for ax, (key, part), own in zip(axes.ravel(), panels[on_page], printed[on_page], strict=False):
        about = dict(zip(PANEL, map(str, key), strict=True))
        _draw(ax, part, about, styles, pairs=pairs)
        _title_panel(ax, part, about, own, lines, look)
        alike.setdefault((about["task"], about["metric"]), []).append(ax)
    for together in alike.values():
        ends = np.array([ax.get_ylim() for ax in together])
        for ax in together:
            ax.set_ylim(ends.min(), ends.max())
    same_labels(list(axes.ravel()), across)
    title = "Colours and numbers: evaluated on; shapes: trained on" if styles else ""
    add_legend(figure, _keys(points, styles, look), look, title)
    if not pairs:
        name_apart(figure)
    return figure


def _keys(points: pd.DataFrame, styles: Mapping[str, tuple[str, str]], look: Look) -> dict[str, Any]:
    """The legend: the domains of pairs, and the directions in which points have intervals."""
    x, y = points["x_low"].notna().any(), points["ci_low"].notna().any()
    bars = bar_key(look.interval + " of the distance" * (not y), "+" if x and y else "_" if x else "|")
    return marks({f"{k} {name}": style for k, (name, style) in enumerate(styles.items(), 1)}) | (bars if x or y else {})


def _side_by_side(
    panels: list[tuple[tuple[Any, ...], pd.DataFrame]], fit: int
) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Panels with the corpora side by side, where the panels of one corpus are too many for a line."""
    if max(Counter(key[2] for key, _ in panels).values()) <= fit:
        return panels
    first: dict[tuple[Any, ...], int] = {}
    return sorted(panels, key=lambda panel: first.setdefault((*panel[0][:2], *panel[0][3:]), len(first)))


def _first(correlations: Sequence[Any]) -> list[Any]:
    """The rows of the correlation coefficient that comes first, one for each adjustment."""
    return [r for r in correlations if r["metric"] == correlations[0]["metric"]]


def _title_panel(
    ax: Axes, part: pd.DataFrame, about: Mapping[str, str], correlations: Sequence[Any], lines: int, look: Look
) -> None:
    """Set the title of a panel, and below it data, model and correlations, in at most ``lines`` lines."""
    series = look.shown(GAIN if metric_called(about["metric"]).derived == "difference" else about["series"])
    series = wrapped(series, width_of(ax) - 0.5, 10, "bold")
    ax.set_title(series, loc="left", pad=6 + 10 * lines, fontsize=10, fontweight="bold", color=INK, parse_math=False)
    below = [", ".join((look.task(about["task"]), look.shown(shown_model(about["model"])), *part["split"].unique()))]
    for row in correlations:
        words = [_correlation(row), _correlation(row, SHORT), _correlation(row, SHORT, interval=False)]
        below.append(next((line for line in words if inches(line, 7) <= width_of(ax) - 0.5), words[-1]))
    style: dict[str, Any] = {"fontsize": 7, "color": "#666666", "va": "bottom", "parse_math": False}
    ax.text(0, 1.02, "\n".join(below), transform=ax.transAxes, **style)


def _draw(
    ax: Axes, part: pd.DataFrame, about: Mapping[str, str], styles: Mapping[str, tuple[str, str]], *, pairs: bool
) -> None:
    """styles : colour and marker of each domain, if points are pairs that can be told apart"""
    beside, seen = 0.015 * np.ptp(part["x"]), set[float]()
    for _, row in part.iterrows():
        colour, marker, x = COLOURS[0], MARKERS[0], float(row["x"])
        if styles:
            colour, marker = styles[row["domain"]][0], styles[row["trained_on"]][1]
        if pairs:  # the two directions of a pair have one distance
            x += beside if x in seen else -beside
            seen.add(float(row["x"]))
        point = ax.errorbar(
            x, row["value"], xerr=arms(row, "x", "x_low", "x_high"), yerr=arms(row, "value", "ci_low", "ci_high"),
            color=colour, marker=marker, markersize=8 if styles else 5, linestyle="none", elinewidth=0.8,
            markeredgecolor="white" if pairs else colour, markeredgewidth=0.4, alpha=1 if styles or not pairs else 0.6,
        )  # fmt: skip
        point[0].set_zorder(2.5)  # over its bars
        style: dict[str, Any] = {"fontsize": 6, "ha": "center", "va": "center_baseline", "color": ink_on(colour)}
        if styles:
            ax.text(x, row["value"], str(1 + list(styles).index(row["domain"])), **style).set_in_layout(False)
        elif not pairs:
            at, style = (x, row["value"]), {"textcoords": "offset points", "fontsize": 7, "color": INK}
            ax.annotate(row["domain"], at, (0, 0), parse_math=False, **style)
    of = metric_called(str(part["x_metric"].iloc[0])) if "x_metric" in part and part["x_metric"].any() else None
    measure = f"{of.title} ({of.unit})" if of and of.unit else of.title if of else "Distance"
    words = f"{measure} from {about['corpus']}" if about["corpus"] else f"{measure} of the two domains"
    ax.set_xlabel(wrapped(words, width_of(ax) - 0.5, 9), fontsize=9, color=INK, parse_math=False)
    ax.set_ylabel(_title(about["metric"]), fontsize=9, color=INK)
    if metric_called(about["metric"]).derived:
        ax.axhline(0, color="#888888", linewidth=0.8, zorder=1)
    ax.grid(color=FAINT, linewidth=0.4)
    ax.margins(0.12)
    bare(ax)


def _title(name: str) -> str:
    """The title of the vertical axis; differences are between the two regimes."""
    metric = metric_called(name)
    if metric.derived == "difference":
        return f"{metric_title(metric.of)}\ngained by fine-tuning"
    return metric.title if metric.derived == "lost" else metric_title(name)


def name_apart(figure: Figure, *, all_names: bool = True) -> None:
    """Place each name near its point so that it covers no point, interval or other name, if possible.

    All names are placed twice, because the first ones are placed before the others. Unless ``all_names``, those
    without a free place beside their point are left out.
    """
    from matplotlib.text import Annotation

    figure.draw_without_rendering()  # positions are known only after layout
    for ax in figure.axes:
        names = [t for t in ax.texts if isinstance(t, Annotation)]
        marks, placed = _marks(ax, [text.xy for text in names]), dict[int, Any]()
        for i, text in [*enumerate(names)] * (2 if all_names else 1):
            taken = [box for boxes in marks for box in boxes] + [box for j, box in placed.items() if j != i]
            y, scale = ax.transData.transform(text.xy)[1], 72 / figure.dpi
            over, under = ((edge - y) * scale for edge in (max(m.y1 for m in marks[i]), min(m.y0 for m in marks[i])))
            sides = ENDS if all_names else ENDS[:1]
            ends = [(x, way, to, va) for way, va in ((over + 1, "bottom"), (under - 1, "top")) for x, to in sides]
            boxes = []
            for dx, dy, ha, va in (places := [*PLACES[:4], *ends, *(PLACES[4:] if all_names else ())]):
                text.set(position=(dx, dy), ha=ha, va=va)
                box = text.get_window_extent()
                within = ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1 and ax.bbox.y0 <= box.y0 and box.y1 <= ax.bbox.y1
                boxes.append((3 * (not within) + box.count_overlaps(taken), box))
            best = min(range(len(places)), key=lambda k: boxes[k][0])
            if boxes[best][0] and not all_names:
                text.remove()
                continue
            dx, dy, ha, va = places[best]
            text.set(position=(dx, dy), ha=ha, va=va)
            placed[i] = boxes[best][1]


def _marks(ax: Axes, named: Sequence[tuple[float, float]]) -> list[list[Any]]:
    """The boxes of each point and its error bars, in pixels; first those of points with a name, in their order."""
    from matplotlib.container import ErrorbarContainer
    from matplotlib.transforms import Bbox

    found: list[list[Any]] = []
    bars = [bar for bar in ax.containers if isinstance(bar, ErrorbarContainer)]
    points = [np.asarray(bar.lines[0].get_xydata())[0] for bar in bars]
    first = [next(i for i, at in enumerate(points) if np.array_equal(at, xy, equal_nan=True)) for xy in named]
    for bar in [bars[i] for i in (*first, *(i for i in range(len(bars)) if i not in first))]:
        x, y = ax.transData.transform(bar.lines[0].get_xydata())[0]
        found.append([Bbox.from_bounds(x - 5, y - 5, 10, 10)])
        for arms in bar.lines[2]:
            (x0, y0), (x1, y1) = ax.transData.transform(arms.get_segments()[0])
            found[-1].append(Bbox.from_extents(x0 - 1, y0 - 1, x1 + 1, y1 + 1))
    return found


def arms(row: Any, value: str, low: str, high: str) -> np.ndarray | None:
    """The lengths of an error bar (2, 1), None without an interval; an interval may exclude its value."""
    arms = np.array([[row[value] - row[low]], [row[high] - row[value]]], dtype=np.float64)
    return None if np.isnan(arms).any() else np.maximum(arms, 0)


def _is_of(relation: Any, panel: Sequence[Any]) -> bool:
    return all(relation["of_metric" if c == "metric" else c] == value for c, value in zip(PANEL, panel, strict=True))


def _correlation(relation: Any, names: Mapping[str, str] = NAMES, *, interval: bool = True) -> str:
    """A correlation in words, with its interval and p."""
    name, value = names.get(relation["metric"], relation["metric"]), relation["value"]
    name += ADJUSTED.get(relation.get("adjust"), "")
    if np.isnan(value):
        return f"{name} undefined"
    low, high, p = relation["ci_low"], relation["ci_high"], relation["p"]
    between = f" [{low:.2f}, {high:.2f}]" if interval and not np.isnan(low) else ""
    return f"{name} {value:.2f}{between}, {p_equals(p)}".replace("-", "−")


def with_columns(rows: Any, *columns: str) -> pd.DataFrame:
    rows = with_series(plot_rows(rows))
    if rows.empty:
        raise UsageError("there are no rows to draw.")
    if missing := [c for c in columns if c not in rows]:
        raise UsageError(f"these rows lack the columns {', '.join(missing)}.")
    return rows.astype({c: "float64" for c in ("x", "x_low", "x_high") if c in columns})


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    points, correlations = relation_rows(rows, transfer=options.transfer)
    yield f"{metrics_of(points)}. Points: {'pairs of domains' if options.transfer else 'domains'}."
    if "x_metric" in points and points["x_metric"].any():
        yield f"Distance: {listed(within(metric_called(name).title) for name in points['x_metric'].dropna().unique())}."
    yield from sizes_of(points)
    if points["ci_low"].notna().any():
        yield f"Bars: {look.interval}s."
    elif points["x_low"].notna().any():
        yield f"Bars: {look.interval}s of the distance; the rows have none of the loss."
    if options.transfer:
        yield "The two directions of a pair have one distance and stand side by side."
    if len(correlations):
        yield f"In brackets: {look.interval}s of the correlations; p from permutations."
        yield from _others(correlations, look)


def _others(correlations: pd.DataFrame, look: Look) -> Iterator[str]:
    """The correlations that no panel prints, what an adjustment leaves out, and the limits of few points."""
    words: dict[str, list[str]] = {}
    for _, row in correlations[correlations["metric"] != correlations["metric"].iloc[0]].iterrows():
        series = look.shown(GAIN if metric_called(row["of_metric"]).derived == "difference" else row["series"])
        where = ", ".join(filter(None, (series, row["corpus"] and f"distance from {look.shown(row['corpus'])}")))
        words.setdefault(where, []).append(_correlation(row, interval=False))
    if words:
        yield f"Also: {'; '.join(f'{where}: {listed(own)}' for where, own in words.items())}."
    if "adjust" in correlations and (correlations["adjust"] == "effects").any():
        yield "Adjusted: without what each domain adds as training and as evaluation domain."
    if "caution" in correlations:
        yield from correlations["caution"].dropna().unique()


def relation_figure(
    rows: Any, *, transfer: bool = False, columns: int = 3, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot metrics by domain against the distance of the domain, with their correlation.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit table domains --rows-out wrote.
    transfer : bool
        As in :func:`relation_rows`.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Examples
    --------
    On the command line::

        probekit plot relation table6.parquet --out relation.pdf
        probekit plot relation table6.parquet --transfer
    """
    return relation_panels(
        *relation_rows(with_names(rows, look), transfer=transfer), columns=columns, width=width, look=look
    )


FIGURE = FigureKind(
    head="Metrics against the distance between domains, with their correlations.", draw=relation_figure, caption=caption
)
