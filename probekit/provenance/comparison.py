"""Rows compared with the same rows made again: equal to the bit, or by how much they differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from probekit.rows.schema import KEYS

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ["value", "interval", "others"]
BITS = ("digest",)
"""Columns that follow from the bits of numbers, and differ where these do."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How rows that were made again differ from the original.

    Attributes
    ----------
    metrics : DataFrame
        One row a metric: ``metric``; ``rows`` in both; ``equal`` in all columns, to the bit; ``value``, ``interval``
        and ``others``, the largest absolute differences of the value, of its interval and of the other numeric columns;
        ``relative``, the largest difference of any, as a share of the number where that is above 1; ``words``,
        the columns of whole numbers and words that differ, with commas.
    missing, new : DataFrame
        Rows that only the original has, and rows that only the new file has.
    """

    metrics: pd.DataFrame
    missing: pd.DataFrame
    new: pd.DataFrame

    @property
    def exact(self) -> bool:
        """Whether all is equal to the bit."""
        return self.complete and bool((self.metrics["equal"] == self.metrics["rows"]).all())

    @property
    def complete(self) -> bool:
        """Whether the same rows are there, and only numbers of measurements differ."""
        return self.missing.empty and self.new.empty and not self.metrics["words"].any()

    @property
    def largest(self) -> float:
        """The largest absolute difference of two numbers."""
        return float(self.metrics[NUMBERS].to_numpy(dtype=float).max(initial=0.0))

    def within(self, tolerance: float, *, relative: bool = False) -> bool:
        """Whether all rows are there and no number is further off than ``tolerance``."""
        largest = float(self.metrics["relative"].max()) if relative and len(self.metrics) else self.largest
        return self.complete and largest <= tolerance


def compare_rows(then: pd.DataFrame, now: pd.DataFrame, *, shared: bool = False) -> Comparison:
    """Compare rows one by one, in any order. Two NaN are equal; a NaN and a number differ infinitely.

    Parameters
    ----------
    then, now : DataFrame
        Rows.
    shared : bool
        Compare columns that both have: rows of an earlier version lack some.
    """
    import pandas as pd

    sides = [_keyed(rows) for rows in (then, now)]
    both = sides[0].index.intersection(sides[1].index, sort=False)
    a, b = (side.loc[both] for side in sides)
    left_out = {*KEYS, "layer_name"}
    if shared:
        left_out |= set(a.columns) ^ set(b.columns)
    own = [c for c in dict.fromkeys([*a.columns, *b.columns]) if c not in left_out]
    numbers = [c for c in own if all(c in s and pd.api.types.is_float_dtype(s[c]) for s in (a, b))]
    off = pd.DataFrame({c: _off(a[c], b[c]) for c in numbers}, index=both)
    scale = pd.DataFrame({c: a[c].abs().clip(lower=1.0).fillna(1.0) for c in numbers}, index=both)
    other = pd.DataFrame({c: _unequal(a, b, c) for c in own if c not in numbers}, index=both)
    rest = [c for c in numbers if c not in ("value", "ci_low", "ci_high")]
    records = []
    for metric in a["metric"].unique():
        here = both.get_level_values("metric") == metric
        far, words = off[here], other[here]
        records.append(
            {
                "metric": metric,
                "rows": int(here.sum()),
                "equal": int(((far == 0).all(axis=1) & ~words.any(axis=1)).sum()),
                "value": far["value"].max(),
                "interval": far[["ci_low", "ci_high"]].to_numpy().max(),
                "others": far[rest].to_numpy().max(initial=0.0),
                "relative": (far / scale[here]).to_numpy().max(initial=0.0),
                "words": ", ".join(c for c in words if words[c].any() and c not in BITS),
            }
        )
    missing, new = (mine.loc[mine.index.difference(both)] for mine in sides)
    return Comparison(
        pd.DataFrame(records, columns=["metric", "rows", "equal", *NUMBERS, "relative", "words"]), missing, new
    )


def _keyed(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows indexed by the columns that identify them; rows that these do not distinguish are numbered in order."""
    import pandas as pd

    keys = rows[list(KEYS)].astype("string").fillna("")
    keys["again"] = keys.groupby(list(KEYS)).cumcount()
    return rows.set_index(pd.MultiIndex.from_frame(keys))


def _off(a: pd.Series, b: pd.Series) -> Any:
    import numpy as np

    x, y = a.to_numpy(dtype=float, na_value=math.nan), b.to_numpy(dtype=float, na_value=math.nan)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=math.inf, posinf=math.inf))


def _unequal(a: pd.DataFrame, b: pd.DataFrame, column: str) -> Any:
    import numpy as np

    if column not in a or column not in b:
        return np.ones(len(a), dtype=bool)
    x, y = a[column], b[column]
    return ~((x == y).fillna(value=False).to_numpy(dtype=bool) | (x.isna() & y.isna()).to_numpy())
