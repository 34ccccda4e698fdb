"""Ways to adapt a model: metric, difference from the reference, and cost of each setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probekit.analysis import load
from probekit.errors import UsageError
from probekit.grid import Grid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["adaptation_table"]

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
