"""Do cheap scores foretell results on target tasks? Their rank correlations, as a heat map and as means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.display import shown_score
from probekit.plots.curves import of_one
from probekit.plots.legends import add_legend, legend_of
from probekit.plots.look import COLOURS, FAINT, INK, Look
from probekit.plots.matrix import MISSING, Cells, colour_bar, draw_cells, frame_cell, name_cells, short, write_cells
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import PAGE, bare, new_figure
from probekit.plots.relation import arms
from probekit.tasks.load import shown_task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = ["score", "score_task"]
MEAN = "glue"
LINE = 0.24
"""Height of a line in inches."""


def score_rows(rows: Any) -> pd.DataFrame:
    """Return the correlations that :func:`score_panels` draws, with the display name of each score in ``label``.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that ``probekit table score-correlations --rows-out`` writes.

    Returns
    -------
    DataFrame
        The scores by their mean correlation, the largest first.

    Raises
    ------
    UsageError
        If the rows contain no correlations of scores.
    """
    lacking = (
        "the rows contain no correlations of scores; expected those that probekit table score-correlations ROWS… "
        "--rows-out FILE writes."
    )
    rows = of_one(rows, "score-correlations", lacking)
    label = [shown_score(score, shown_task(task)) for score, task in rows[NAME].astype(str).itertuples(index=False)]
    mean = rows["value"].where(rows["task"] == MEAN).groupby([rows[key] for key in NAME]).transform("max")
    return rows.assign(label=label).loc[mean.sort_values(ascending=False, kind="stable").index]


def score_panels(rows: Any, *, level: float = 0.05, width: float | None = None, look: Look | None = None) -> Figure:
    """Plot how well scores of encoders foretell their results: a cell for each score and target task, and the mean.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit table score-correlations wrote (.parquet, .csv).
    level : float
        Threshold for the corrected p-values.
    width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw the correlations of scores with target results: a cell for each target, and the mean with its interval.

    A cell has a frame where p, corrected over all scores and targets, is at most ``level``; the marker of a mean is
    hollow where p, corrected over the scores, is above it.

    Examples
    --------
    On the command line::

        probekit table score-correlations 'rows/*.parquet' 'runs/*/rows.parquet' --rows-out foretold.parquet
        probekit plot score-correlations foretold.parquet --out foretold.pdf
    """
    rows, look = score_rows(rows), look or Look()
    labels = list(dict.fromkeys(rows["label"]))
    means = rows[rows["task"] == MEAN].set_index("label").loc[labels]
    cells = rows[rows["task"] != MEAN]
    tasks = list(dict.fromkeys(cells["task"]))
    values, p = (
        cells.pivot_table(c, "label", "task", dropna=False).reindex(index=labels, columns=tasks).to_numpy(dtype=float)
        for c in ("value", "p_adjusted")
    )
    whole = width or min(PAGE, 1.9 + 0.42 * len(tasks) + 2.2)
    side = 0.24 * whole
    fit = Cells.of(1, 1, len(tasks), labels, whole - side, 0.42)
    figure = new_figure((whole, 1.0 + LINE * len(labels)), "constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(whole - side, side))
    image = draw_cells(left, values, "spearman", limits=(-1, 1), centre=0)
    write_cells(image, values, short, lambda value: short(value, digits=1), cell=fit.cell)
    if np.isnan(values).any():
        i, j = np.isnan(values).nonzero()
        left.plot(j, i, "x", color=INK, markersize=4, markeredgewidth=0.8, linestyle="none", label=MISSING)
    for i, j in np.argwhere(p <= level):
        frame_cell(left, i, j, f"p ≤ {level:g}, over all cells")
    name_cells(left, labels, [look.task(task) for task in tasks], fit.side, LINE, fit.cell)
    _draw_means(right, means, level, look)
    colour_bar(image, "Spearman's ρ over encoders", [left, right])
    add_legend(figure, legend_of([left, right]), look)
    return figure


def _draw_means(ax: Axes, means: pd.DataFrame, level: float, look: Look) -> None:
    for i, (_, row) in enumerate(means.iterrows()):
        known = row["p_adjusted"] <= level
        ax.errorbar(
            row["value"], i, xerr=arms(row, "value", "ci_low", "ci_high"), color=COLOURS[0], marker="o", markersize=4.5,
            markerfacecolor=COLOURS[0] if known else "white", elinewidth=1, linestyle="none",
            label=f"mean with {look.interval}{'' if known else f' (corrected p > {level:g})'}",
        )  # fmt: skip
    ax.axvline(0, color="#888888", linewidth=0.7)
    ax.set_xlim(-1, 1)
    ax.grid(axis="x", color=FAINT, linewidth=0.6)
    ax.set_xlabel("Mean over\ntargets", fontsize=8, color=INK)
    bare(ax, ("bottom",))
    ax.tick_params(axis="y", length=0, labelleft=False)


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    found = score_rows(rows)
    counts = " to ".join(map(str, sorted({int(found["n"].min()), int(found["n"].max())})))
    yield f"Spearman's correlation over {counts} encoders; scores by their mean over targets."
    if len(set(found["task"])) * found["label"].nunique() > len(found.dropna(subset="value")):
        yield "Crossed cells: no value."
    framed = (found["task"] != MEAN) & (found["p_adjusted"] <= options.level)
    yield (
        f"{'Framed cells: p of' if framed.any() else 'No cell has a p of'} at most {options.level:g}, corrected over "
        "all scores and targets."
    )
    yield (
        "The mean over targets is of the encoders that all targets have, so it is not the mean of the cells. "
        f"Bars: {look.interval}s of the mean over targets, from resampled encoders; hollow markers: p > "
        f"{options.level:g}, corrected over scores. Permutations and resamples keep the targets of an encoder together."
    )


FIGURE = FigureKind(
    head="Rank correlations of scores of encoders with their results on target tasks.",
    draw=score_panels,
    caption=caption,
)
