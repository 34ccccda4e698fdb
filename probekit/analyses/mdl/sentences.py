"""Sentences on code lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.curves import curves_of, largest, names, smallest
from probekit.rows import layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    [*curves] = curves_of(rows[rows["metric"] == "saved-bits"])
    for curve, name in zip(curves, names(curves), strict=True):
        ratio = rows[(rows["metric"] == "compression-over-prior") & (rows["target"] == "gold")]
        at = curve.best()
        over = ratio[layer_labels(ratio) == curve.layers[at]]["value"]
        where = f"most saved at layer {curve.layers[at]}: {curve.value[at]:z,.0f} bits" + (
            f", compression over the prior's code {over.iloc[0]:.2f}" if len(over) else ""
        )
        beating = curve.beating(curve.value > 0)
        if np.isnan(curve.p).all():
            yield f"{name}not tested, because one order gives no p ({where})"
        elif not beating:
            p = smallest(curve)
            yield f"{name}no layer sends the labels in fewer bits than the class frequencies do ({where}, {p})"
        else:
            p = largest(curve, curve.value > 0)
            who = curve.subject(beating, "sends", "send")
            yield f"{name}{who} the labels in fewer bits than the class frequencies do ({p}); {where}"
