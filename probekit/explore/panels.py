"""What the panels show at first: their state and captions, and the curves beside the maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analysis import analyses
from probekit.explore.colours import Colour, outcomes
from probekit.explore.places import METHODS, caption, methods
from probekit.explore.questions import STRIPS, mcnemar
from probekit.metrics import metric as metric_called
from probekit.plots.curves import plot_rows
from probekit.plots.layers import INPUTS, gold_of, of_metric
from probekit.plots.noise import controls_by_layer
from probekit.rows.selection import together

if TYPE_CHECKING:
    import pandas as pd

    from probekit.analyses.exploration.scene import Scene, Side

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


NO_CURVE = "No curves: give the rows of probekit probe (and mi) for these models to see them here."
LASSO, CELL = "Draw a lasso on a map (its button is left of the map)", ", or click a number in the table"
HINT = 'In Python: view.selection.ids, .examples, .compare() and .write_task("task.toml").'


def first_state(scene: Scene, colours: Sequence[Colour]) -> dict[str, Any]:
    """What a view shows when it opens: the middle layer, the first and the last side."""
    return {
        "layer": len(scene.layers) // 2,
        "step": len(scene.sides) - 1,
        "method": methods(scene)[0],
        "colour": colours[0].name,
        "selected": b"",
        "example": -1,
    }


def values(scene: Scene, colours: Sequence[Colour]) -> dict[str, dict[str, Any]]:
    """The traits of each panel that do not change."""
    names, n, layers = [side.name for side in scene.sides], len(scene.ids), list(scene.sides[0].layers)
    together = outcomes(scene)
    unit = "tokens" if scene.tokens_unit else "examples"
    tests = [[mcnemar(scene, step, layer) for layer in range(len(layers))] for step in range(1, len(together) + 1)]
    return {
        "controls": {
            "title": f"{scene.title} ({n:,} {unit})",
            "layers": layers,
            "steps": names,
            "methods": [[name, METHODS.get(name, name)] for name in methods(scene)],
            "colours": [[colour.name, colour.title] for colour in colours],
        },
        "notes": {"notes": list(scene.notes)},
        "curve": {
            "layers": layers, "sides": names, "n": n, "panels": panels(scene), "missing": NO_CURVE,
            "outcomes": together.tobytes(), "tests": tests,
        },
        "example": {
            "n": n, "layers": layers, "kinds": [list(kind) for kind in STRIPS.items()],
            "unit": "Token" if scene.tokens_unit else "Example",
            "attends": scene.sources is not None and scene.texts is not None,
        },
        "units": {"layers": layers, "sides": names},
        "selection": {"n": n, "hint": HINT, "start": LASSO + CELL * bool(len(together)) + "."},
    }  # fmt: skip


def captions(scene: Scene, side: int, method: str, layer: int) -> dict[str, str]:
    """The traits of the caption of a side's map; a note that the left map has is not said again."""
    shown = scene.sides[side]
    note = shown.maps[method].note
    again = side > 0 and note == scene.sides[0].maps[method].note
    return {"name": shown.name, "text": caption(scene, side, method, layer), "note": "" if again else note}
