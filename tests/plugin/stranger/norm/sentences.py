"""Sentences on the lengths of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from probekit.analyses.verdict.representations import ends, prefixed

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Any]) -> Iterator[str]:
    """For each model the layers with the shortest and the longest vectors."""
    for curve, prefix in prefixed(rows):
        least, most = (f"{one['value']:.2f} (layer {one['name']})" for one in ends(curve))
        yield f"{prefix}vectors are on average {f'{least} to {most}' if len(curve) > 1 else least} long"
