"""Feature extraction and fine-tuning by task: Tables 2 to 5 of Peters, Ruder & Smith (2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.tables.cells import LINES, by_label, cell, is_difference, legend, markdown
from probekit.tables.papers import published

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["regime_table"]


def regime_table(found: pd.DataFrame, beside: str | None = None) -> str:
    """Feature extraction, fine-tuning and their difference by task, a line for each variant of the runs.

    Parameters
    ----------
    found : pd.DataFrame
        Of ``analyses.regimes``.
    beside : str, optional
        Published numbers.
    """
    told = None if beside is None else published(beside)
    tasks = list(dict.fromkeys(found["task"]))
    alone = [] if told is None or told["task"].isin(tasks).any() else list(dict.fromkeys(told["task"]))
    lines: list[list[str]] = []
    for (model, variant), part in found.groupby(["model", "variant"], sort=False):
        called = ", ".join(filter(None, (str(model), str(variant))))
        for label, own in by_label(part.assign(variant="")):
            lines.append([called, label, *(cell(own[own["task"] == task]) for task in tasks), *[""] * len(alone)])
    lines += [] if told is None else _published(told, [*tasks, *alone])
    metrics = found[~is_difference(found)].drop_duplicates("task").set_index("task")
    heads = [f"{t} ({metrics.loc[t, 'metric']}, {metrics.loc[t, 'split']})" for t in tasks]
    heads += [f"{t} ({_one(told, t, 'metric')}, {_one(told, t, 'split')}, published)" for t in alone]
    return markdown(["model", "× 100", *heads], lines) + "\n" + legend(found, beside)


def _published(told: pd.DataFrame, tasks: Sequence[str]) -> Iterator[list[str]]:
    """Lines of published numbers, as they were published: differences only where the paper's text has them."""
    for (model, variant, row), own in told.groupby(["model", "variant", "row"], sort=False):
        values = dict(zip(own["task"], own["value"], strict=True))
        shape = "{:+.1f}" if row == "difference" else "{:.1f}"
        cells = [shape.format(values[task]) if task in values else "" for task in tasks]
        if any(cells):
            called = ", ".join(filter(None, (str(model), str(variant), "published")))
            yield [f"*{called}*", f"*{LINES.get(str(row), str(row))}*", *cells]


def _one(told: pd.DataFrame | None, task: str, column: str) -> str:
    """What a column says of a published task."""
    return "" if told is None else str(told.loc[told["task"] == task, column].iloc[0])
