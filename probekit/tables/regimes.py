"""Feature extraction and fine-tuning by task: Tables 2 to 5 of Peters, Ruder & Smith (2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from probekit.tables.cells import LINES, REGIMES, by_label, cell, is_difference, legend, markdown
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
    tasks = list(dict.fromkeys(found["task"]))
    lines: list[list[str]] = []
    for (model, variant), part in found.groupby(["model", "variant"], sort=False):
        called = ", ".join(filter(None, (str(model), str(variant))))
        for label, own in by_label(part.assign(variant="")):
            lines.append([called, label, *(cell(own[own["task"] == task]) for task in tasks)])
    lines += [] if beside is None else _published(beside, tasks)
    metrics = found[~is_difference(found)].drop_duplicates("task").set_index("task")
    splits = [f"{t} ({metrics.loc[t, 'metric']}, {metrics.loc[t, 'split']})" for t in tasks]
    return markdown(["model", "× 100", *splits], lines) + "\n" + legend(found, beside)


def _published(beside: str, tasks: Sequence[str]) -> Iterator[list[str]]:
    """Lines of published numbers."""
    for model, own in published(beside).astype({"model": str}).groupby("model", sort=False):
        values = own.pivot_table(index="task", columns="row", values="value")[list(dict.fromkeys(own["row"]))]
        if {*REGIMES} <= {*values}:
            values["difference"] = values["fine-tune"] - values["feature-extraction"]
        for row in map(str, values):
            of = values[row]
            shape = "{:+.1f}" if row == "difference" else "{:.1f}"
            cells = [shape.format(of[task]) if task in of and isfinite(of[task]) else "" for task in tasks]
            if any(cells):
                yield [f"*{model!s}, published*", f"*{LINES.get(row, row)}*", *cells]
