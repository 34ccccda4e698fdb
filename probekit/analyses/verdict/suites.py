"""Sentences on the analyses of suites: minimal pairs, trees, edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.words import ALPHA, layer_of
from probekit.rows.families import level
from probekit.rows.schema import called, layer_labels
from probekit.statistics.multiplicity import widened
from probekit.statistics.predictions import Predictions
from probekit.statistics.proportions import mean_of_proportions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["edges", "pairs", "scoreboard", "structural"]

CHANCE = 0.5
FEWEST = 6
"""With fewer groups that are exchanged, p is above 0.05 however good the probe is."""


def _percent(row: pd.Series) -> str:
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
            best = _best(part, len(whole))
        else:
            best = _corrected(best, rows, len(whole))
            chance = "above chance on these paradigms" if best["ci_low"] > CHANCE else "not shown to be above chance"
        shuffled = rows[(rows["level"] == "all") & (rows["target"] == "shuffled")]
        noise = f"; probes of exchanged pairs {100 * shuffled['value'].mean():.1f} %" if len(shuffled) else ""
        yield (
            f"by {best['estimator']}, {where} the acceptable sentence of {_percent(best)} of {best['n']:,} pairs, "
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
    of = _like(best, rows[rows["level"] == "paradigm"])
    n = of["n"].to_numpy(dtype=float) / np.nan_to_num(best.get("alike", 1.0), nan=1.0)
    _, low, high = mean_of_proportions(of["value"].to_numpy(dtype=float) * n, n, 1 - (1 - level()) / layers)
    best = best.copy()
    best["ci_low"], best["ci_high"] = low, high
    return best


def structural(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The best layer of each model beside the linear chain, shuffled trees, and a parser of the same vectors.

    It is above the chain if p of the difference is at most 0.05, two-sided and corrected over all probes of the task.
    Its interval is corrected for the choice among them (Bonferroni).
    """
    edges, tested = rows[rows["metric"] == "uuas"], rows[rows["metric"] == "difference(uuas)"]
    tests = int(((edges["site"] != "") & (edges["target"] == "gold")).sum())
    for _key, part in edges.groupby(["model", "checkpoint", "step"], sort=False, dropna=False):
        chain = float(part.loc[part["estimator"] == "linear-chain", "value"].iloc[0])
        by_layer, parser = part[part["site"] != ""], part["estimator"] == "biaffine"
        gold, shuffled = (by_layer[by_layer["target"] == name] for name in ("gold", "shuffled"))
        best, *arcs = (
            _best(some, tests) for some in (gold[~parser[gold.index]], gold[parser[gold.index]])
            if len(some)
        )  # fmt: skip
        noise = shuffled.loc[~parser[shuffled.index], "value"].max()
        more = f"; probes of shuffled trees at most {100 * noise:.1f} %" if len(shuffled) else ""
        more += "".join(f"; a parser finds {_percent(one)} at layer {layer_of(one)}" for one in arcs)
        yield (
            f"layer {layer_of(best)} of {called(best)}, rank {best['rank']:g}, has {_percent(best)} of "
            f"the edges of gold trees, {_beyond(best, tested)} the linear chain ({100 * chain:.1f} %){more}"
        )


def _beyond(best: pd.Series, tested: pd.DataFrame) -> str:
    """Whether a layer is above the linear chain, by the test of its row's difference."""
    own = _like(best, tested)
    if own.empty or own[["p_adjusted"]].isna().any(axis=None):
        return "not tested against"
    row = own.iloc[0]
    if row["p_adjusted"] > ALPHA:
        return "not shown to be above"
    return "above" if row["value"] > 0 else "below"


def _like(one: pd.Series, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the same fit."""
    for name in ("model", "checkpoint", "step", "representation", "estimator", "target", "site", "layer"):
        rows = rows[rows[name].isna() if one[[name]].isna().any() else rows[name] == one[name]]
    return rows


def _best(rows: pd.DataFrame, count: int) -> pd.Series:
    """The best layer, with an interval that holds for so many values at once."""
    best = rows.iloc[int(rows["value"].argmax())].copy()
    for end in ("ci_low", "ci_high"):
        best[end] = min(max(float(widened(best["value"], best[end], count)), 0.0), 1.0)
    return best


def edges(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The best layer of each model beside its controls, and where in the model its mixes find the labels."""
    main = rows["metric"].iloc[0]
    rows = rows.assign(label=layer_labels(rows))
    for _key, part in rows.groupby(["model", "checkpoint", "step"], sort=False, dropna=False):
        layers = part[(part["metric"] == main) & (part["representation"] == "attention")]
        gold = layers[layers["target"] == "gold"]
        best = gold.iloc[int(gold["value"].argmax())]
        controls = layers[layers["draw"].isna() & (layers["label"] == best["label"]) & (layers["target"] != "gold")]
        text = f"layer {best['label']} of {called(best)} has the highest {main}, {_with_interval(best)}"
        for kind, value in zip(controls["target"], controls["value"], strict=True):
            text += f", {kind.replace('-', ' ')} {value:.3f}"
        if len(centre := part[part["metric"] == "centre-of-gravity"]):
            text += f"; centre of gravity of the mix {_with_interval(centre.iloc[0])}"
            steps = part[(part["metric"] == "expected-layer") & part["of_metric"].eq(main)].iloc[0]
            text += f"; expected layer {_with_interval(steps)}"
        yield text


def _with_interval(row: pd.Series) -> str:
    if row[["value"]].isna().any():
        return "undetermined"
    interval = "" if row[["ci_low"]].isna().any() else f" ({row['ci_low']:.3f}–{row['ci_high']:.3f})"
    return f"{row['value']:.3f}{interval}"


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
