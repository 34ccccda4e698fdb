"""Sentences on shifts between data sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.words import ALPHA, adjusted, layer_of, number, p_value, short
from probekit.display import shown_label
from probekit.rows.schema import called, layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

CHANCE = 0.5


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """For the layer where a probe of the data set itself is best: which other training sets do as well, which less."""
    main = "auroc" if rows.loc[rows["metric"] == "auroc", "value"].notna().any() else "accuracy"
    task = str(rows["task"].iloc[0])
    for _key, part in rows.groupby(["model", "checkpoint", "estimator"], sort=False):
        gold = part[(part["target"] == "gold") & (part["metric"] == main)]
        home = gold[gold["trained_on"] == task]
        best = home.iloc[int(home["value"].fillna(-1).argmax())]
        at = part[layer_labels(part) == layer_of(best)]
        where = f"{shown_label(called(best))}, {best['estimator']}, layer {layer_of(best)}"
        own = f"a probe of {short(task)} itself has {main} {number(best['value'])}"
        yield f"{where}: {own}; {'; '.join(_transfers(at, main, task))}"


def _transfers(rows: pd.DataFrame, main: str, task: str) -> Iterator[str]:
    """What each probe of another data set reaches on one, at one layer."""
    for name in dict.fromkeys(rows.loc[rows["trained_on"] != task, "trained_on"]):
        mine = rows[rows["trained_on"] == name]
        cell, lost = (
            mine[(mine["metric"] == metric) & (mine["target"] == "gold")].iloc[0]
            for metric in (main, f"difference({main})")
        )
        noise = mine.loc[(mine["metric"] == main) & (mine["target"] == "shuffled"), "value"]
        low, high = (float(end) for end in (noise.min(), noise.max())) if len(noise) else (CHANCE, CHANCE)
        if main == "auroc" and cell["ci_high"] < min(CHANCE, low):
            said = "is reversed there"
        elif cell["ci_low"] > max(CHANCE if main == "auroc" else 0, high):
            said = "transfers"
        else:
            said = "is not shown to transfer (within what shuffled labels give)"
        if np.isfinite(p := float(lost["p_adjusted"])):
            gap = "no difference to it is shown" if p > ALPHA else f"difference to it {number(lost['value'])}"
            said += f", {gap}, {adjusted(p_value(p), int(lost['tests']), 'differences')}"
        yield f"one of {short(name)} {said} ({number(cell['value'])})"
