"""What sentences on similarity, movement and geometry of layers share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.verdict.curves import FEW, Curve, names
from probekit.analyses.verdict.words import number
from probekit.rows import layer_labels, layer_order

if TYPE_CHECKING:
    import pandas as pd

SIDE = ("model", "checkpoint", "step", "representation", "regime", "head", "variant", "seed")


def spoken(metric: str) -> str:
    """A metric of movement or geometry as sentences say it."""
    return {"aligned-distance": "distance after shift and rotation"}.get(metric) or metric.replace("-", " ")


def value(row: Mapping[Any, Any] | pd.Series) -> str:
    """A value with its interval: ".990 [.980, .995]"."""
    limits = f" [{number(row['ci_low'])}, {number(row['ci_high'])}]" if np.isfinite(row["ci_low"]) else ""
    return f"{number(row['value'])}{limits}"


def ends(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """The rows with the smallest and the largest value."""
    value = rows["value"].to_numpy(dtype=float)
    return rows.iloc[int(value.argmin())], rows.iloc[int(value.argmax())]


def prefixed(rows: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, str]]:
    """The rows of each model with names of layers, in their order, and what begins a sentence on it.

    Of many models only the last one, with their number.
    """
    rows = rows.assign(name=layer_labels(rows), _order=layer_order(rows)).reset_index(drop=True)
    keys = [rows[c].astype("string").fillna("") for c in SIDE if c in rows]
    parts = [part.sort_values("_order", kind="stable") for _, part in rows.groupby(keys, sort=False)]
    heads = [Curve(part.iloc[0].to_dict(), part, [], np.empty(0), np.empty(0)) for part in parts]
    if len(parts) <= FEW:
        yield from zip(parts, names(heads), strict=True)
    else:
        yield parts[-1], f"the last of {len(parts)} models, {names(heads)[-1]}"
