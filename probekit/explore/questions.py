"""The questions that panels ask: a closed set of names, each with its answer as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.exploration.texts import marks
from probekit.display import p_equals
from probekit.errors import UsageError
from probekit.explore.colours import correct, label_title, stacked

if TYPE_CHECKING:
    from probekit.analyses.exploration.scene import Scene

NO_CACHES = "The caches are not open, so there are no neighbours."
DEFINED = "The selection was made by accuracy at this layer, so there is no difference of it to estimate."
NEIGHBOURS = 5
SAME = 1e-6
"""Cosine distances below it are those of equal directions, rounded."""
TOP = 10
"""Tokens and units that the panel of units lists."""
LISTED = 100
"""Selected examples that the panel lists."""
FOUND = 20
"""Examples that a search lists."""
SHORT = 120
"""Characters of a text in a list."""
STRIPS = {
    "distance": "distance from the left model",
    "norm": "norm of the vector",
    "logit": "log odds of the linear discriminant",
    "unit": "one unit",
}


def answer(scene: Scene, message: Mapping[str, Any], selected: np.ndarray) -> dict[str, Any]:
    """The answer to a panel's message; raises UsageError for anything else than a question that is known."""
    question = message.get("question")
    if question not in QUESTIONS:
        raise UsageError(f"{question!r} is not a question that the explorer answers.")
    last = {"index": len(scene), "layer": len(scene.layers), "step": len(scene.sides), "side": len(scene.sides)}
    asked = {name: value for name, value in message.items() if name in (*last, "kind", "text", "unit", "block", "head")}
    for name, value in asked.items():
        words = name in ("kind", "text")
        if not (isinstance(value, str) if words else type(value) is int and 0 <= value < last.get(name, 1 << 31)):
            raise UsageError(f"{name} is {value!r}, which this view does not have.")
    if question == "compare" and message.get("origin"):
        asked["origin"] = message["origin"]
    return QUESTIONS[question](scene, asked, selected)


def shown_sides(scene: Scene, step: int) -> list[int]:
    """The sides on the left and on the right."""
    return [0] if len(scene.sides) == 1 else [0, step]


def short_texts(scene: Scene) -> list[str]:
    """One line for each example: its text, or its id if there is no text."""
    if scene.texts is None:
        return scene.ids.tolist()
    return [" | ".join(texts) for texts in scene.texts]


def shown_label(scene: Scene, value: Any) -> str:
    """A label or a prediction in words; "" if it is missing."""
    if not scene.label_names:
        return "" if value != value else f"{float(value):.3g}"
    return scene.label_names[int(value)] if 0 <= int(value) < len(scene.label_names) else ""


def facts(scene: Scene, index: int) -> list[list[str]]:
    """What is known of an example, as names and values."""
    found = [[label_title(scene), shown_label(scene, scene.labels[index])]]
    if scene.domains is not None:
        found.append(["domain", str(scene.domains[index])])
    return [*[fact for fact in found if fact[1]], ["length", f"{int(scene.lengths[index])} tokens"]]


def _item(scene: Scene, index: int) -> dict[str, Any]:
    text = scene.ids[index] if scene.texts is None else " | ".join(scene.texts[index])
    short = str(text) if len(text) <= SHORT else f"{text[:SHORT]} …"
    return {"index": int(index), "text": short, "label": shown_label(scene, scene.labels[index])}


def _example(scene: Scene, asked: Mapping[str, Any], _: np.ndarray) -> dict[str, Any]:
    index, layer, sides = asked["index"], asked["layer"], shown_sides(scene, asked["step"])
    return {
        "id": str(scene.ids[index]),
        "texts": [] if scene.texts is None else list(scene.texts[index]),
        "mark": mark(scene, index),
        "facts": facts(scene, index),
        "predictions": _predictions(scene, index, sides),
        "neighbours": [_neighbours(scene, side, layer, index) for side in sides],
    }


def mark(scene: Scene, index: int) -> list[int]:
    """Which text of a token's point holds it, from which character to which; [0, 0, 0] for examples."""
    known = scene.tokens_unit and scene.texts is not None and scene.sources is not None
    return [int(v) for v in marks(scene, np.array([index]))[0]] if known else [0, 0, 0]


def _find(scene: Scene, asked: Mapping[str, Any], _: np.ndarray) -> dict[str, Any]:
    """The examples whose id or text holds what was asked for; those of that id first."""
    wanted = asked["text"].strip().casefold()
    named = zip((str(id_).casefold() for id_ in scene.ids), short_texts(scene), strict=True)
    found = [(id_ != wanted, i) for i, (id_, text) in enumerate(named) if wanted in id_ or wanted in text.casefold()]
    items = [_item(scene, i) for _, i in sorted(found)[:FOUND]] if wanted else []
    return {"items": items, "total": len(found) if wanted else 0}


