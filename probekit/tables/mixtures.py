"""Mixtures of tasks by sampling and loss scaling: Tables 4 and 5 of Bowman et al. (2018)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from probekit.display import shown_model
from probekit.grid import Column, Grid
from probekit.tables.papers import citation, published

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mixture_table"]


def mixture_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """The mean result of each mixture on its own dev splits, a line for each mixture and sampling.

    Several models with the same mixture, sampling and loss scaling have a line each, with their name.

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
    scalings = list(dict.fromkeys(found["scaling"]))
    lines = []
    for (on, sampling), part in found.groupby(["task", "sampling"], sort=False):
        mixture = ", ".join(str(on).split("+"))
        several = part["scaling"].duplicated().any()
        for name, rows in part.groupby("model", sort=False) if several else [("", part)]:
            at = {row["scaling"]: row for row in rows.to_dict("records")}
            shown = f"{mixture} ({shown_model(str(name))})" if several else mixture
            lines.append([shown, str(sampling), *(_cell(at.get(scaling)) for scaling in scalings)])
    if beside is not None:
        paper = published(beside)
        paper[["sampling", "scaling"]] = [_settings(how) for how in paper["row"]]
        scalings += [scaling for scaling in dict.fromkeys(paper["scaling"]) if scaling not in scalings]
        for line in lines:
            line += [""] * (2 + len(scalings) - len(line))
        for (model, sampling), part in paper.groupby(["model", "sampling"], sort=False):
            values = dict(zip(part["scaling"], part["value"], strict=True))
            cells = [f"*{values[scaling]:.1f}*" if scaling in values else "" for scaling in scalings]
            lines.append([f"*{model}, published*", f"*{sampling}*", *cells])
    keys = [Column("mixture (× 100)", align="left", key=True), Column("sampling", align="left", key=True)]
    text = (
        "Mean of the main metrics of all tasks of a mixture on dev, at the kept validation. After ±, the standard "
        f"deviation over seeds.{citation(beside, ())}{' Published means are over nine tasks.' if beside else ''}\n"
    )
    return [Grid([*keys, *(Column(f"loss {scaling}") for scaling in scalings)], lines), text]


def _settings(row: str) -> list[str]:
    """Sampling and loss scaling of a published row, such as "sampling power 0.75, loss uniform"."""
    return [part.split(" ", 1)[1].replace(" ", "-") for part in row.split(", ")]


def _cell(row: Mapping[Any, Any] | None) -> str:
    if row is None:
        return ""
    return f"{100 * row['value']:.1f}" + (f" ± {100 * row['sd']:.1f}" if row["sd"] == row["sd"] else "")
