"""Results on a diagnostic set by category: Table 6 of Bowman et al. (2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probekit.display import shown_model
from probekit.grid import Column, Grid
from probekit.tables.cells import cell, legend
from probekit.tables.papers import published

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["diagnostic_table"]


def diagnostic_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """A line for each encoder with its results by category.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.encoders.diagnostic_scores``.
    beside : str, optional
        Published numbers: "bowman-2018/6".

    Returns
    -------
    list of Grid or str
        The table, and its legend.
    """
    tasks = sorted(dict.fromkeys(found["task"]), key=lambda task: (":" in task, task))
    categories = [task.partition(":")[2] for task in tasks]
    lines = []
    for (model, variant), part in found.groupby(["model", "variant"], sort=False):
        name = ", ".join(filter(None, (shown_model(str(model)), str(variant))))
        lines.append([name, *(cell(part[part["task"] == task]) for task in tasks)])
    if beside is not None:
        for (model, variant), part in published(beside).groupby(["model", "variant"], sort=False):
            values = dict(zip(part["task"], part["value"], strict=True))
            name = ", ".join(filter(None, (str(model), str(variant), "published")))
            lines.append([f"*{name}*", *(f"{values[c]:.1f}" if c in values else "" for c in categories)])
    names = [Column(category or "all") for category in categories]
    two = any(task.startswith("ax-b") for task in tasks)
    measure = (
        "Matthews correlation of two classes, entailment and not_entailment, which is not comparable with R3 of three."
        if two
        else "R3, the correlation of three classes (Gorodkin 2004)."
    )
    return [
        Grid([Column("model (× 100)", align="left", key=True), *names], lines),
        f"{measure} {legend(found, beside)}",
    ]
