"""What a page keeps of the answers that need the caches: neighbours of all points, tokens and units of some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.exploration.selection import CHOSEN_BY_EYE
from probekit.errors import ProbekitError
from probekit.explore.colours import GAINED, LOST, outcomes
from probekit.explore.questions import DEFINED, NEIGHBOURS, NO_CACHES, SAME, STRIPS, answer, ranking
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    from probekit.analyses.exploration.scene import Scene

__all__ = ["nearest", "stored"]

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
    chosen, found, reason = _told(scene), dict[str, dict[int, Any]](), ""
    for kind in [kind for kind in STRIPS if kind != "unit"]:
        try:
            found[kind] = {}
            for number, index in enumerate(chosen):
                found[kind][index] = _all_sides(scene, index, kind)
                progress(f"tokens ({STRIPS[kind]})", number + 1, len(chosen))
        except ProbekitError as error:
            del found[kind]
            reason = reason or str(error)
    text = (
        f"This page holds the tokens of {len(chosen):,} of {len(scene):,} points: first those gained or lost, then "
        "those that moved most; open the caches for others."
    )
    return found, text if found else f"This page holds no tokens: {_without_tokens(scene) or reason}"


def _told(scene: Scene) -> list[int]:
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
    held = f"; {' and '.join(by[True])} has them" if by[True] else ""
    return f"{' and '.join(by[False])} has no token vectors (make it with --tokens){held}."


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
