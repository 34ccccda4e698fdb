"""The curves beside the maps: each side's main metric by layer, with intervals, controls and floors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analysis import analyses
from probekit.metrics import metric as metric_called
from probekit.plots.curves import plot_rows
from probekit.plots.layers import INPUTS, gold_of, of_metric
from probekit.plots.noise import controls_by_layer
from probekit.rows.selection import together

if TYPE_CHECKING:
    import pandas as pd

    from probekit.analyses.exploration.scene import Scene, Side

__all__ = ["panels"]

CONTROLS = {"permuted": "permuted labels", "shuffled": "shuffled labels", "control-task": "control task"}
KIND = ("method", "representation", "seed")
"""Columns in which curves of one model differ."""


def panels(scene: Scene) -> list[dict[str, Any]]:
    """A panel for each analysis and its main metric.

    Its curves have one value (or None) for each layer; its floors, predictions without a layer, have one value; its
    notes say which curve is drawn if a model has several.
    """
    pooling = None if scene.sources is None else scene.sources.pooling
    titles = {name: one.title for name, one in analyses().items()} | {"probe": "Probe"}
    found: dict[str, dict[str, Any]] = {}
    for number, side in enumerate(scene.sides):
        if side.curve is None or not len(side.curve):
            continue
        rows = plot_rows(side.curve)
        for analysis in together():
            part = rows[rows["analysis"] == analysis]
            if (part["layer_name"] != "").any():
                main = of_metric(part, None)
                known = metric_called(str(main["metric"].iloc[0]))
                title = f"{titles[analysis]}: {known.title}{f' ({known.unit})' * bool(known.unit)}".replace("\n", " ")
                panel = found.setdefault(title, {"title": title, "curves": [], "floors": [], "notes": []})
                gold, alike, note = _first(main, side, pooling)
                panel["curves"] += _of_side(gold, alike, side, number)
                panel["floors"] += _floors(main, number)
                panel["notes"] += note
    return list(found.values())


def _first(main: pd.DataFrame, side: Side, pooling: str | None) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """The rows of the first curve, of the maps' pooling if there is one; those of its kind; and which others exist."""
    gold = gold_of(main)
    gold = gold[gold["draw"].isna()]
    keys = gold[list(KIND)].astype("string").fillna("")
    kinds = [tuple(kind) for kind in keys.drop_duplicates().to_numpy().tolist()]
    chosen = next((kind for kind in kinds if kind[1] == pooling), kinds[0])
    alike = main[(main[["method", "representation"]].astype("string") == chosen[:2]).all(axis=1)]
    differ = [i for i in range(len(KIND)) if len({kind[i] for kind in kinds}) > 1]
    names = {kind: ", ".join(f"seed {kind[i]}" if KIND[i] == "seed" else kind[i] for i in differ) for kind in kinds}
    others = "; ".join(names[kind] for kind in kinds if kind != chosen)
    note = [f"{side.name}: {names[chosen]} is drawn; the rows also hold {others}."] if others else []
    return gold[(keys == chosen).all(axis=1)], alike, note


def _of_side(gold: pd.DataFrame, alike: pd.DataFrame, side: Side, number: int) -> list[dict[str, Any]]:
    """The curve of a side, and its controls."""
    gold = gold.drop_duplicates("layer_name")
    curves = [{"side": number, "name": side.name, "control": False, **_values(gold, side)}]
    for target, part in controls_by_layer(alike).groupby("target", sort=False):
        name = f"{side.name}, {CONTROLS.get(str(target), str(target))}"
        values = _values(part.drop_duplicates("layer_name"), side)
        curves.append({"side": number, "name": name, "control": True, **values})
    return curves


def _floors(main: pd.DataFrame, number: int) -> list[dict[str, Any]]:
    """What is reached without the vectors of the model: the majority class, a bag of word pieces."""
    rows = main[(main["layer_name"] == "") & (main["target"] == "gold") & main["draw"].isna()].dropna(subset="value")
    names = rows["representation"].where(rows["representation"] != "none", rows["estimator"])
    floors = dict(zip(names[::-1], rows["value"][::-1], strict=True))  # the first of each name
    return [
        {"side": number, "name": title, "value": float(floors[name])}
        for name, title in INPUTS.items()
        if name in floors
    ]


def _values(rows: pd.DataFrame, side: Side) -> dict[str, list[float | None]]:
    by_layer = rows.set_index("layer_name").reindex(list(side.layers))
    return {
        name: [float(v) if np.isfinite(v) else None for v in by_layer[column].astype("float64")]
        for name, column in (("values", "value"), ("low", "ci_low"), ("high", "ci_high"))
    }
