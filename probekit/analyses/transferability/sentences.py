"""Sentences on transferability scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.curves import Curve, curves_of, each, largest, smallest
from probekit.analyses.verdict.words import number
from probekit.metrics import metric as metric_called
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    """The first score: which layers exceed permuted labels (corrected over all caches), and where it is highest."""
    metric = str(rows["metric"].iloc[0])
    curves = curves_of(rows[rows["metric"] == metric], corrected=True)
    trained, random = ([one for one in curves if one.random is kind] for kind in (False, True))
    text = partial(_score_text, title=metric_called(metric).title)
    yield from each(trained, random, text, "exceeds permuted labels", "exceed permuted labels")


def _score_text(curve: Curve, trained: Sequence[Curve], random: Sequence[Curve], *, title: str) -> str:
    """The layers of a curve whose score exceeds that of permuted labels, and its highest value."""
    if np.isnan(curve.value).all():
        why = next(filter(None, curve.rows.get("note", [])), "")
        return f"{title} is undefined at every layer{f' ({why})' if why else ''}"
    at = curve.best()
    where = f"{title} {number(curve.value[at])} at layer {curve.layers[at]}"
    if np.isnan(curve.p).all():
        return f"highest {where}, not tested against permuted labels"
    beating = curve.beating()
    if not beating:
        return f"no layer exceeds permuted labels (highest {where}, {smallest(curve)})"
    highest = f"; highest {where}, which is not compared with the other layers" if len(curve.layers) > 1 else ""
    return f"{curve.subject(beating, 'exceeds', 'exceed')} permuted labels ({largest(curve)}){highest}"
