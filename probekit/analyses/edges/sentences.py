"""Sentences on edge probes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.display import shown_label
from probekit.rows.schema import called, layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The best layer of each model beside its controls, and where in the model its mixes find the labels."""
    main = rows["metric"].iloc[0]
    rows = rows.assign(label=layer_labels(rows))
    for _key, part in rows.groupby(["model", "checkpoint", "step"], sort=False, dropna=False):
        layers = part[(part["metric"] == main) & (part["representation"] == "attention")]
        gold = layers[layers["target"] == "gold"]
        best = gold.iloc[int(gold["value"].argmax())]
        controls = layers[layers["draw"].isna() & (layers["label"] == best["label"]) & (layers["target"] != "gold")]
        text = f"layer {best['label']} of {shown_label(called(best))} has the highest {main}, {_with_interval(best)}"
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
