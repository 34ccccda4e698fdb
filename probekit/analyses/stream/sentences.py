"""Sentences on erasers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    """How much has to be taken from the layers so that no linear classifier tells the labels."""
    taken, share = (rows.loc[rows["metric"] == f"erased-{name}", "value"] for name in ("dimensions", "variance"))
    few, many = int(taken.min()), int(taken.max())
    dimensions = f"{few} dimension{'s' * (many > 1)}" if few == many else f"{few} to {many} dimensions"
    low, high = f"{share.min():.1%}", f"{share.max():.1%}"
    variance = low if low == high else f"{low} to {high}"
    after = "no linear classifier tells the labels of the texts it was made from"
    yield f"LEACE takes {dimensions} and {variance} of the variance of a layer; then {after}"
