"""The saved page: maps, panels and stored answers of a view in one file that needs no network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.exploration.selection import CHOSEN_BY_EYE
from probekit.analyses.exploration.texts import marks
from probekit.errors import ProbekitError, UsageError
from probekit.explore.colours import GAINED, LOST, Colour, colours, correct, outcomes, stacked
from probekit.explore.maps import appearance
from probekit.explore.options import PAGE, check_page
from probekit.explore.panels import captions, values
from probekit.explore.places import methods, place
from probekit.explore.questions import DEFINED, NEIGHBOURS, NO_CACHES, SAME, STRIPS, answer, facts, ranking
from probekit.files import MARK, write
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    from probekit.analyses.exploration.scene import Scene
    from probekit.explore.view import View

NUMBERS = 1_000_000
"""Numbers of tokens and layers that are kept, at most."""
UNITS = 2
"""Units of each layer that are kept."""
BLOCK = 512
NONE = np.zeros(0, np.uint32)


def stored(scene: Scene, *, progress: Progress = no_progress) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The stored answers as JSON and as arrays, and why others are missing.

    Parameters
    ----------
    scene : Scene
        What is shown.
    progress : callable
        Receives the progress of the work.
    """
    without = {
        "neighbours": NO_CACHES,
        "strips": "This page does not hold the tokens of this example.",
        "attention": "Attention is computed in a notebook only.",
        "units": "This page does not hold this unit.",
        "compare": CHOSEN_BY_EYE,
        "defined": DEFINED,
    }
    extra: dict[str, Any] = {"distances": [0, 1], "strips": {}, "units": {}, "kept": {}, "without": without}
    if scene.sources is None:
        return extra, {}
    arrays, extra["distances"] = _neighbours(scene, progress)
    extra["strips"], without["strips"] = _strips(scene, progress)
    extra["units"], extra["kept"] = _units(scene, progress)
    return extra, arrays


