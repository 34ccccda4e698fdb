"""Sentences on minimal pairs and scoreboards, and what those on trees share with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.words import ALPHA, layer_of
from probekit.rows.families import level
from probekit.rows.schema import called
from probekit.statistics.multiplicity import widened
from probekit.statistics.predictions import Predictions
from probekit.statistics.proportions import mean_of_proportions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["best_of", "like", "pairs", "percent", "scoreboard"]

CHANCE = 0.5
FEWEST = 6
"""With fewer groups that are exchanged, p is above 0.05 however good the probe is."""


def percent(row: pd.Series) -> str:
    """A share with its interval."""
    interval = "" if row[["ci_low"]].isna().any() else f" ({100 * row['ci_low']:.1f}–{100 * row['ci_high']:.1f})"
    return f"{100 * row['value']:.1f} %{interval}"


def pairs(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """How often each model, and its best layer, prefers the acceptable sentence, and whether that is above chance.

    Of probes by p at most 0.05, two-sided and corrected over the layers of all models; of a language model by the 95 %
    interval for these paradigms. Intervals are corrected for the choice among all layers and scores of all models
    (Bonferroni).
    """
    whole = rows[(rows["level"] == "all") & (rows["target"] == "gold")]
    curves = whole.groupby(["model", "checkpoint", "step", "representation", "estimator"], sort=False, dropna=False)
    for _key, part in curves:
        best = part.iloc[int(part["value"].argmax())]
        where = f"{called(best).removesuffix(', lm-head')} prefers"
        if len(part) > 1:
            where = f"layer {layer_of(best)} of {called(best)}, the best of {len(part)}, prefers"
        if best["estimator"] == "pair-probe":
            chance = _above_chance(best, curves.ngroups)
            best = best_of(part, len(whole))
        else:
            best = _corrected(best, rows, len(whole))
            chance = "above chance on these paradigms" if best["ci_low"] > CHANCE else "not shown to be above chance"
        shuffled = rows[(rows["level"] == "all") & (rows["target"] == "shuffled")]
        noise = f"; probes of exchanged pairs {100 * shuffled['value'].mean():.1f} %" if len(shuffled) else ""
        yield (
            f"by {best['estimator']}, {where} the acceptable sentence of {percent(best)} of {best['n']:,} pairs, "
            f"{chance}{noise}"
        )


def _above_chance(best: pd.Series, curves: int) -> str:
    """What the exchange of whole groups of pairs says of the best layer; p is multiplied by the number of curves."""
    if "p_adjusted" not in best or best[["p_adjusted"]].isna().any():
        return "whether that is above chance was not tested"
    if curves * best["p_adjusted"] <= ALPHA and best["value"] > CHANCE:
        return "above chance"
    few = f" ({best['exchanged']:.0f} groups that are exchanged cannot show it)" if best["exchanged"] < FEWEST else ""
    return f"not shown to be above chance{few}"


def _corrected(best: pd.Series, rows: pd.DataFrame, layers: int) -> pd.Series:
    """The best layer with an interval for all layers at once, from the counts of its paradigms; copies count once."""
    of = like(best, rows[rows["level"] == "paradigm"])
    n = of["n"].to_numpy(dtype=float) / np.nan_to_num(best.get("alike", 1.0), nan=1.0)
    _, low, high = mean_of_proportions(of["value"].to_numpy(dtype=float) * n, n, 1 - (1 - level()) / layers)
    best = best.copy()
    best["ci_low"], best["ci_high"] = low, high
    return best


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
