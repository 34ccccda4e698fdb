"""Sentences on structural probes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from probekit.analyses.verdict.suites import best_of, like, percent
from probekit.analyses.verdict.words import ALPHA, layer_of
from probekit.display import shown_label
from probekit.rows.schema import called
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """The best layer of each model beside the linear chain, shuffled trees, and a parser of the same vectors.

    It is above the chain if p of the difference is at most 0.05, two-sided and corrected over all probes of the task.
    Its interval is corrected for the choice among them (Bonferroni).
    """
    edges, tested = rows[rows["metric"] == "uuas"], rows[rows["metric"] == "difference(uuas)"]
    tests = int(((edges["site"] != "") & (edges["target"] == "gold")).sum())
    for _key, part in edges.groupby(["model", "checkpoint", "step"], sort=False, dropna=False):
        chain = float(part.loc[part["estimator"] == "linear-chain", "value"].iloc[0])
        by_layer, parser = part[part["site"] != ""], part["estimator"] == "biaffine"
        gold, shuffled = (by_layer[by_layer["target"] == name] for name in ("gold", "shuffled"))
        best, *arcs = (
            best_of(some, tests) for some in (gold[~parser[gold.index]], gold[parser[gold.index]]) if len(some)
        )
        noise = shuffled.loc[~parser[shuffled.index], "value"].max()
        more = f"; probes of shuffled trees at most {100 * noise:.1f} %" if len(shuffled) else ""
        more += "".join(f"; a parser finds {percent(one)} at layer {layer_of(one)}" for one in arcs)
        yield (
            f"layer {layer_of(best)} of {shown_label(called(best))}, rank {best['rank']:g}, has {percent(best)} of "
            f"the edges of gold trees, {_beyond(best, tested)} the linear chain ({100 * chain:.1f} %){more}"
        )


def _beyond(best: pd.Series, tested: pd.DataFrame) -> str:
    """Whether a layer is above the linear chain, by the test of its row's difference."""
    own = like(best, tested)
    if own.empty or own[["p_adjusted"]].isna().any(axis=None):
        return "not tested against"
    row = own.iloc[0]
    if row["p_adjusted"] > ALPHA:
        return "not shown to be above"
    return "above" if row["value"] > 0 else "below"