def _predictions(scene: Scene, index: int, sides: Sequence[int]) -> dict[str, Any]:
    """What the probe of each layer says of an example; sides without rows have none."""
    right = correct(scene)
    found = []
    for number in sides if stacked(scene, "prediction") is not None else ():
        side, items = scene.sides[number], list[dict[str, Any]]()
        if side.prediction is None:
            found.append({"name": f"{side.name} (no predictions)", "items": items})
            continue
        for layer in range(len(side.layers)):
            known = -1 if right is None else int(right[number, layer, index])
            sure = float("nan") if side.confidence is None else float(side.confidence[layer, index])
            label = shown_label(scene, side.prediction[layer, index])
            shown = f"{100 * sure:.0f} %" if isfinite(sure) else ""
            items.append({"label": label, "confidence": shown, "right": None if known < 0 else known == 1})
        found.append({"name": side.name, "items": items})
    return {"layers": list(scene.layers), "sides": found}


def _neighbours(scene: Scene, side: int, layer: int, index: int) -> dict[str, Any]:
    name = scene.sides[side].name
    if scene.sources is None:
        return {"name": name, "items": [], "reason": NO_CACHES}
    near = scene.neighbours(side, scene.layers[layer], index, NEIGHBOURS)
    pairs = zip(near["point"].tolist(), near["distance"].tolist(), strict=True)
    return {
        "name": name,
        "items": [
            _item(scene, point) | {"distance": distance if distance > SAME else 0.0} for point, distance in pairs
        ],
    }


def _strip(scene: Scene, asked: Mapping[str, Any], _: np.ndarray) -> dict[str, Any]:
    """The tokens of an example with a number for each layer; ``most`` is the largest, which has the full colour."""
    index, kind = asked["index"], str(asked["kind"])
    several, label = len(scene.label_names) > 2, scene.labels[index]
    options: dict[str, Any] = {"unit": asked["unit"]} if kind == "unit" else {}
    if kind == "logit" and several:
        options["label"] = max(0, int(label))
    found = scene.token_strip(index, kind, **options)
    known = [values[np.isfinite(values)] for values in found.values]
    sides = [
        {"name": scene.sides[side].name, "tokens": list(found.tokens[side]), "values": _rounded(found.values[side])}
        for side in shown_sides(scene, asked["step"])
    ]
    most = max((float(np.abs(values).max()) for values in known if values.size), default=0.0)
    return {"most": most, "note": found.note, "layers": list(scene.layers), "sides": sides}


def _rounded(values: np.ndarray) -> list[list[float | None]]:
    """Rows of numbers with four digits; None where there is none."""
    return [[float(f"{v:.4g}") if isfinite(v) else None for v in row] for row in values.tolist()]


def _attention(scene: Scene, asked: Mapping[str, Any], _: np.ndarray) -> dict[str, Any]:
    sides = []
    for side in shown_sides(scene, asked["step"]):
        found = scene.attention(asked["index"], side=side, heads=[(asked["block"], asked["head"])])
        about = {"name": scene.sides[side].name, "tokens": list(found.tokens), "note": found.note}
        sides.append(about | {"weights": _rounded(found.weights[0])})
    return {"sides": sides}


def _unit(scene: Scene, asked: Mapping[str, Any], _: np.ndarray) -> dict[str, Any]:
    """One unit of a layer. Without token vectors its highest examples are shown."""
    side, layer = asked["side"], asked["layer"]
    name, other = scene.layers[layer], None if len(scene.sides) == 1 else (asked.get("step", 1) if side == 0 else 0)
    found = scene.unit(side, name, asked["unit"], k=TOP, other=other)
    units, by = ranked(scene, side, layer)
    return {
        "unit": asked["unit"], "units": int(scene.open_sources.vectors(side, layer).shape[1]),
        "name": scene.sides[side].name, "layerName": name, "ranking": units, "by": by,
        **_highest(scene, found), "histogram": _histogram(found), "values": _of_values(scene),
        "similar": _similar(scene, found, other), "noise": _noise(found),
    }  # fmt: skip


RANKED = {
    "probe": "ranked by weight in the linear discriminant of train",
    "correlation": "ranked by correlation with the labels of the shown points",
}


def ranked(scene: Scene, side: int, layer: int) -> tuple[list[int], str]:
    """The units that weigh most in the linear discriminant of a layer, else by correlation; and which it is."""
    for by, words in RANKED.items():
        try:
            return [int(u) for u in scene.rank_units(side, scene.layers[layer], by=by, k=TOP)["unit"]], words
        except UsageError:  # no training caches, equal labels
            continue
    return [], ""


def ranking(scene: Scene, side: int, layer: int) -> list[int]:
    """The units of :func:`ranked`."""
    return ranked(scene, side, layer)[0]


