"""Sentences on cosines between probes: which pairs are more alike than under the null that was tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from probekit.analyses.verdict.words import ALPHA, adjusted, number, p_value
from probekit.rows.families import over_families
from probekit.statistics.predictions import Predictions

FEW = 3
"""So many pairs have a sentence each."""
BY = {"permuted labels": "than a probe and one of permuted labels", "random directions": "than random directions"}


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """One for each of a few pairs; of many how many are alike, and the most alike."""
    rows = rows[rows["scale"] == rows["scale"].iloc[-1]]  # standardised where a cache was given
    rows = rows.assign(p_adjusted=over_families(rows["p_adjusted"].to_numpy(dtype=float)))
    for null, part in rows.groupby("null", sort=False):
        if len(part) <= FEW:
            yield from (_of_pair(row) for _, row in part.iterrows())
        else:
            alike = part[(part["p_adjusted"] <= ALPHA) & (part["value"] > 0)]
            opposite = part[(part["p_adjusted"] <= ALPHA) & (part["value"] < 0)]
            more = f", {len(opposite)} more opposite" if len(opposite) else ""
            yield f"{len(alike)} of {len(part)} pairs of probes are shown to be more alike{more} {BY[str(null)]}"
            at: Any = part["value"].abs().idxmax()
            yield _of_pair(part.loc[at])
        if null == "random directions":
            yield (
                "vectors fill their dimensions unevenly, so probes of unrelated labels may be as alike; the caches of "
                "train (--cache) tell"
            )


def _of_pair(row: Any) -> str:
    tested = adjusted(p_value(row["p_adjusted"]), int(row["tests"]), "pairs")
    said = [f"cosine {number(row['value'])}", tested]
    if row["null"] == "permuted labels":
        said.insert(1, f"absolute cosines of permuted labels mostly below {number(row['permuted_high'])}")
        said.insert(
            1,
            f"across halves of train {number(row['across_halves'])}, of the same probe {number(row['within_halves'])}",
        )
    else:
        said.insert(1, f"absolute cosines of random directions mostly below {number(row['random_high'])}")
    both = f"{row['probe']} and {row['against']}"
    if row["p_adjusted"] > ALPHA:
        return f"{both} are not shown to be more alike or opposite {BY[row['null']]} ({'; '.join(said)})"
    return f"{both} are more {'alike' if row['value'] > 0 else 'opposite'} {BY[row['null']]} ({'; '.join(said)})"
