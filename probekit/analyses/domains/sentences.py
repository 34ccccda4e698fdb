"""Sentences on divergences between domains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.domains.tables import SIZES, TERMS
from probekit.analyses.verdict.words import ALPHA, p_value
from probekit.metrics import metric as metric_called
from probekit.statistics.multiplicity import holm
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    gold = rows[(rows["target"] == "gold") & rows["domain_a"].notna() & rows["domain_b"].notna()]
    gold = gold[(gold["domain_a"] != gold["domain_b"]) & gold["value"].notna()]
    gold = gold[~gold["metric"].isin((SIZES, TERMS))]
    if gold.empty:
        return
    metric = metric_called(str(gold["metric"].iloc[0]))
    gold = gold[gold["metric"] == metric.name]
    order = gold.assign(_near=gold["value"] * (-1 if metric.alike else 1)).sort_values("_near", kind="stable")
    ends = [order.iloc[0]] + ([order.iloc[-1]] if len(order) > 1 else [])
    unit = f" {metric.unit}" if metric.unit else ""
    far = [f"{row['domain_a']} and {row['domain_b']} ({row['value']:.3f}{unit})" for row in ends]
    pairs = (
        f"by {metric.name} the closest domains are {far[0]}, the most distant {far[1]}"
        if len(far) > 1
        else f"{metric.name} between {far[0]}"
    )
    p = gold["p"].to_numpy(dtype=float)
    if np.isnan(p).all():
        yield f"{pairs}; not tested against two samples of one population"
        return
    shown = int((holm(p) <= ALPHA).sum())
    if len(p) == 1:
        word = "further" if shown else "not shown to be further"
        yield f"{pairs}, {word} apart than samples of one population (p {p_value(p[0])})"
        return
    yield f"{pairs}; {shown} of {len(p)} pairs are further apart than samples of one population (Holm over pairs)"
