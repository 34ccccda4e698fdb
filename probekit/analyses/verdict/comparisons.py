"""Sentences on comparisons and summaries of curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.comparison import OF_ONE_LABEL
from probekit.analyses.verdict.curves import CURVE, Curve, model_in, named, names
from probekit.analyses.verdict.words import ALPHA, adjusted, at_least, at_most, layers, listed, number
from probekit.metrics import metric as metric_called
from probekit.rows import layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare", "summary"]

REFERENCES = {
    "permuted": "permuted labels", "shuffled": "permuted labels", "control-task": "the control task",
    "bag-of-pieces": "a bag of word pieces",
}  # fmt: skip
"""The references that are neither layers nor models, by their names in ``against``, as in a sentence."""


def compare(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    """For each curve, the layers that are better and those that are worse than their reference."""
    keys = [c for c in (*CURVE, "against") if c in rows]
    by = [rows[c].astype("string").fillna("") for c in keys]
    parts = [part for _, part in rows.groupby(by, sort=False)]
    heads = [Curve(part.iloc[0].to_dict(), part, [], np.empty(0), np.empty(0)) for part in parts]
    for part, name in zip(parts, names(heads), strict=True):
        metric, against = str(part["metric"].iloc[0]), str(part["against"].iloc[0])
        definition = metric_called(metric)
        labels = [f"layer {label}" if label else "it" for label in layer_labels(part)]
        value, p = (part[c].to_numpy(dtype=float) for c in ("value", "p_adjusted"))
        if against in REFERENCES or against.startswith("layer "):
            against = REFERENCES.get(against, against)
        else:  # another model, or another state of this one
            head = part.iloc[0].to_dict()  # two results may differ only in the run, and two models only in the step
            step = f" at step {head['step']:,}" if ", step " in against else ""
            name = name or f"{named(head, run=True)}{step}: "
            against = model_in(*against.split(", "))
        shown = (p <= ALPHA) & np.isfinite(value) & (value != 0)
        findings = []
        for word, side in (("better", definition.sign * value > 0), ("worse", definition.sign * value < 0)):
            which = [labels[i].removeprefix("layer ") for i in np.flatnonzero(shown & side)]
            if which:
                who = "" if which == ["it"] else f"{layers(which)} {'is' if len(which) == 1 else 'are'} "
                findings.append(f"{who}{word} than {against}")
        if np.isnan(p).all():
            yield f"{name}undetermined against {against}"
        elif findings:
            yield f"{name}{' and '.join(findings)} by {definition.of} ({_adjusted(part, at_most(p[shown]))})"
        else:
            word = "no layer is" if labels != ["it"] else "it is not"
            yield f"{name}{word} shown to differ from {against} by {definition.of} ({_adjusted(part, at_least(p))})"


def _adjusted(rows: pd.DataFrame, p: str) -> str:
    """The p-value of a curve of differences, with what it is corrected for unless that is several curves."""
    if str(rows["family"].iloc[0]) != "curve":
        return f"p adjusted {p}"
    layers = len(rows)
    best = str(rows["against"].iloc[0]).endswith("(best)")
    return adjusted(p, layers * (layers + 1) // 2, "pairs of layers") if best else adjusted(p, layers)


def summary(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
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
            labels = row.get("of_analysis") not in OF_ONE_LABEL
            yield f"{name}layer {layer} has the best value ({value}), not clearly above {listed(near)}" + labels * (
                "; whether it beats permuted labels is not tested here (use compare --against permuted)"
            )
        else:
            yield f"{name}layer {layer} is best ({value}), clearly above all others"
