"""Sentences on a kept probe that is applied to other data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.display import p_value
from probekit.rows.schema import layer_labels
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The main metric beside that of the card, or how many texts have which class."""
    measured = rows[~rows["metric"].isin(("probe-score", "probability"))]
    for _key, part in measured.groupby(["task", "split", "model", "checkpoint"], sort=False, dropna=False):
        first = part.iloc[0]
        here = f"{first['metric']} {first['value']:.3f}"
        ends = f" [{first['ci_low']:.3f}, {first['ci_high']:.3f}]" if first["ci_low"] == first["ci_low"] else ""
        then = f"; {first['kept']:.3f} when it was kept" if first["kept"] == first["kept"] else ""
        known = first["p"] == first["p"]
        p = f"; permuted labels reach {first['null_mean']:.3f} (p {p_value(first['p'])})" if known else ""
        where = f"layer {layer_labels(part).iloc[0]} on {first['task']} {first['split']}"
        yield f"{where}: {here}{ends}{then}{p}; {first['n']:,} examples"
