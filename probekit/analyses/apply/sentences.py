"""Sentences on a kept probe that is applied to other data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.analyses.cards import ABOVE, FOUND
from probekit.display import p_value
from probekit.rows.schema import layer_labels
from probekit.statistics.predictions import Predictions
from probekit.view import bracketed

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The main metric beside that of the card, or how many texts have which class."""
    measured = rows[~rows["metric"].isin(("probe-score", "probability"))]
    of_pairs = measured[measured["metric"].str.startswith("difference(")]
    for _key, part in measured.groupby(["task", "split", "model", "checkpoint"], sort=False, dropna=False):
        first = part.iloc[0]
        here = f"{first['metric']} {first['value']:.3f}"
        ends = f" [{first['ci_low']:.3f}, {first['ci_high']:.3f}]" if first["ci_low"] == first["ci_low"] else ""
        then = f"; {first['kept']:.3f} when it was kept" if first["kept"] == first["kept"] else ""
        known = first["p"] == first["p"]
        p = f"; permuted labels reach {first['null_mean']:.3f} (p {p_value(first['p'])})" if known else ""
        where = f"layer {layer_labels(part).iloc[0]} on {first['task']} {first['split']}"
        paired = of_pairs[of_pairs["metric"] == f"difference({first['metric']})"]
        yield f"{where}: {here}{ends}{then}{_difference(paired)}{p}; {first['n']:,} examples"
    if "above" in rows and rows["above"].notna().any():
        yield _above(rows[rows["above"].notna()]) + _at_threshold(measured)


def _above(rows: pd.DataFrame) -> str:
    """How many scores are above the card's threshold, and how many of negatives like those of dev would be."""
    one, above = rows.iloc[0], int(rows["above"].sum())
    said = (
        f"{above:,} of {len(rows):,} scores ({_share(above / len(rows))} %) are above {one['threshold']:.3g}; when it "
        f"was kept, this threshold flagged {_share(one['rate'])} % of the negatives of dev"
    )
    if one["rate_low"] == one["rate_low"]:
        said += f"; on similar texts expect {_share(one['rate_low'])} to {_share(one['rate_high'])} %"
    if seen := rows["seen_in_train"].fillna(0).iloc[0] if "seen_in_train" in rows else 0:
        said += f"; {seen:,.0f} of these examples of dev share a text or a group with train, so new ones may differ"
    return said


def _at_threshold(rows: pd.DataFrame) -> str:
    """The rate of false positives and the recall of labelled texts, as a clause; "" without labels."""
    known = {row["metric"]: row for row in rows.to_dict("records") if row["metric"] in (ABOVE, FOUND)}
    if not known:
        return ""
    rate, recall = known[ABOVE], known[FOUND]
    then = f", {recall['kept']:.3f} when it was kept" if recall["kept"] == recall["kept"] else ""
    return (
        f"; here it flags {bracketed(rate, '.1f', scale=100)} % of negatives, recall {bracketed(recall, '.3f')}{then}"
    )


def _share(value: float) -> str:
    return f"{100 * value:.3g}"


def _difference(rows: pd.DataFrame) -> str:
    """The paired difference from then, as a clause."""
    if rows.empty:
        return ""
    one = rows.iloc[0]
    ends = f" [{one['ci_low']:.3f}, {one['ci_high']:.3f}]" if one["ci_low"] == one["ci_low"] else ""
    return f", a paired difference of {one['value']:+.3f}{ends} (p {p_value(one['p'])})"
