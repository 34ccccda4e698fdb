"""Sentences on comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.curves import CURVE, Curve, model_in, named, names
from probekit.analyses.verdict.words import ALPHA, adjusted, at_least, at_most, layers
from probekit.metrics import metric as metric_called
from probekit.rows import layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

REFERENCES = {
    "permuted": "permuted labels", "shuffled": "permuted labels", "control-task": "the control task",
    "bag-of-pieces": "a bag of word pieces", "tf-idf-of-pieces": "tf-idf of word pieces",
    "majority": "the most frequent class",
    "type-majority": "the most frequent class of each word",
}  # fmt: skip
"""The references that are neither layers nor models, by their names in ``against``, as in a sentence."""


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
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