def nearest(x: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and cosine distances (n, k) of the nearest rows of each row, as :meth:`Scene.neighbours` has them.

    Rows of norm 0 have distance 1 from all others here, so that each row has ``k`` neighbours.
    """
    rows = np.asarray(x[:], np.float32)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    unit = (rows / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32)
    place, distance = np.zeros((len(unit), k), np.int64), np.zeros((len(unit), k))
    for start in range(0, len(unit), BLOCK):
        far = 1 - unit[start : start + BLOCK] @ unit.T
        at = np.arange(len(far))
        far[at, start + at] = np.inf
        near = np.argpartition(far, k - 1, axis=1)[:, :k] if k < far.shape[1] else np.argsort(far, axis=1)[:, :k]
        order = np.take_along_axis(near, np.argsort(np.take_along_axis(far, near, 1), axis=1, kind="stable"), 1)
        place[start : start + BLOCK] = order
        distance[start : start + BLOCK] = np.take_along_axis(far, order, 1)
    return place, np.maximum(distance, 0)


def _neighbours(scene: Scene, progress: Progress) -> tuple[dict[str, np.ndarray], list[float]]:
    """Positions of the neighbours of all points, and the logarithm of their distances in 16 bits, with its range."""
    k = min(NEIGHBOURS, len(scene) - 1)
    shape = (len(scene.sides), len(scene.layers), len(scene), k)
    place, distance = np.zeros(shape, np.uint16 if len(scene) < 1 << 16 else np.uint32), np.zeros(shape)
    for side in range(shape[0]):
        for layer in range(shape[1]):
            place[side, layer], distance[side, layer] = nearest(scene.open_sources.vectors(side, layer), k)
            progress("neighbours", side * shape[1] + layer + 1, shape[0] * shape[1])
    positive = distance > SAME
    logs = np.log(distance, out=np.zeros_like(distance), where=positive)
    low, high = (float(logs[positive].min()), float(logs[positive].max())) if positive.any() else (0.0, 1.0)
    code = np.where(positive, np.round((logs - low) / (high - low or 1) * 65534), 65535).astype(np.uint16)
    return {"neighbours": place, "distance": code}, [low, high]


def _strips(scene: Scene, progress: Progress) -> tuple[dict[str, dict[int, Any]], str]:
    """The tokens of the examples that tell most, by kind; and what is said of all others."""
    chosen, kinds, reason = _points_with_tokens(scene), [kind for kind in STRIPS if kind != "unit"], ""
    found: dict[str, dict[int, Any]] = {kind: {} for kind in kinds}
    for number, index in enumerate(chosen):
        for kind in list(found):
            try:
                found[kind][index] = _all_sides(scene, index, kind)
            except ProbekitError as error:
                del found[kind]
                reason = reason or str(error)
        progress("tokens", number + 1, len(chosen))
    text = (
        f"This page holds the tokens of {len(chosen):,} of {len(scene):,} points: first those gained or lost, then "
        "those that moved most; open the caches for others."
    )
    return found, text if found else f"This page holds no tokens: {_without_tokens(scene) or reason}"


def _points_with_tokens(scene: Scene) -> list[int]:
    """The points whose tokens are kept, as many as fit: gained or lost, then those that moved most, then any."""
    changed = np.isin(outcomes(scene), (GAINED, LOST)).sum(axis=(0, 1))
    moved = np.zeros(len(scene)) if scene.movement is None else np.nan_to_num(scene.movement[-1, -1])
    order = np.lexsort((np.random.default_rng(0).permutation(len(scene)), -moved, -changed))
    numbers = len(STRIPS) * len(scene.sides) * len(scene.layers) * np.cumsum(scene.lengths[order])
    return order[: max(1, int(np.searchsorted(numbers, NUMBERS, side="right")))].tolist()


def _without_tokens(scene: Scene) -> str:
    """Which caches have token vectors and which have not; "" if all have."""
    by: dict[bool, list[str]] = {True: [], False: []}
    for cache in scene.open_sources.caches:
        by[bool(cache.spec["tokens"])].append(cache.path.name)
    if not by[False]:
        return ""
    held = f"; {' and '.join(by[True])} {'has' if len(by[True]) == 1 else 'have'} them" if by[True] else ""
    has, it = ("has", "it") if len(by[False]) == 1 else ("have", "them")
    return f"{' and '.join(by[False])} {has} no token vectors (make {it} with --tokens){held}."


def _all_sides(scene: Scene, index: int, kind: str) -> dict[str, Any]:
    found = answer(scene, {"question": "strip", "index": index, "step": len(scene.sides) - 1, "kind": kind}, NONE)
    if len(scene.sides) > 2:
        others = [
            answer(scene, {"question": "strip", "index": index, "step": step, "kind": kind}, NONE)
            for step in range(1, len(scene.sides))
        ]
        found["sides"] = [found["sides"][0], *(other["sides"][-1] for other in others)]
    return found


def _units(scene: Scene, progress: Progress) -> tuple[dict[str, Any], dict[str, str]]:
    """The first units of the ranking of each layer, and what is said of all others."""
    found, kept = {}, {}
    layers, last = range(len(scene.layers)), len(scene.sides) - 1
    sides = sorted({0, last})
    for side in sides:
        for layer in layers:
            units = ranking(scene, side, layer)[:UNITS]
            for unit in units:
                step = min(max(1, side), last)
                asked = {"question": "unit", "side": side, "layer": layer, "unit": unit, "step": step}
                found[f"{side} {layer} {unit}"] = answer(scene, asked, NONE)
            listed = " and ".join(map(str, units))
            kept[f"{side} {layer}"] = f"Of this layer it holds {listed}, the first in the ranking." if units else ""
            progress("units", layer + 1, len(layers))
    return found, kept


MOST = 20_000
"""Points of a page, at most."""
LONGEST = 10_000
"""Characters of a text, at most."""
MODULES = ("controls", "caption", "curve", "selection", "example", "units", "notes")


def save_page(view: View, path: str | Path, progress: Progress = no_progress) -> Path:
    """Write a view as one HTML page; see :meth:`probekit.explore.view.View.save`."""
    path, size = Path(path), len(view.scene)
    check_page(path)
    if size > MOST:
        raise UsageError(f"a page holds at most {MOST:,} points, and this view has {size:,}; set max_points to {MOST}.")
    return write(path, _html(view, progress), PAGE)


def _html(view: View, progress: Progress) -> str:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    here, scene = files("probekit.explore") / "static", view.scene
    script = (here / "page.js").read_text(encoding="utf-8")
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = "\n".join([str(view.maps[0]._css), (here / "explore.css").read_text(encoding="utf-8")])
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string((here / "page.html").read_text(encoding="utf-8")).render(
        title=f"{scene.title} ({len(scene):,} {'tokens' if scene.tokens_unit else 'examples'})",
        unit="token" if scene.tokens_unit else "example",
        sides=["left", "right"][: len(view.maps)],
        command=view.made_by,
        mark=MARK,
        style=Markup(style),
        script=Markup(script),
        script_hash=f"sha256-{hashed}",
        data=Markup(base64.b64encode(_packed(view, progress)).decode()),
    )


def _packed(view: View, progress: Progress) -> bytes:
    """The contents of the page, compressed: the length of a JSON object, the object, and the arrays that it lists."""
    scene = view.scene
    shown = colours(scene)
    known = values(scene, shown)
    arrays = _arrays(scene, shown)
    extra, more = stored(scene, progress=progress)
    arrays |= more
    known["example"]["kinds"] = [kind for kind in known["example"]["kinds"] if kind[0] in extra["strips"]]
    arrays["outcomes"] = np.frombuffer(known["curve"].pop("outcomes"), np.uint8)
    state = {name: getattr(view, name) for name in ("layer", "step", "method", "colour", "example", "origin")}
    head: dict[str, Any] = {
        "state": state | {"selected": view.selection.indices.tolist()},
        "panels": _panels(known, scene),
        "ids": scene.ids.tolist(),
        "texts": None if scene.texts is None else [[text[:LONGEST] for text in texts] for texts in scene.texts],
        "labels": [None if v != v else v for v in np.asarray(scene.labels).tolist()],
        "label_names": list(scene.label_names),
        "domain_names": [] if scene.domains is None else np.unique(scene.domains).astype(str).tolist(),
        "facts": [facts(scene, i) for i in range(len(scene))],
        "sides": [side.name for side in scene.sides],
        "predicted": [side.prediction is not None for side in scene.sides],
        "confident": [side.confidence is not None for side in scene.sides],
        "layers": list(scene.layers),
        "methods": methods(scene),
        "pairs": [colour.name for colour in shown if colour.pair],
        "legends": {colour.name: [colour.legend(layer) for layer in range(len(colour.labels))] for colour in shown},
        "looks": {c.name: {"light": appearance(c, dark=False), "dark": appearance(c, dark=True)} for c in shown},
        "captions": _captions(scene),
        "map": _map(view.maps[0]),
        "modules": {"map": str(view.maps[0]._esm)} | {name: _module(name) for name in MODULES},
        **extra,
    }
    return _bundle(head, arrays)


def _module(name: str) -> str:
    return (files("probekit.explore") / "static" / f"{name}.js").read_text(encoding="utf-8")


def _panels(known: Mapping[str, Any], scene: Scene) -> dict[str, Any]:
    blank: dict[str, Any] = {"name": "", "text": "", "note": "", "width": 0}
    first: dict[str, dict[str, Any]] = {"controls": {"legend": {}}, "left": blank, "right": blank}
    merged = {name: {**first.get(name, {}), **known.get(name, {})} for name in (*first, *known)}
    merged["selection"] |= {"hint": ""}  # what it hints at is Python
    merged["example"] |= {"attends": False}
    return merged if len(scene.sides) > 1 else {name: merged[name] for name in merged if name != "right"}


def _captions(scene: Scene) -> list[dict[str, list[list[str]]]]:
    """For each side and projection the caption of each layer and its note."""
    found = []
    for side in range(len(scene.sides)):
        by_method = {}
        for method in methods(scene):
            layers = (captions(scene, side, method, layer) for layer in range(len(scene.layers)))
            by_method[method] = [[caption["text"], caption["note"]] for caption in layers]
        found.append(by_method)
    return found


def _map(widget: Any) -> dict[str, Any]:
    """The traits of a map that do not depend on the scene."""
    skipped = {"points", "selection", "layout", "tabbable", "tooltip", "filter", "dom_element_id", "view_sync"}
    state = {k: v for k, v in widget.get_state().items() if not k.startswith("_") and k not in skipped}
    return json.loads(json.dumps(state, default=float)) | {"filter": None, "hovering": None, "view_sync": "page"}


def _arrays(scene: Scene, shown: Sequence[Colour]) -> dict[str, np.ndarray]:
    sides, layers = range(len(scene.sides)), range(len(scene.layers))
    xy = [[[place(scene, s, m, layer).xy for layer in layers] for s in sides] for m in methods(scene)]
    arrays = {"xy": np.round((np.array(xy) + 1) * 32767.5).astype(np.uint16)}
    arrays |= {f"colour {colour.name}": colour.values for colour in shown}
    arrays["lengths"] = np.asarray(scene.lengths, np.float32)
    if scene.tokens_unit and scene.texts is not None and scene.sources is not None:
        arrays["marks"] = marks(scene, np.arange(len(scene))).astype(np.uint32)
    if scene.groups is not None:
        arrays["groups"] = np.unique(scene.groups, return_inverse=True)[1].astype(np.uint32)
    if scene.domains is not None:
        arrays["domains"] = np.unique(scene.domains, return_inverse=True)[1].astype(np.uint32)
    if scene.movement is not None:
        arrays["movement"] = scene.movement.astype(np.float32)
    right = correct(scene)
    if right is not None:
        arrays["right"] = np.where(right < 0, 2, right).astype(np.uint8)
    if (prediction := stacked(scene, "prediction")) is not None:
        arrays["prediction"] = prediction.astype(np.float32 if prediction.dtype.kind == "f" else np.int16)
    if (confidence := stacked(scene, "confidence")) is not None:
        arrays["confidence"] = confidence.astype(np.float32)
    return arrays


def _bundle(head: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays begin at multiples of four bytes; their places are in the object, which is padded with spaces."""
    places: dict[str, dict[str, Any]] = {}
    start = 0
    for name, array in arrays.items():
        places[name] = {"dtype": str(array.dtype), "shape": list(array.shape), "start": start}
        start += array.nbytes + -array.nbytes % 4
    beginning = json.dumps(head, ensure_ascii=False, allow_nan=False).encode()[:-1] + b', "arrays": '
    size = len(beginning) + len(json.dumps(places).encode()) + 1 + 12 * len(places) + 4
    size += -size % 4
    for one in places.values():
        one["start"] += 4 + size
    text = (beginning + json.dumps(places).encode() + b"}").ljust(size)
    parts = [len(text).to_bytes(4, "little"), text]
    for array in arrays.values():
        parts += [np.ascontiguousarray(array).tobytes(), bytes(-array.nbytes % 4)]
    return gzip.compress(b"".join(parts), 6, mtime=0)
