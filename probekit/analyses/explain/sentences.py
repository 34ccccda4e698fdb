"""Sentences on what the score of a kept probe goes with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from probekit.analyses.verdict.words import ALPHA, adjusted, number, p_value
from probekit.rows.schema import layer_labels
from probekit.statistics.predictions import Predictions


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The shares of each predictor in the largest regression, and the ends of the lens."""
    for _key, part in rows.groupby(["model", "checkpoint", "step", "layer", "by"], sort=False, dropna=False):
        where = f"layer {layer_labels(part).iloc[0]}"
        shares = part[part["metric"] == "semi-partial-r2"]
        for with_label in dict.fromkeys(shares["with_label"].astype(bool)):
            own = shares[shares["with_label"].astype(bool) == with_label]
            given = ", with the label in the regression" if with_label else ""
            of = f"{own['n'].iloc[0]:,} {own['by'].iloc[0]}s"
            yield f"{where}, scores of {of}{given}: {'; '.join(map(_said, _each(own)))}"
        products = part[part["metric"] == "lens-product"]
        if len(products):
            first = products[products["place"] == 1]
            yield f"{where}, in the vocabulary: {'; '.join(map(_end, _each(first)))}"


def _each(rows: pd.DataFrame) -> list[pd.Series]:
    return [row for _, row in rows.iterrows()]


def _said(one: pd.Series) -> str:
    """What one predictor carries, as far as it is tested."""
    beyond = f" beyond {one['beyond'].replace(', ', ' and ').replace('label', 'the label')}" if one["beyond"] else ""
    ends = "" if pd.isna(one["ci_low"]) else f" [{_percent(one['ci_low'])}, {_percent(one['ci_high'])}]"
    share = f"{_percent(one['value'])} %{ends} of the variance{beyond}"
    if "p_adjusted" not in one or pd.isna(one["p_adjusted"]):
        return f"{_named(one)} goes with {share} (not tested)"
    tested = adjusted(p_value(one["p_adjusted"]), int(one["tests"]), "predictors")
    if one["p_adjusted"] > ALPHA:
        return f"{_named(one)} is not shown to go with any of it{beyond} ({tested})"
    return f"{_named(one)} goes with {share} ({tested})"


def _named(one: pd.Series) -> str:
    return "the label" if one["predictor"] == "label" else str(one["predictor"])


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.1 else 1}f}"


def _end(one: pd.Series) -> str:
    which = "largest" if one["end"] == "highest" else "smallest"
    tested = adjusted(p_value(one["p_adjusted"]), int(one["tests"]), "ends")
    reach = f"{int(one['draws'])} random directions reach {number(one['random_end'])}; {tested}"
    if one["p_adjusted"] > ALPHA:
        return f"the {which} product, of {one['piece']!r}, is not shown to exceed that of random directions ({reach})"
    return f"{one['piece']!r} has the {which} product, {number(one['value'])} ({reach})"