def _noise(found: Any) -> str:
    """How similar units look that have nothing to do with each other, in words."""
    if not isfinite(found.noise):
        return ""
    return (
        f"The most similar of {found.searched:,} units. If none had to do with this one, the largest |r| would stay "
        f"below {found.noise:.2f} in 95 % of cases (Šidák)."
    )


def _highest(scene: Scene, found: Any) -> dict[str, Any]:
    if found.tokens is None:
        top = np.argsort(-found.values, kind="stable")[:TOP].tolist()
        items = [_item(scene, i) for i in top]
        texts = [
            {"before": "", "token": "", "after": item.pop("text"), "value": float(found.values[item["index"]])}
            for item in items
        ]
        shown = [item | text for item, text in zip(items, texts, strict=True)]
        return {"of": "Examples with the highest values", "top": shown}
    at = {
        str(id_).rpartition(":")[0] if scene.tokens_unit else str(id_): i
        for i, id_ in reversed(list(enumerate(scene.ids)))
    }
    rows = [
        {"index": at[row.id], "value": float(row.value), "before": f"{row.before} ", "token": row.token,
         "after": f" {row.after}", "label": "" if row.label is None else str(row.label)}
        for row in found.tokens.itertuples()
    ]  # fmt: skip
    return {"of": "Tokens with the highest values (each token's own vector)", "top": rows}


def _of_values(scene: Scene) -> str:
    """Whose values the histograms show, in words: those of the points, not of the highest tokens."""
    if scene.tokens_unit:
        return f"Values of the {scene.open_sources.points.unit}, by {label_title(scene)}"
    return f"Values of the examples (vectors pooled by {scene.open_sources.pooling}), by label"


def _histogram(found: Any) -> dict[str, Any]:
    groups = [{"name": name, "counts": counts.tolist()} for name, counts in found.histogram.items()]
    return {"edges": [float(f"{v:.3g}") for v in found.edges], "groups": groups}


def _similar(scene: Scene, found: Any, other: int | None) -> list[dict[str, Any]]:
    if other is None or found.similar is None:
        return []
    layers = scene.sides[other].layers
    return [
        {"side": other, "name": scene.sides[other].name, "layer": layers.index(row.layer), "layerName": row.layer,
         "unit": int(row.unit), "r": float(row.correlation)}
        for row in found.similar.itertuples()
    ]  # fmt: skip


def _selection(scene: Scene, _: Mapping[str, Any], selected: np.ndarray) -> dict[str, Any]:
    return {"ids": scene.ids[selected].tolist(), "items": [_item(scene, i) for i in selected[:LISTED]]}


def _compare(scene: Scene, asked: Mapping[str, Any], selected: np.ndarray) -> dict[str, Any]:
    """The selection and the rest at this layer, for the shown models.

    ``origin`` is what a click in the table selected, as text, layer and step: accuracy there differs by construction.
    """
    _, layer, step = asked.get("origin", ("", -1, 0))
    defining = {scene.sides[side].name for side in shown_sides(scene, step)} if layer == asked["layer"] else set()
    table = scene.compare_selection(scene.ids[selected].tolist(), scene.layers[asked["layer"]])
    names = {"", *(scene.sides[side].name for side in shown_sides(scene, asked["step"]))}
    rows = []
    row: Any
    for row in table[table["model"].isin(names)].itertuples():
        of = f"{row.model}, layer {row.layer}" if row.model else "all layers"
        cells = [
            f"{v:.3f}" if isfinite(v) else ""
            for v in (row.selection, row.rest, row.difference, row.ci_low, row.ci_high)
        ]
        if row.quantity == "accuracy" and row.model in defining:
            cells[2:] = "", "", ""
        rows.append([of, row.quantity, *cells[:3], f"{cells[3]} to {cells[4]}" if cells[3] else ""])
    return {"rows": rows, "notes": [*[DEFINED] * bool(defining), table.attrs["note"]]}


def mcnemar(scene: Scene, step: int, layer: int) -> str:
    """The test of gained and lost examples at a layer, in words; or why there is none."""
    if without := [side.name for side in (scene.sides[0], scene.sides[step]) if side.prediction is None]:
        return f"No examples gained or lost here: there are no rows with predictions of {' and '.join(without)}."
    found = scene.gained_and_lost(scene.layers[layer], step)
    test = f"Exact test that gains and losses are equally likely (n = {found.n:,}): {p_equals(found.p)}"
    return f"{test}; {found.note}"


QUESTIONS: dict[str, Callable[[Scene, Mapping[str, Any], np.ndarray], dict[str, Any]]] = {
    "attention": _attention,
    "compare": _compare,
    "example": _example,
    "find": _find,
    "selection": _selection,
    "strip": _strip,
    "unit": _unit,
}
"""All that a page can ask."""
