"""Sentences on the analyses of suites: minimal pairs, trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.rows.schema import called, layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pairs", "structural"]

CHANCE = 0.5


def _percent(row: pd.Series) -> str:
    return f"{100 * row['value']:.1f} % ({100 * row['ci_low']:.1f}–{100 * row['ci_high']:.1f})"


def _layer(row: pd.Series) -> str:
    return str(layer_labels(row.to_frame().T).iloc[0])


def pairs(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """How often each model, and its best layer, prefers the acceptable sentence, and whether that is above chance."""
    whole = rows[(rows["level"] == "all") & (rows["target"] == "gold")]
    keys = ["model", "checkpoint", "representation", "estimator"]
    for _key, part in whole.groupby(keys, sort=False, dropna=False):
        if len(part) > 1:
            best = part.iloc[int(part["value"].argmax())]
            where = f"layer {_layer(best)} of {called(best)} prefers"
        else:
            best = part.iloc[0]
            where = f"{called(best).removesuffix(', lm-head')} prefers"
        chance = "above chance" if best["ci_low"] > CHANCE else "not shown to be above chance"
        shuffled = rows[(rows["level"] == "all") & (rows["target"] == "shuffled")]
        noise = f"; probes of exchanged pairs {100 * shuffled['value'].mean():.1f} %" if len(shuffled) else ""
        yield (
            f"by {best['estimator']}, {where} the acceptable sentence of {_percent(best)} of {best['n']:,} pairs, "
            f"{chance}{noise}"
        )


def structural(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The best layer of each model beside the linear chain and shuffled trees."""
    edges = rows[rows["metric"] == "uuas"]
    for _key, part in edges.groupby(["model", "checkpoint"], sort=False):
        gold = part[(part["target"] == "gold") & (part["site"] != "")]
        chain = float(part.loc[part["estimator"] == "linear-chain", "value"].iloc[0])
        best = gold.iloc[int(gold["value"].argmax())]
        shuffled = part.loc[part["target"] == "shuffled", "value"]
        beyond = "above" if best["ci_low"] > chain else "not shown to be above"
        noise = f"; probes of shuffled trees at most {100 * shuffled.max():.1f} %" if len(shuffled) else ""
        yield (
            f"layer {_layer(best)} of {called(best)}, rank {best['rank']:g}, has {_percent(best)} of "
            f"the edges of gold trees, {beyond} the linear chain ({100 * chain:.1f} %){noise}"
        )
