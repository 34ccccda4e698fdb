"""Feature extraction and fine-tuning by task: Tables 2 to 5 of Peters, Ruder & Smith (2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.display import shown_model
from probekit.grid import Column, Grid
from probekit.tables.cells import LINES, by_label, cell, is_difference, legend
from probekit.tables.papers import published

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["regime_table"]


def regime_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """Feature extraction, fine-tuning and their difference by task, a line for each variant of the runs.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.regimes``.
    beside : str, optional
        Name of published numbers, such as "peters-2019/2".

    Returns
    -------
    list of Grid or str
        The table, and its legend.
    """
    paper = None if beside is None else published(beside)
    tasks = list(dict.fromkeys(found["task"]))
    alone = [] if paper is None or paper["task"].isin(tasks).any() else list(dict.fromkeys(paper["task"]))
    lines: list[list[str]] = []
    for (model, variant), part in found.groupby(["model", "variant"], sort=False):
        name = ", ".join(filter(None, (shown_model(str(model)), str(variant))))
        for label, runs in by_label(part.assign(variant="")):
            lines.append([name, label, *(cell(runs[runs["task"] == task]) for task in tasks), *[""] * len(alone)])
    lines += [] if paper is None else _published(paper, [*tasks, *alone])
    metrics = found[~is_difference(found)].drop_duplicates("task").set_index("task")
    heads = [f"{t} ({metrics.loc[t, 'metric']}, {metrics.loc[t, 'split']})" for t in tasks]
    heads += [f"{t} ({_first(paper, t, 'metric')}, {_first(paper, t, 'split')}, published)" for t in alone]
    keys = [Column("model", align="left", key=True, label=True), Column("× 100", align="left", key=True)]
    return [Grid([*keys, *map(Column, heads)], lines), legend(found, beside)]


def _published(paper: pd.DataFrame, tasks: Sequence[str]) -> Iterator[list[str]]:
    """Lines of published numbers; differences only where the paper's text has them."""
    for (model, variant, row), part in paper.groupby(["model", "variant", "row"], sort=False):
        values = dict(zip(part["task"], part["value"], strict=True))
        shape = "{:+.1f}" if row == "difference" else "{:.1f}"
        cells = [shape.format(values[task]) if task in values else "" for task in tasks]
        if any(cells):
            name = ", ".join(filter(None, (str(model), str(variant), "published")))
            yield [f"*{name}*", f"*{LINES.get(str(row), str(row))}*", *cells]


def _first(paper: pd.DataFrame | None, task: str, column: str) -> str:
    """The value that a column has for a published task."""
    return "" if paper is None else str(paper.loc[paper["task"] == task, column].iloc[0])
