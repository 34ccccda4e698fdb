"""Sentences on the lengths of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from probekit.rows.schema import layer_labels

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Any]) -> Iterator[str]:
    """For each model the layers with the shortest and the longest vectors."""
    for model, curve in rows.assign(name=layer_labels(rows)).groupby("model", sort=False):
        ends = (curve.loc[curve["value"].idxmin()], curve.loc[curve["value"].idxmax()])
        least, most = (f"{one['value']:.2f} (layer {one['name']})" for one in ends)
        yield f"{model}: vectors are {least} to {most} long on average"
