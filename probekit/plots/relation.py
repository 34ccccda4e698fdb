"""Does distance explain adaptation? A metric against distance, domain by domain, and what transfers to what."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.domains import WRITTEN
from probekit.plots.looks import COLOURS, FAINT, INK, MARKERS, SMALL, bare, lower_is_better, metric_title
from probekit.rows import make_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["relation_panels", "transfer_matrix", "transfer_panels"]

PANEL = ("task", "model", "corpus", "metric", "estimator")
NAMED = {"fine-tune - feature-extraction": "fine-tuning, gain"}
NAMES = {"pearson": "Pearson", "spearman": "Spearman", "kendall": "Kendall"}
WIDE, HIGH = 2.9, 2.6  # inches of a panel
PLACES = [  # of a name about its point, in points, the first that is free: beside, above, below
    *((5, 3, "left", "bottom"), (-5, 3, "right", "bottom"), (5, -3, "left", "top"), (-5, -3, "right", "top")),
    *((0, 12, "center", "bottom"), (0, -12, "center", "top"), (5, 12, "left", "bottom"), (-5, -12, "right", "top")),
]


def relation_panels(points: pd.DataFrame, relations: pd.DataFrame | None = None, *, columns: int = 3) -> Figure:
    """Draw values against distance: a panel for each corpus, metric and estimator (task, model); returns the Figure.

    points : rows with the own columns ``domain``, ``corpus`` (that distance is from; "" for none), ``x``, ``x_low`` and
        ``x_high`` (NaN for no interval). A point is a domain, named beside it, or with the column ``trained_on`` a pair
        of domains: its colour says what it was evaluated on, its shape what it was trained on.
    relations : rows of correlations to write above, metric "pearson", "spearman" or "kendall", with the own columns
        ``corpus``, ``of_metric`` (the points' metric) and ``p``
    There is no line: a few points do not determine one.
    Raises UsageError without rows, without one of these columns, and where a panel has two values for one point.
    """
    from matplotlib.figure import Figure

    points = _with(points, "domain", "corpus", "x", "x_low", "x_high")
    if relations is not None:
        relations = _with(relations, "corpus", "of_metric", "p")
    name = ["domain"] if "trained_on" not in points else ["trained_on", "domain"]
    if (twice := points.duplicated([*PANEL, *name])).any():
        raise UsageError(f"{' → '.join(points.loc[twice, name].iloc[0])} has two values; are these rows of two seeds?")
    panels = list(points.groupby(list(PANEL), sort=False))
    told = [c for c in ("task", "model") if points[c].nunique() > 1]
    across = min(columns, len(panels))
    down = -(-len(panels) // across)
    lines = 0 if relations is None else relations["metric"].nunique()
    size = (WIDE * across, (HIGH + 0.14 * lines) * down + 0.1)
    figure = Figure(figsize=size, layout="constrained")
    # the engine is the constrained one that was asked for above, which has paddings
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)  # type: ignore[union-attr,call-arg]
    axes = figure.subplots(down, across, squeeze=False).ravel()
    domains = points[name].melt()["value"].unique()
    looks = dict(zip(domains, cycle(zip(COLOURS, MARKERS, strict=True)), strict=False))
    for ax, (key, part) in zip(axes, panels, strict=False):
        about = dict(zip(PANEL, map(str, key), strict=True))
        _draw(ax, part, about, looks if len(name) > 1 else None)
        said = [] if relations is None else [_said(r) for _, r in relations.iterrows() if _is_of(r, about)]
        ax.text(0, 1.02, "\n".join(said), transform=ax.transAxes, fontsize=7, color="#666666", va="bottom")
        how = NAMED.get(about["estimator"], about["estimator"])
        title = ", ".join(filter(None, (*(about[c].rsplit("/", 1)[-1] for c in told), how)))
        ax.set_title(title, loc="left", pad=6 + 10 * lines, fontsize=10, fontweight="bold", color=INK, parse_math=False)
    for ax in axes[len(panels) :]:
        ax.remove()
    if len(name) > 1:
        _legend(figure, looks)
    else:
        _name_apart(figure)
    return figure


def _draw(ax: Axes, part: pd.DataFrame, about: Mapping[str, str], looks: Mapping[str, tuple[str, str]] | None) -> None:
    """looks : colour and marker of each domain, where points are of pairs"""
    for _, row in part.iterrows():
        colour, marker = (COLOURS[0], MARKERS[0])
        if looks is not None:
            colour, marker = looks[row["domain"]][0], looks[row["trained_on"]][1]
        ax.errorbar(
            row["x"], row["value"], xerr=_arms(row, "x", "x_low", "x_high"),
            yerr=_arms(row, "value", "ci_low", "ci_high"), color=colour, marker=marker, markersize=5,
            linestyle="none", elinewidth=0.8, alpha=0.85,
        )  # fmt: skip
        if looks is None:
            at = (row["x"], row["value"])
            ax.annotate(row["domain"], at, (0, 0), textcoords="offset points", fontsize=8, color=INK, parse_math=False)
    ax.set_xlabel(f"distance from {about['corpus']}" if about["corpus"] else "distance", fontsize=9, color=INK)
    ax.xaxis.label.set_parse_math(False)
    ax.set_ylabel(metric_title(about["metric"]), fontsize=9, color=INK)
    ax.grid(color=FAINT, linewidth=0.6)
    ax.margins(0.12)
    bare(ax)


def _legend(figure: Figure, looks: Mapping[str, tuple[str, str]]) -> None:
    """A domain's colour and shape in one mark."""
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=5) for colour, marker in looks.values()
    ]
    columns = max(2, int(figure.get_figwidth() / 1.15))
    figure.set_figheight(figure.get_figheight() + 0.2 + 0.17 * -(-len(looks) // columns))
    title = "colour: evaluated on; shape: trained on"
    drawn = figure.legend(
        marks, list(looks), loc="outside lower center", ncols=columns, title=title, title_fontsize=8, **SMALL
    )
    for text in drawn.get_texts():
        text.set_parse_math(False)


def _name_apart(figure: Figure) -> None:
    """Put each name beside its point where it covers no other point and no other name, if there is such a place."""
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # places are known when all is laid out
    for ax in figure.axes:
        names = [t for t in ax.texts if isinstance(t, Annotation)]
        taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in ax.transData.transform([t.xy for t in names])]
        for text in names:
            boxes = []
            for dx, dy, ha, va in PLACES:
                text.set(position=(dx, dy), ha=ha, va=va)
                box = text.get_window_extent()
                out = not (
                    ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1 and ax.bbox.y0 <= box.y0 and box.y1 <= ax.bbox.y1
                )
                boxes.append((out + box.count_overlaps(taken), box))
            best = min(range(len(PLACES)), key=lambda k: boxes[k][0])
            dx, dy, ha, va = PLACES[best]
            text.set(position=(dx, dy), ha=ha, va=va)
            taken.append(boxes[best][1])


def _arms(row: Any, value: str, low: str, high: str) -> np.ndarray | None:
    """Of an error bar (2, 1), None where there is no interval; an interval need not hold its value."""
    arms = np.array([[row[value] - row[low]], [row[high] - row[value]]], dtype=np.float64)
    return None if np.isnan(arms).any() else np.maximum(arms, 0)


def _is_of(relation: Any, about: Mapping[str, str]) -> bool:
    return all(relation["of_metric" if c == "metric" else c] == about[c] for c in PANEL)


def _said(relation: Any) -> str:
    name, value = NAMES.get(relation["metric"], relation["metric"]), relation["value"]
    if np.isnan(value):
        return f"{name} undefined"
    low, high, p = relation["ci_low"], relation["ci_high"], relation["p"]
    within = "" if np.isnan(low) else f" [{low:.2f}, {high:.2f}]"
    return f"{name} {value:.2f}{within}, p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}"


def transfer_matrix(
    rows: pd.DataFrame, *, metric: str | None = None, limits: tuple[float, float] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw what training on one domain is worth on each other as a heat map into ``ax``; returns the Axes.

    rows : of one estimator, with the own columns ``trained_on``, down the side, and ``domain``, evaluated on, along the
        bottom. Frames mark what was evaluated on the domain it was trained on. Up to 12 domains have numbers.
    metric : the rows' first for None; limits : of the colours, those of the values for None; ax : a new figure's for
        None. Nothing is shown or saved.
    Raises UsageError for several estimators, a metric that is not there, and two values for one pair.
    """
    import matplotlib as mpl
    from matplotlib.patches import Rectangle

    rows, metric = _of_metric(rows, metric)
    if len(several := rows["estimator"].unique()) > 1:
        raise UsageError(f"transfer_matrix draws one estimator, these are {', '.join(several)}; see transfer_panels.")
    if (twice := rows.duplicated(["trained_on", "domain"])).any():
        pair = rows.loc[twice, ["trained_on", "domain"]].iloc[0]
        raise UsageError(f"{' → '.join(pair)} has two values; are these rows of two seeds?")
    columns, trained = list(rows["domain"].unique()), set(rows["trained_on"])
    down = [*(c for c in columns if c in trained), *(t for t in rows["trained_on"].unique() if t not in columns)]
    values = rows.pivot(index="trained_on", columns="domain", values="value").loc[down, columns].to_numpy()
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(0.55 * len(columns) + 2.2, 0.5 * len(down) + 1.4), layout="constrained")[1]
    colours = mpl.colormaps["viridis_r" if lower_is_better(metric) else "viridis"].with_extremes(bad="white")
    low, high = limits or (None, None)
    image = ax.imshow(np.ma.masked_invalid(values), cmap=colours, vmin=low, vmax=high)
    if max(values.shape) <= WRITTEN:
        for i, j in np.argwhere(~np.isnan(values)):
            dark = np.dot(image.to_rgba(values[i, j])[:3], (0.299, 0.587, 0.114)) < 0.5
            ax.text(j, i, f"{values[i, j]:.3f}", ha="center", va="center", fontsize=7, color="white" if dark else INK)
    for i, name in enumerate(down):
        if name in columns:
            at = (columns.index(name) - 0.46, i - 0.46)
            ax.add_patch(Rectangle(at, 0.92, 0.92, facecolor="none", edgecolor=COLOURS[1], linewidth=1.6))
    ax.set_xticks(range(len(columns)), columns, rotation=45, ha="right", rotation_mode="anchor", parse_math=False)
    ax.set_yticks(range(len(down)), down, parse_math=False)
    ax.set_xlabel("evaluated on", fontsize=9, color=INK)
    ax.set_ylabel("trained on", fontsize=9, color=INK)
    title = rows["estimator"].iloc[0]
    ax.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK, parse_math=False)
    bare(ax, ())
    if limits is None:
        _bar(ax.figure, image, metric, ax)
    return ax


def transfer_panels(rows: pd.DataFrame, *, metric: str | None = None) -> Figure:
    """One :func:`transfer_matrix` an estimator (task, model), side by side on one scale of colours; the Figure."""
    from matplotlib.figure import Figure

    rows, metric = _of_metric(rows, metric)
    parts = list(rows.groupby(["task", "model", "estimator"], sort=False))
    told = [c for c in ("task", "model") if rows[c].nunique() > 1]
    limits = (float(rows["value"].min()), float(rows["value"].max()))
    across, down = (rows[c].nunique() for c in ("domain", "trained_on"))
    size = ((0.55 * across + 1.2) * len(parts) + 1, 0.5 * down + 1.6)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(parts), squeeze=False)[0]
    for ax, (_, part) in zip(axes, parts, strict=True):
        transfer_matrix(part, metric=metric, limits=limits, ax=ax)
        if told:
            over = ", ".join(str(part[c].iloc[0]).rsplit("/", 1)[-1] for c in told)
            ax.set_title(f"{over}\n{part['estimator'].iloc[0]}", loc="left", fontsize=10, fontweight="bold", color=INK)
    _bar(figure, axes[-1].images[0], metric, list(axes))
    return figure


def _bar(figure: Any, image: Any, metric: str, of: Any) -> None:
    bar = figure.colorbar(image, ax=of, pad=0.03, aspect=18)
    bar.outline.set_visible(False)
    bar.set_label(metric_title(metric), fontsize=8, color=INK)
    bare(bar.ax, ())


def _of_metric(rows: pd.DataFrame, metric: str | None) -> tuple[pd.DataFrame, str]:
    rows = _with(rows, "trained_on", "domain")
    known = list(rows["metric"].unique())
    if metric not in (None, *known):
        raise UsageError(f"there is no {metric} in these rows, only {', '.join(known)}.")
    metric = metric or str(known[0])
    return rows[rows["metric"] == metric], metric


def _with(rows: pd.DataFrame, *columns: str) -> pd.DataFrame:
    if rows.empty:
        raise UsageError("there are no rows to draw.")
    rows = make_rows(rows)
    if missing := [c for c in columns if c not in rows]:
        raise UsageError(f"these rows lack the columns {', '.join(missing)}.")
    return rows.astype({c: "float64" for c in ("x", "x_low", "x_high", "p") if c in columns})
