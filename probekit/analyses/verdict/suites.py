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
    """The best layer of each model beside the linear chain, shuffled trees, and a parser of the same vectors."""
    edges = rows[rows["metric"] == "uuas"]
    for _key, part in edges.groupby(["model", "checkpoint"], sort=False):
        chain = float(part.loc[part["estimator"] == "linear-chain", "value"].iloc[0])
        by_layer, parser = part[part["site"] != ""], part["estimator"] == "biaffine"
        gold, shuffled = (by_layer[by_layer["target"] == name] for name in ("gold", "shuffled"))
        best, *arcs = (
            some.iloc[int(some["value"].argmax())] for some in (gold[~parser[gold.index]], gold[parser[gold.index]])
            if len(some)
        )  # fmt: skip
        beyond = "above" if best["ci_low"] > chain else "not shown to be above"
        noise = shuffled.loc[~parser[shuffled.index], "value"].max()
        more = f"; probes of shuffled trees at most {100 * noise:.1f} %" if len(shuffled) else ""
        more += "".join(f"; a parser finds {_percent(one)} at layer {_layer(one)}" for one in arcs)
        yield (
            f"layer {_layer(best)} of {called(best)}, rank {best['rank']:g}, has {_percent(best)} of "
            f"the edges of gold trees, {beyond} the linear chain ({100 * chain:.1f} %){more}"
        )
