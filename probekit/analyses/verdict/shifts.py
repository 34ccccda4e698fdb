"""Sentences on shifts between data sets, places and choices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.words import ALPHA, adjusted, number, p_value, short
from probekit.rows.schema import called, layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["choices", "places", "shift"]

CHANCE = 0.5


def _layer(row: pd.Series) -> str:
    return str(layer_labels(row.to_frame().T).iloc[0])


def shift(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """For the layer where a probe of the data set itself is best: which other training sets do as well, which less."""
    main = "auroc" if rows.loc[rows["metric"] == "auroc", "value"].notna().any() else "accuracy"
    task = str(rows["task"].iloc[0])
    for _key, part in rows.groupby(["model", "checkpoint", "estimator"], sort=False):
        gold = part[(part["target"] == "gold") & (part["metric"] == main)]
        home = gold[gold["trained_on"] == task]
        best = home.iloc[int(home["value"].fillna(-1).argmax())]
        at = part[layer_labels(part) == _layer(best)]
        own = f"{called(best)}, {best['estimator']}, layer {_layer(best)}: a probe of {short(task)} itself has {main} "
        yield own + f"{number(best['value'])}; {'; '.join(_transfers(at, main, task))}"


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


def places(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The best layer of each model beside the middle of train and exchanged places."""
    errors = rows[rows["metric"] == "great-circle-error"]
    for _key, part in errors.groupby(["model", "checkpoint"], sort=False):
        gold = part[(part["target"] == "gold") & (part["site"] != "")]
        middle = part[part["estimator"] == "centroid"].iloc[0]
        best = gold.iloc[int(gold["value"].argmin())]
        shuffled = part.loc[part["target"] == "shuffled", "value"]
        at = rows[(layer_labels(rows) == _layer(best)) & (rows["model"] == best["model"])]
        at = at[(at["checkpoint"] == best["checkpoint"]) & (at["target"] == "gold")].set_index("metric")
        below = f"{_gap(at, 'centroid')} the middle of train"
        noise = f"; probes of exchanged places {shuffled.min():,.0f} km or more" if len(shuffled) else ""
        yield (
            f"layer {_layer(best)} of {called(best)} places names {best['value']:,.0f} km "
            f"({best['ci_low']:,.0f}–{best['ci_high']:,.0f}) from the truth on average, {below} "
            f"({middle['value']:,.0f} km){_first_layer(at)}{noise}"
        )


def _gap(at: pd.DataFrame, against: str) -> str:
    """Whether the paired difference of one layer to something else is below it."""
    found = at[at["against"] == against].loc[["difference(great-circle-error)"]].iloc[0]
    below = found["value"] < 0 and found["p_adjusted"] <= ALPHA
    return "below" if below else "not shown to be below"


def _first_layer(at: pd.DataFrame) -> str:
    """How the layer compares with the first one, if it is not that."""
    names = [str(name) for name in at["against"].dropna().unique() if str(name).startswith("layer ")]
    return f" and {_gap(at, names[0])} {names[0]}" if names else ""


def choices(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """How often the likeliest answer of each model matches, and by which answer that is.

    More or less often than chance only if p, of permuted matching answers, is at most 0.05, corrected over all models
    (Bonferroni).
    """
    models = rows.groupby(["model", "checkpoint", "step", "estimator"], sort=False, dropna=False)
    for _key, part in models:
        whole = part[part["level"] == "all"].iloc[0]
        said = "not shown to differ from"
        if "p_adjusted" in whole and models.ngroups * whole["p_adjusted"] <= ALPHA:
            said = "more often than" if whole["value"] > whole["chance"] else "less often than"
        by = part[part["level"] == "matching"]
        of = ", ".join(f"{row['of']} {100 * row['value']:.1f} %" for _, row in by.iterrows())
        yield (
            f"the likeliest answer of {called(whole).removesuffix(', lm-head')} matches in {number(whole['value'])} "
            f"({number(whole['ci_low'])}–{number(whole['ci_high'])}) of "
            f"{whole['n']:,} questions, {said} chance ({100 * whole['chance']:.1f} %); by matching answer: {of}"
        )
