"""What the sentences on trees and on minimal pairs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probekit.statistics.multiplicity import widened

if TYPE_CHECKING:
    import pandas as pd


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
