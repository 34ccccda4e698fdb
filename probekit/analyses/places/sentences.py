"""Sentences on where places are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.analyses.verdict.words import ALPHA, layer_of
from probekit.display import shown_label
from probekit.rows.schema import called, layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The best layer of each model beside the middle of train and exchanged places."""
    errors = rows[rows["metric"] == "great-circle-error"]
    for _key, part in errors.groupby(["model", "checkpoint"], sort=False):
        gold = part[(part["target"] == "gold") & (part["site"] != "")]
        middle = part[part["estimator"] == "centroid"].iloc[0]
        best = gold.iloc[int(gold["value"].argmin())]
        shuffled = part.loc[part["target"] == "shuffled", "value"]
        at = rows[(layer_labels(rows) == layer_of(best)) & (rows["model"] == best["model"])]
        at = at[(at["checkpoint"] == best["checkpoint"]) & (at["target"] == "gold")].set_index("metric")
        below = f"{_gap(at, 'centroid')} the middle of train"
        noise = f"; probes of exchanged places {shuffled.min():,.0f} km or more" if len(shuffled) else ""
        yield (
            f"layer {layer_of(best)} of {shown_label(called(best))} places names {best['value']:,.0f} km "
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
