"""Sentences on summaries of curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.curves import Curve, names
from probekit.analyses.verdict.words import listed, number
from probekit.analysis import analyses
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    best = rows[rows["metric"] == "best-layer"]
    heads = [Curve(row, best.iloc[[i]], [], np.empty(0), np.empty(0)) for i, row in enumerate(best.to_dict("records"))]
    for head, name in zip(heads, names(heads), strict=True):
        row = head.head
        if np.isnan(row["value"]):
            yield f"{name}the best layer is undetermined{f' ({why})' if (why := row.get('why')) else ''}"
            continue
        layer = str(int(row["value"]))
        near = [one for one in str(row["layers"]).split(",") if one != layer]
        value = f"{row['of_metric']} {number(row['best_value'])}"
        if row.get("why"):
            yield f"{name}the best value is layer {layer}'s ({value}), without an interval: {row['why']}"
        elif row.get("compared") == 1:
            yield f"{name}layer {layer} is the only one ({value}), so that nothing is said of others"
        elif near:
            labels = (of := analyses().get(str(row.get("of_analysis")))) is None or of.of_one_label is None
            yield f"{name}layer {layer} has the best value ({value}), not clearly above {listed(near)}" + labels * (
                "; whether it beats permuted labels is not tested here (use compare --against permuted)"
            )
        else:
            yield f"{name}layer {layer} is best ({value}), clearly above all others"
