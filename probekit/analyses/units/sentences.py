"""Sentences on units: which ones hold a property, or why none can be named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from probekit.analyses.verdict.words import ALPHA, adjusted, number, p_value
from probekit.display import shown_label
from probekit.rows.schema import called, layer_labels
from probekit.statistics.predictions import Predictions

MOST = 10
"""Units in a sentence."""


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """For each model the units of the first ranking, at the layer where the first units exceed random ones most."""
    for _key, part in rows.groupby(["model", "checkpoint", "step", "representation"], sort=False, dropna=False):
        ranking = str(part["estimator"].iloc[0])
        own = part[part["estimator"] == ranking]
        own = own.assign(label=layer_labels(own))
        where = f"{shown_label(called(own.iloc[0]))}, units by {ranking}"
        tested = own[own["p_adjusted"].notna()] if "p_adjusted" in own else own[:0]
        if tested.empty:
            yield f"{where}: no single units can be named; they were not compared with random ones"
            continue
        shown = tested[tested["p_adjusted"] <= ALPHA]
        at: Any = shown["value"].abs().idxmax() if len(shown) else tested["p_adjusted"].idxmin()
        best: Any = tested.loc[at]
        yield f"{where}, layer {best['label']}: {_said(best, own[own['label'] == best['label']])}"


def _said(best: pd.Series, rows: pd.DataFrame) -> str:
    """What is said of a layer; ``best`` is its mean difference to random units."""
    main = str(best["metric"]).removeprefix("difference(").removesuffix(")")
    tested = adjusted(p_value(best["p_adjusted"]), int(best["tests"]), "rankings")
    if best["p_adjusted"] > ALPHA:
        return f"no single units can be named; the first are not shown to hold more than random ones ({tested})"
    of_units = rows[rows["metric"] == "unit-score"]
    k = int(of_units["units"].iloc[0])
    cells = rows[(rows["metric"] == main) & (rows["units"] == k)].set_index("target")["value"]
    held = f"the first {k} have {main} {number(cells['gold'])}, {k} random ones {number(cells['random'])} ({tested})"
    overlap: Any = rows[rows["metric"] == "rank-biased-overlap"].set_index("target")
    if overlap.empty:
        return f"no single units can be named, since rankings of halves of train were not compared; {held}"
    gold, chance, noise = (overlap.loc[target] for target in ("gold", "random", "shuffled"))
    ends = "" if pd.isna(gold["ci_low"]) else f" [{number(gold['ci_low'])}, {number(gold['ci_high'])}]"
    agree = (
        f"rankings of two halves of train overlap by {number(gold['value'])}{ends}, random ones by "
        f"{number(chance['value'])}, those of shuffled labels by {number(noise['value'])}"
    )
    named = of_units[of_units["named"].astype(bool)]["unit"].astype(int).tolist()
    if not named:
        return f"no single units can be named, since halves of train do not agree on them; {held}; {agree}"
    more = f" and {len(named) - MOST} more" if len(named) > MOST else ""
    who = f"unit {named[0]} holds" if len(named) == 1 else f"units {', '.join(map(str, named[:MOST]))}{more} hold"
    return f"{who} the property; {held}; {agree}"
