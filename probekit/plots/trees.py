"""Models as trees, by the similarity of their layers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.display import shown_label
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.caption import listed, metrics_of, sizes_of
from probekit.plots.curves import of_analyses, plot_rows
from probekit.plots.look import Look
from probekit.plots.matrix import (
    axes_or_new,
    colour_bar,
    digits_of,
    draw_cells,
    draw_tree,
    name_cells,
    short,
    write_cells,
)
from probekit.plots.options import FigureKind, inches
from probekit.plots.panels import dress, new_figure, width_of
from probekit.plots.similarity import PAIR, of_similarity, state_name
from probekit.rows import layer_labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from probekit.plots.options import PlotOptions

LEAF, BESIDE = 0.3, 5.0
"""Height of a leaf, and the width of a figure from which on distances are beside the tree, in inches."""


def similarity_tree(rows: Any, *, metric: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw models as a dendrogram: average linkage of 1 minus the mean similarity of their same layers.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.similarity` with ``against="all"``, of three or more models with the same layers.
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
        If a pair of models is missing, or has no layer in common.

    References
    ----------
    Average linkage (Sokal & Michener 1958), as implemented in SciPy.
    """
    rows = of_similarity(plot_rows(rows), metric)
    names, distances = _of_models(rows)
    ax = axes_or_new(ax, 4.2, 0.3 * len(names) + 1)
    draw_tree(ax, names, distances, _distance_of(rows))
    return ax


def _of_models(rows: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """The names of three or more models, and their distances."""
    names, distances = _distances(rows, alike=bool(metric_called(str(rows["metric"].iloc[0])).alike))
    if len(names) < 3:
        raise UsageError(f"a tree needs three or more models, not {len(names)}.")
    return names, distances


def _distance_of(rows: pd.DataFrame) -> str:
    measure = metric_called(str(rows["metric"].iloc[0]))
    return f"1 − mean {measure.title} of the same layers" if measure.alike else measure.title


def _distances(rows: pd.DataFrame, *, alike: bool) -> tuple[list[str], np.ndarray]:
    """The names of models, and the mean distances of their same layers."""
    same = rows[rows["layer_name"] == rows["layer_b_name"]]
    names: dict[str, int] = {}
    shared = [c for c in ("model", "representation") if len({*rows[c], *rows[f"{c}_b"]}) == 1]
    known = same[list(PAIR)].astype("string").fillna("")
    one = {tuple(row) for row in (*known[list(PAIR[:4])].to_numpy(), *known[list(PAIR[4:])].to_numpy())}
    if len({model for model, *_ in one}) == len(one):  # the names of models say all
        shared = list(PAIR[1:4])
    values: dict[tuple[int, int], list[float]] = {}
    for row in same.to_dict("records"):
        a, b = (state_name({c: None if c in shared else row[c + end] for c in PAIR[:4]}) for end in ("", "_b"))
        if a != b:
            first, second = sorted((names.setdefault(a, len(names)), names.setdefault(b, len(names))))
            values.setdefault((first, second), []).append(row["value"])
    distances = np.zeros((len(names), len(names)))
    for i, j in zip(*np.triu_indices(len(names), 1), strict=True):
        mean = np.mean(values.get((int(i), int(j)), [np.nan]))
        if not np.isfinite(mean):
            raise UsageError(
                "a tree needs a value for every pair of models; compare all pairs: probekit similarity A.h5 B.h5 C.h5 "
                "… --against all."
            )
        distances[i, j] = distances[j, i] = max(0.0, float(1 - mean if alike else mean))
    return list(names), distances


def similarity_trees(
    rows: Any, *, metric: str | None = None, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot models as a tree by the similarity of their layers.

    The distance of two models is 1 minus the mean similarity of their same layers; clusters are joined by average
    linkage.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit similarity --against all wrote (.parquet, .csv).
    metric, width, look
        As in :func:`similarity_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw one :func:`similarity_tree` per task, one below the other.

    Examples
    --------
    On the command line::

        probekit similarity a.h5 b.h5 c.h5 d.h5 --against all --out models.parquet
        probekit plot dendrogram models.parquet --out models.pdf
    """
    look, rows = look or Look(), of_analyses(plot_rows(rows), "similarity")
    tasks = [part for _, part in rows.groupby("task", sort=False)]
    if not tasks:
        raise UsageError("there are no rows of probekit similarity to draw.")
    found = [of_similarity(part, metric) for part in tasks]
    heights = [LEAF * len(_of_models(part)[0]) + 1.2 for part in found]
    page, both = look.of_heights(heights), (width or 0.0) >= BESIDE
    found, heights = [found[i] for i in page], [heights[i] for i in page]
    figure = new_figure((width or 4.2, sum(heights)), "constrained")
    grid: dict[str, Any] = {"squeeze": False, "height_ratios": heights}
    for (ax, *right), part in zip(figure.subplots(len(found), 1 + both, **grid), found, strict=True):
        names, distances = _of_models(part)
        dress(ax, part, ylabel="", how=_one_model(part, look), look=look)
        ax.grid(visible=False)
        leaves = draw_tree(ax, names, distances, _distance_of(part), numbers=both)
        for other in right:
            _draw_distances(other, distances, leaves, _distance_of(part))
    return figure


def _draw_distances(ax: Axes, distances: np.ndarray, leaves: list[int], title: str) -> None:
    """Draw the distances beside a tree, in the order of its leaves."""
    cells = distances[np.ix_(leaves, leaves[::-1])]
    cells[range(len(leaves)), range(len(leaves) - 1, -1, -1)] = np.nan
    image = draw_cells(ax, cells, "js-distance", limits=(0.0, None), from_below=True)
    cell = (width_of(ax) - 1.0) / len(leaves)
    write_cells(image, cells, partial(short, digits=digits_of(cells)), short, cell=cell)
    name_cells(ax, [""] * len(leaves), [str(i + 1) for i in range(len(leaves))], 0.1, LEAF, cell)
    colour_bar(image, title, room=LEAF * len(leaves))


def _one_model(rows: pd.DataFrame, look: Look) -> str:
    """The name of the model, if all are states of one."""
    names = {*rows["model"], *rows["model_b"]}
    return look.shown(shown_label(str(names.pop()))) if len(names) == 1 else ""


def tree_caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    rows = rows[rows["analysis"] == "similarity"]
    rows = rows[rows["metric"] == (options.metric or rows["metric"].iloc[0])]
    same = (rows["layer"].fillna(-1) == rows["layer_b"].fillna(-1)) & (rows["site"] == rows["site_b"])
    names = list(dict.fromkeys(map(str, layer_labels(rows[same.astype(bool)]))))
    layers = f"{len(names)} layers, {names[0]} to {names[-1]}" if len(names) > 4 else listed(names)
    if model := _one_model(rows, look):
        yield f"Model: {model}."
    yield f"Distance: 1 minus the mean {metrics_of(rows)} of the same layers ({layers}), without an interval."
    if (inches(options.width) or 0.0) >= BESIDE:
        yield "Right: the distances, in the order of the tree; light is larger."
    yield from sizes_of(rows)


TREES = FigureKind(
    head="Models by the similarity of their layers (average linkage).",
    draw=similarity_trees,
    caption=tree_caption,
    metric="Measure of similarity, such as cka; by default the rows' first.",
)
