"""Ways to adapt a model: metric, difference from the reference, and cost of each setting."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from probekit.display import shown_model
from probekit.errors import UsageError
from probekit.grid import Column, Grid
from probekit.tables.cells import interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["adaptation_table"]

COSTS = {
    "trained-parameters": ("trained weights", 1.0, "{:,.0f}"), "cpu-seconds": ("CPU time (s)", 1.0, "{:,.1f}"),
    "peak-memory": ("peak memory (MiB)", 2.0**20, "{:,.0f}"),
}  # fmt: skip
"""Title, unit and format of each cost."""


def adaptation_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """A table for each task and model, with a line for each setting and number of training examples.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``probekit guidelines`` for several settings.
    beside : str, optional
        Not used: there are no published numbers.

    Returns
    -------
    list of Grid or str
        The tables, and their legend.

    Raises
    ------
    UsageError
        If the rows compare only two regimes.
    """
    rows = found[found["analysis"] == "guidelines"]
    rows = rows[rows["reference"].notna()] if "reference" in rows else rows[:0]
    if rows.empty:
        raise UsageError(
            "the rows compare no settings; give those of probekit guidelines with runs of several settings, or use the "
            "table regimes."
        )
    parts: list[Grid | str] = [_grid(part) for _, part in rows.groupby(["task", "model"], sort=False)]
    return [
        *parts,
        "Means over training seeds; in brackets 95 % intervals over examples and seeds; Δ from the reference (line "
        "without Δ), paired over examples; p with Holm's correction over all comparisons. Costs are medians over "
        "seeds; CPU time of feature extraction is without its caches.\n",
    ]


def _grid(rows: pd.DataFrame) -> Grid:
    """The settings of a task and a model."""
    first = rows.iloc[0]
    main = str(first["metric"])
    lines = []
    for (size, name), part in rows.sort_values("examples", kind="stable").groupby(["examples", "variant"], sort=False):
        by_metric = {row["metric"]: row for row in part.to_dict("records")}
        metric, failed = by_metric[main], by_metric["failed-runs"]
        value = interval(metric["value"], metric["ci_low"], metric["ci_high"], "{:.3f}")
        spread = f"{metric['sd']:.3f}" if isfinite(metric["sd"]) else ""
        difference = by_metric.get(f"difference({main})")
        change = [""] * 3
        if difference is not None:
            p = difference["p_adjusted"]
            shown = interval(difference["value"], difference["ci_low"], difference["ci_high"], "{:+.3f}")
            change = [shown, f"{p:.3f}" if isfinite(p) else "", str(difference["finding"])]
        costs = [
            shape.format(by_metric[kind]["value"] / unit) if kind in by_metric else ""
            for kind, (_, unit, shape) in COSTS.items()
        ]
        runs = int(failed["runs"])
        lines.append(
            [f"{size:,.0f}", str(name), value, spread, f"{round(failed['value'] * runs)}/{runs}", *change, *costs]
        )
    columns = [
        Column("examples", key=True, label=True), Column("setting", align="left", key=True), Column(main),
        Column("sd", dim=True, optional=2), Column("failed", dim=True, optional=3), Column("Δ"), Column("p"),
        Column("finding", align="left"), *(Column(title) for title, *_ in COSTS.values()),
    ]  # fmt: skip
    return Grid(columns, lines, title=f"{first['task']} {first['split']}, {shown_model(str(first['model']))}")
