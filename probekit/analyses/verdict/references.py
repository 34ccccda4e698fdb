"""Sentences that compare the layers of probes with random weights, with a bag of word pieces, and with layer 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from probekit.analyses.verdict.curves import CURVE, Curve, each, largest, smallest
from probekit.rows import layer_labels
from probekit.rows.families import over_families
from probekit.statistics.bootstrap import FEWEST
from probekit.statistics.comparisons import compare_predictions
from probekit.statistics.contrasts import Contrast, contrasts
from probekit.statistics.options import BAG, CompareOptions, Tails
from probekit.statistics.predictions import Predictions

REFERENCES = {
    "random": ("beats the same layer with random weights", "beat the same layers with random weights"),
    BAG: ("beats a bag of word pieces", "beat a bag of word pieces"),
    "layer-0": ("beats layer 0", "beat layer 0"),
}
"""By reference of ``compare``, the finding for one layer and for several."""


def beyond(trained: Sequence[Curve], metric: str, tables: Sequence[Predictions]) -> Iterator[str]:
    """Which layers of trained models are better than random weights, a bag of word pieces and layer 0, layer by layer.

    p is that of :func:`probekit.compare` against "random", "bag-of-pieces" and "layer-0" with ``tails`` "better", times
    the number of curves that are compared. Layer 0 is a reference only in curves of which some layer beats noise.
    Nothing is said without predictions, without the reference, or where nothing was tested.
    """
    placed = [(curve, *predictions_of(curve, tables)) for curve in trained]
    read = [(curve, table, at) for curve, table, at in placed if table is not None and _can_be_tested(curve, table)]
    for against, (does, do) in REFERENCES.items():
        chosen = [one for one in read if against != "layer-0" or one[0].beating()]
        by_table = {id(table): table for _, table, _ in chosen}
        known = {key: list(contrasts(table, against, metric)) for key, table in by_table.items()}
        compared = (_compared(curve, against, metric, table, at, known[id(table)]) for curve, table, at in chosen)
        found = [one for one in compared if one is not None]
        tests = sum(len(one.layers) for one in found)
        found = [replace(one, p=over_families(np.minimum(1, one.p * len(found))), tests=tests) for one in found]
        if found:

            def text(curve: Curve, *_: Any, does: str = does, do: str = do) -> str:
                seeds = int(curve.rows["initialisations"].iloc[0])
                mean = {0: "", 1: "one initialisation; "}.get(seeds, f"mean of {seeds} initialisations; ")
                if not (beating := curve.beating()):
                    return f"no layer is shown to {does.replace('beats', 'beat', 1)} ({mean}{smallest(curve)})"
                return f"{curve.subject(beating, does, do)} ({mean}{largest(curve)})"

            yield from each(found, (), text, does, do)


def _can_be_tested(curve: Curve, table: Predictions) -> bool:
    return not np.isnan(curve.p).all() and _count_groups(table) >= FEWEST


def _compared(
    curve: Curve, against: str, metric: str, table: Predictions, at: Sequence[int], known: Sequence[Contrast]
) -> Curve | None:
    """The differences of a curve from a reference as a curve; None if they cannot be tested.

    ``at`` are the positions of its layers in ``table``, and ``known`` the contrasts of that table.
    """
    pairs = next((one.pairs for one in known if one.pairs[0][0] in at), [])
    others = sorted({f for _, references in pairs for f in references})
    one_model = set(table.fits["model"].iloc[others]) == {curve.head["model"]}
    if not one_model or len({len(references) for _, references in pairs}) > 1:
        return None
    part = table.take([fit for fit, _ in pairs] + others)
    rows = compare_predictions(part, options=CompareOptions(against=against, metric=metric, tails=Tails.BETTER))
    rows["initialisations"] = len(pairs[0][1]) if against == "random" else 0
    value, p = (rows[name].to_numpy(dtype=float) for name in ("value", "p_adjusted"))
    return replace(curve, rows=rows, layers=layer_labels(rows).tolist(), value=value, p=p)


def groups_of(curve: Curve, tables: Sequence[Predictions]) -> int:
    """Groups of the evaluated examples, or examples if they are independent."""
    table, _ = predictions_of(curve, tables)
    return FEWEST if table is None else _count_groups(table)


def _count_groups(table: Predictions) -> int:
    return len(table.ids if table.groups is None else np.unique(table.groups))


def predictions_of(curve: Curve, tables: Sequence[Predictions]) -> tuple[Predictions | None, list[int]]:
    """The table with the predictions of a curve, and the positions of its layers there; None without one."""
    for table in tables:
        fits = table.fits
        same = (fits["target"] == "gold") & fits["draw"].isna()
        for name in (c for c in CURVE if c in fits and c in curve.rows):
            same &= fits[name].astype("string").fillna("") == str(curve.rows[name].astype("string").fillna("").iloc[0])
        names = layer_labels(fits)
        found = {str(names.iloc[i]): int(i) for i in np.flatnonzero(same.to_numpy(dtype=bool))}
        if set(curve.layers) <= set(found):
            return table, [found[name] for name in curve.layers]
    return None, []
