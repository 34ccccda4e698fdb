"""Sentences on answers that match a behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.analyses.verdict.words import ALPHA, number
from probekit.display import shown_label
from probekit.rows.schema import called
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """How often the likeliest answer of each model matches, and by which answer that is.

    More or less often than chance only if p, of permuted matching answers, is at most 0.05, corrected over all models
    (Bonferroni).
    """
    models = rows.groupby(["model", "checkpoint", "step", "estimator"], sort=False, dropna=False)
    for _key, part in models:
        whole = part[part["level"] == "all"].iloc[0]
        said = "not shown to differ from"
        if "p_adjusted" in whole and models.ngroups * whole["p_adjusted"] <= ALPHA:
            said = "more often than" if whole["value"] > whole["chance"] else "less often than"
        by = part[part["level"] == "matching"]
        of = ", ".join(f"{row['of']} {100 * row['value']:.1f} %" for _, row in by.iterrows())
        name = shown_label(called(whole)).removesuffix(", lm-head")
        yield (
            f"the likeliest answer of {name} matches in {number(whole['value'])} "
            f"({number(whole['ci_low'])}–{number(whole['ci_high'])}) of "
            f"{whole['n']:,} questions, {said} chance ({100 * whole['chance']:.1f} %); by matching answer: {of}"
        )
