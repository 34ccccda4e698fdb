"""Sentences on scoreboards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.analyses.scoreboard.line import MODEL
from probekit.display import shown_label
from probekit.rows.schema import called
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """For each model: on how many tasks it is above the control, its best and worst groups, and its rank."""
    for _key, of in rows.groupby(MODEL, sort=False, dropna=False):
        means = of[of["metric"] == "mean-normalised"]
        if means.empty:
            continue
        whole = means[means["group"] == ""].iloc[0]
        above = of[(of["metric"] == "above-control") & (of["group"] == "")].iloc[0]
        text = (
            f"{shown_label(called(whole))} is above the control on {above['value']:.0f} of {above['tasks']:.0f} tasks"
        )
        text += f" (mean {100 * whole['value']:z.0f} % of the way to the ceiling"
        groups = means[means["group"] != ""].sort_values("value", ascending=False, kind="stable")
        if len(groups) > 1:
            best, worst = groups.iloc[0], groups.iloc[-1]
            text += f"; most in {best['group']}, {100 * best['value']:z.0f} %, "
            text += f"least in {worst['group']}, {100 * worst['value']:z.0f} %"
        rank = of[(of["metric"] == "rank") & (of["line"].fillna("") == "")]
        better = (
            "; ".join(map(shown_label, str(rank["better_than"].fillna("").iloc[0]).split("; "))) if len(rank) else ""
        )
        yield text + ")" + (f"; its mean is higher than that of {better}" if better else "")
