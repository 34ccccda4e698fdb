"""Tables of guidelines: the preferred regime of each task, or the numbers of each setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from probekit.display import p_value, shown_label
from probekit.grid import Column, Grid
from probekit.view import Cells, Options, View, bracketed, lines_of

if TYPE_CHECKING:
    import pandas as pd

COSTS = {
    "trained-parameters": ("trained weights", 1.0, ",.0f"), "cpu-seconds": ("CPU time (s)", 1.0, ",.1f"),
    "peak-memory": ("peak memory (MiB)", 2.0**20, ",.0f"),
}  # fmt: skip
"""Title, unit and format of each cost."""
LEGEND = (
    "Means over training seeds; in brackets 95 % intervals over examples and seeds; Δ from the reference (line without "
    "Δ), paired over examples; p with Holm's correction over all comparisons. Costs are medians over seeds; CPU time "
    "of feature extraction is without its caches."
)


def _lined(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each number of training examples and setting."""
    rows = rows.sort_values("examples", kind="stable")
    return rows.assign(line=lines_of(rows["examples"].map("{:,.0f}".format), rows["variant"]))


def _failed(row: Mapping[str, Any]) -> str:
    return f"{round(row['value'] * row['runs'])}/{row['runs']:.0f}"


def _cost(row: Mapping[str, Any]) -> str:
    _, unit, form = COSTS[row["metric"]]
    return format(row["value"] / unit, form)


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    """Metric, difference from the reference and costs."""
    main = str(rows["metric"].iloc[0])
    change = f"difference({main})"
    yield Cells(main, main, form=partial(bracketed, form=".3f"))
    yield Cells("sd", main, "sd", dim=True, optional=2)
    yield Cells("failed", "failed-runs", form=_failed, dim=True, optional=3)
    yield Cells("Δ", change, form=partial(bracketed, form="+.3f"))
    yield Cells("p", change, "p_adjusted", "p")
    yield Cells("finding", change, "finding", form=lambda row: str(row["finding"]), align="left")
    for cost, (title, *_) in COSTS.items():
        yield Cells(title, cost, form=_cost)


SETTINGS = View(
    _cells,
    title=lambda rows, options: "",
    each=("task", "model"),
    keys=(Column("examples", key=True, label=True), Column("setting", align="left", key=True)),
    lined=_lined,
)


def tables(rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
    """The tables; below the last one the caveats, each with its tasks, and a sentence for each model."""
    from probekit.analyses.guidelines.sentences import overview

    several = "reference" in rows
    grids = [grid for grid, _ in SETTINGS(rows, options)] if several else [_regimes(rows)]
    names = rows["task"]
    if not several and rows["model"].nunique() > 1:
        names = names + ", " + rows["model"].map(shown_label)
    caveats = names[rows["caveat"].fillna("") != ""].groupby(rows["caveat"], sort=False)
    notes = [LEGEND] if several else []
    notes += [f"{', '.join(dict.fromkeys(of))}: {caveat}" for caveat, of in caveats]
    yield from ((grid, []) for grid in grids[:-1])
    yield grids[-1], [*notes, "", *overview(rows)]


def _regimes(rows: pd.DataFrame) -> Grid:
    """A line for each task and model."""
    columns = [
        Column("task", align="left", key=True),
        Column("model", align="left", key=True, label=True),
        Column("prefer", align="left"),
        Column("confidence", align="left"),
        *map(Column, ("difference", "95 % interval", "p")),
    ]
    lines = []
    for row in rows.to_dict("records"):
        value, low, high, p = (row[key] for key in ("value", "ci_low", "ci_high", "p_adjusted"))
        numbers = [f"{value:+.3f}", f"{low:+.3f} – {high:+.3f}", p_value(p)] if isfinite(p) else [""] * 3
        lines.append([row["task"], shown_label(row["model"]), row["prefer"], row["confidence"], *numbers])
    return Grid(columns, lines)
