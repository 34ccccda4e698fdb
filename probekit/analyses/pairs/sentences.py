"""Sentences on minimal pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.suites import best_of, like, percent
from probekit.analyses.verdict.words import ALPHA, layer_of
from probekit.display import shown_label
from probekit.rows.families import level
from probekit.rows.schema import called
from probekit.statistics.predictions import Predictions
from probekit.statistics.proportions import mean_of_proportions

if TYPE_CHECKING:
    import pandas as pd

CHANCE = 0.5
FEWEST = 6
"""With fewer groups that are exchanged, p is above 0.05 however good the probe is."""


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """How often each model, and its best layer, prefers the acceptable sentence, and whether that is above chance.

    Of probes by p at most 0.05, two-sided and corrected over the layers of all models; of a language model by the 95 %
    interval for these paradigms. Intervals are corrected for the choice among all layers and scores of all models
    (Bonferroni).
    """
    whole = rows[(rows["level"] == "all") & (rows["target"] == "gold")]
    curves = whole.groupby(["model", "checkpoint", "step", "representation", "estimator"], sort=False, dropna=False)
    for _key, part in curves:
        best = part.iloc[int(part["value"].argmax())]
        where = f"{shown_label(called(best)).removesuffix(', lm-head')} prefers"
        if len(part) > 1:
            where = f"layer {layer_of(best)} of {shown_label(called(best))}, the best of {len(part)}, prefers"
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
