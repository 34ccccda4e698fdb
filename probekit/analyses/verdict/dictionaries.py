"""Sentences on the dictionaries whose features were read: how well they describe the layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def described(row: Mapping[Any, Any]) -> str:
    """The sentence about a dictionary, from the columns of a row."""
    share = row["unexplained"]
    if share != share:
        explained = "cannot be compared with the layer, whose vectors do not vary"
    elif share > 1:
        explained = "describe the layer worse than the mean of its vectors does"
    else:
        explained = f"explain {100 - 100 * share:.0f} % of the layer's variance"
    active = f"{row['active']:,.0f}" if row["active"] >= 10 else f"{row['active']:.1f}"
    return (
        f"features of {row['dictionary']} {explained} ({row['split']}); {active} of {row['latents']:,.0f} latents are "
        f"active in a vector, {100 * row['dead']:.0f} % in none"
    )


def said_of(rows: pd.DataFrame) -> tuple[str, ...]:
    """What rows say of the dictionaries whose features they are about."""
    if "dictionary" not in rows:
        return ()
    columns = ["dictionary", "split", "unexplained", "active", "dead", "latents"]
    of = rows.loc[rows["dictionary"].fillna("") != "", columns].drop_duplicates()
    return tuple(f"{text[0].upper()}{text[1:]}." for text in map(described, of.to_dict("records")))
