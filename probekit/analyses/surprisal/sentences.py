"""Sentences on surprisal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.display import shown_label
from probekit.rows.schema import called
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The mean surprisal of a word of each model, by pieces too, and how many words have none."""
    words = rows[rows["level"] == "word"]
    for _key, part in words.groupby(["model", "checkpoint", "step", "estimator", "metric"], sort=False, dropna=False):
        known = part[part["value"].notna()]
        unit = "bits" if part["metric"].iloc[0] == "surprisal" else "nats"
        name = shown_label(called(part.iloc[0])).removesuffix(", lm-head")
        lost = len(part) - len(known)
        without = f"; {lost:,} {'word has' if lost == 1 else 'words have'} no prediction" if lost else ""
        if known.empty:
            yield f"{name} predicts none of the {len(part):,} words"
            continue
        by_piece = known["value"].sum() / known["pieces"].sum()
        several = known[known["pieces"] > 1]
        more = f", {several['value'].mean():.2f} in those of several pieces" if len(several) else ""
        yield (
            f"to {name}, a word has {known['value'].mean():.2f} {unit} on average ({len(known):,} words of "
            f"{part['example'].nunique():,} texts, {by_piece:.2f} {unit} a piece{more}; {part['estimator'].iloc[0]})"
            f"{without}"
        )
