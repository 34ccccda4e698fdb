"""The curves beside the maps: each side's main metric by layer, with intervals and controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.metrics import metric as metric_called
from probekit.plots.curves import plot_rows
from probekit.plots.layers import of_metric
from probekit.plots.noise import controls_by_layer

if TYPE_CHECKING:
    import pandas as pd

    from probekit.analyses.exploration.scene import Scene, Side

__all__ = ["panels"]

ANALYSES = {"probe": "Probe", "mi": "Mutual information", "mdl": "Description length"}
CONTROLS = {"shuffled": "shuffled labels", "control-task": "control task"}


def panels(scene: Scene) -> list[dict[str, Any]]:
    """A panel for each analysis and its main metric: title and curves, with one value (or None) for each layer."""
    found: dict[str, list[dict[str, Any]]] = {}
    for number, side in enumerate(scene.sides):
        if side.curve is None or not len(side.curve):
            continue
        rows = plot_rows(side.curve)
        for analysis in ANALYSES:
            part = rows[(rows["analysis"] == analysis) & (rows["layer_name"] != "")]
            if len(part):
                main = of_metric(part, None)
                known = metric_called(str(main["metric"].iloc[0]))
                title = f"{ANALYSES[analysis]}: {known.title}{f' ({known.unit})' * bool(known.unit)}".replace("\n", " ")
                found.setdefault(title, []).extend(_of_side(main, side, number))
    return [{"title": title, "curves": curves} for title, curves in found.items()]


def _of_side(main: pd.DataFrame, side: Side, number: int) -> list[dict[str, Any]]:
    """The first curve of a side, and its controls."""
    gold = main[(main["target"] == "gold") & main["draw"].isna()].drop_duplicates("layer_name")
    curves = [{"side": number, "name": side.name, "control": False, **_values(gold, side)}]
    controls = controls_by_layer(main)
    for target, part in controls.groupby("target", sort=False):
        name = f"{side.name}, {CONTROLS.get(str(target), str(target))}"
        values = _values(part.drop_duplicates("layer_name"), side)
        curves.append({"side": number, "name": name, "control": True, **values})
    return curves


def _values(rows: pd.DataFrame, side: Side) -> dict[str, list[float | None]]:
    by_layer = rows.set_index("layer_name").reindex(list(side.layers))
    return {
        name: [float(v) if np.isfinite(v) else None for v in by_layer[column].astype("float64")]
        for name, column in (("values", "value"), ("low", "ci_low"), ("high", "ci_high"))
    }
