"""Mixtures of tasks by sampling and loss scaling: Tables 4 and 5 of Bowman et al. (2018)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from probekit.tables.grid import Column, Grid
from probekit.tables.papers import citation, published

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mixture_table"]


def mixture_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """The mean result of each mixture on its own dev splits, a line for each mixture and sampling.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.encoders.mixture_scores``.
    beside : str, optional
        Published numbers: "bowman-2018/4" or "bowman-2018/5".

    Returns
    -------
    list of Grid or str
        The table with a column for each loss scaling, and its legend.
    """
    at = {(row["task"], row["sampling"], row["scaling"]): row for row in found.to_dict("records")}
    samplings, scalings = (list(dict.fromkeys(found[key])) for key in ("sampling", "scaling"))
    lines = []
    for on in dict.fromkeys(found["task"]):
        for sampling in samplings:
            cells = [_cell(at.get((on, sampling, scaling))) for scaling in scalings]
            if any(cells):
                lines.append([", ".join(on.split("+")), sampling, *cells])
    if beside is not None:
        for (how, model), part in published(beside).groupby(["row", "model"], sort=False):
            lines.append(
                [f"*{model}, published: {how}*", "", f"*{part['value'].iloc[0]:.1f}*", *[""] * (len(scalings) - 1)]
            )
    keys = [Column("mixture (× 100)", align="left", key=True), Column("sampling", align="left", key=True)]
    text = (
        "Mean of the main metrics of all tasks of a mixture on dev, at the kept validation. After ±, the standard "
        f"deviation over seeds.{citation(beside, ())}\n"
    )
    return [Grid([*keys, *(Column(f"loss {scaling}") for scaling in scalings)], lines), text]


def _cell(row: Mapping[Any, Any] | None) -> str:
    if row is None:
        return ""
    return f"{100 * row['value']:.1f}" + (f" ± {100 * row['sd']:.1f}" if row["sd"] == row["sd"] else "")
