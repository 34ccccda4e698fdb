"""Sentences on the geometry of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.verdict.representations import ends, prefixed, spoken
from probekit.analyses.verdict.words import number
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    """For each model the lowest and the highest layer of the dimensions and of the mean cosine."""
    rows = rows[rows["metric"].isin(("participation-ratio", "intrinsic-dimension", "mean-cosine"))]
    for curve, prefix in prefixed(rows):
        found = []
        for metric, part in curve.groupby("metric", sort=False):
            known = part[part["value"].notna()]
            if known.empty:
                continue
            least, most = (f"{_value(end)} (layer {end['name']})" for end in ends(known))
            found.append(f"{spoken(str(metric))} " + (f"from {least} to {most}" if len(known) > 1 else least))
        yield f"{prefix}{', '.join(found)}" if found else f"{prefix}undefined in all layers"


def _value(row: Mapping[Any, Any] | pd.Series) -> str:
    write = number if row["metric"] == "mean-cosine" else "{:.1f}".format
    limits = f" [{write(row['ci_low'])}, {write(row['ci_high'])}]" if np.isfinite(row["ci_low"]) else ""
    return f"{write(row['value'])}{limits}"
