"""Sentences on scoreboards, and what those on trees and minimal pairs share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.rows.schema import called
from probekit.statistics.multiplicity import widened
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["best_of", "like", "percent", "scoreboard"]


def percent(row: pd.Series) -> str:
    """A share with its interval."""
    interval = "" if row[["ci_low"]].isna().any() else f" ({100 * row['ci_low']:.1f}–{100 * row['ci_high']:.1f})"
    return f"{100 * row['value']:.1f} %{interval}"


def like(one: pd.Series, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the same fit."""
    for name in ("model", "checkpoint", "step", "representation", "estimator", "target", "site", "layer"):
        rows = rows[rows[name].isna() if one[[name]].isna().any() else rows[name] == one[name]]
    return rows


def best_of(rows: pd.DataFrame, count: int) -> pd.Series:
    """The best layer, with an interval that holds for so many values at once."""
    best = rows.iloc[int(rows["value"].argmax())].copy()
    for end in ("ci_low", "ci_high"):
        best[end] = min(max(float(widened(best["value"], best[end], count)), 0.0), 1.0)
    return best


def scoreboard(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """For each model: on how many tasks it is above the control, its best and worst groups, and its rank."""
    from probekit.analyses.board_line import MODEL

    for _key, of in rows.groupby(MODEL, sort=False, dropna=False):
        means = of[of["metric"] == "mean-normalised"]
        if means.empty:
            continue
        whole = means[means["group"] == ""].iloc[0]
        above = of[(of["metric"] == "above-control") & (of["group"] == "")].iloc[0]
        text = f"{called(whole)} is above the control on {above['value']:.0f} of {above['tasks']:.0f} tasks"
        text += f" (mean {100 * whole['value']:z.0f} % of the way to the ceiling"
        groups = means[means["group"] != ""].sort_values("value", ascending=False, kind="stable")
        if len(groups) > 1:
            best, worst = groups.iloc[0], groups.iloc[-1]
            text += f"; most in {best['group']}, {100 * best['value']:z.0f} %, "
            text += f"least in {worst['group']}, {100 * worst['value']:z.0f} %"
        rank = of[(of["metric"] == "rank") & (of["line"].fillna("") == "")]
        better = str(rank["better_than"].fillna("").iloc[0]) if len(rank) else ""
        yield text + ")" + (f"; its mean is higher than that of {better}" if better else "")
