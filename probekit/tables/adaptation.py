"""Ways to adapt a model, with their cost; the best of n trials of a search."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

from probekit.analysis import load
from probekit.display import shown_model
from probekit.errors import UsageError
from probekit.grid import Column, Grid
from probekit.metrics import metric

if TYPE_CHECKING:
    import pandas as pd

SETTINGS, LEGEND = "probekit.analyses.guidelines.tables:SETTINGS", "probekit.analyses.guidelines.tables:LEGEND"


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
    settings, legend = (load(place) for place in (SETTINGS, LEGEND))
    return [*(grid for grid, _ in settings(rows, {})), f"{legend}\n"]


BUDGETS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
KEY = ["task", "model", "regime", "head", "variant", "drawn"]


def expected_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """A line for each search with the expected dev metric of its best trial, by the number of trials.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``probekit search``.
    beside : str, optional
        Not used: there are no published numbers.

    Returns
    -------
    list of Grid or str
        The table, and its legend.
    """
    most = int(found["trials"].max())
    budgets = [n for n in BUDGETS if n < most] + [most]
    lines = []
    for key, part in found.groupby(KEY, sort=False):
        task, model, *more, drawn = map(str, key)
        by_trials = {row["trials"]: row for row in part.to_dict("records")}
        name = ", ".join([task, shown_model(model), *filter(None, more), f"drawn by {drawn}"])
        cells = [_expected(by_trials[n]) if n in by_trials else "" for n in budgets]
        lines.append([name, metric(str(part["metric"].iloc[0])).title, *cells])
    names = [Column("search", align="left", key=True), Column("metric", align="left")]
    return [
        Grid([*names, *(Column(f"{n}") for n in budgets)], lines),
        "Expected dev metric of the best of n trials ± its standard deviation (Dodge et al. 2019, with replacement), "
        "then the estimate without bias (Tang et al. 2020). Both assume independent trials, as with --sampler random. "
        "The numbers are of dev, on which the best trial is chosen.\n",
    ]


def _expected(row: Mapping[Hashable, Any]) -> str:
    return f"{row['value']:.3f} ± {row['sd']:.3f} ({row['unbiased']:.3f})"
