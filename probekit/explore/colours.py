"""What a map can be coloured by: a palette position for each example, and the legend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.plots.look import COLOURS, GREYS

if TYPE_CHECKING:
    from probekit.analyses.exploration.scene import Scene

CATEGORIES = COLOURS[:6]
"""Okabe & Ito's colours that are visible on light and on dark paper."""
OTHER = GREYS[0]
STEPS = 64
BOTH_WRONG, LOST, GAINED, BOTH_RIGHT, UNKNOWN = range(5)
OUTCOMES = ("wrong in both", "lost: right only left", "gained: right only right", "right in both")
RIGHT = ("wrong", "right")


@dataclass(frozen=True, slots=True, eq=False)
class Colour:
    """A way to colour the maps.

    Attributes
    ----------
    name, title : str
        Its key in a state, and its name for readers.
    values : ndarray of uint8 (1 or sides, 1 or layers, n)
        Positions in the palette; the last is "missing".
    palette : tuple of str
        Colours, "#rrggbb".
    labels : tuple of tuple of str
        The name of each colour; for numbers the lowest and the highest value. One for all layers, or one for each.
    pair : bool
        Whether both maps show the values of the right side.
    """

    name: str
    title: str
    values: np.ndarray
    palette: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    pair: bool = False

    @property
    def is_number(self) -> bool:
        """Whether the palette is a scale from the first to the last label."""
        return len(self.palette) == STEPS + 1

    def at(self, side: int, step: int, layer: int) -> np.ndarray:
        """The palette positions (n,) of a side at a layer; ``step`` is the side on the right."""
        values = self.values[min(step if self.pair else side, len(self.values) - 1)]
        return np.asarray(values[min(layer, len(values) - 1)])

    def legend(self, layer: int) -> dict[str, Any]:
        """The legend of a layer as JSON. Colours without a label are the missing values."""
        kind, labels = "number" if self.is_number else "category", self.labels[min(layer, len(self.labels) - 1)]
        return {"kind": kind, "title": self.title, "labels": list(labels), "colours": list(self.palette)}


def colours(scene: Scene) -> list[Colour]:
    """All colours of a scene, labels first."""
    return [*_labels(scene), *_answers(scene), *_facts(scene)]


def label_title(scene: Scene) -> str:
    """What the label of a point is called: a token that is not labelled itself has that of its text."""
    own = not scene.tokens_unit or (scene.sources is not None and scene.sources.points.unit == "words")
    return "label" if own else "label of the text"


def _labels(scene: Scene) -> Iterator[Colour]:
    """The gold labels, and the predictions of the probes in the same colours."""
    labels = np.asarray(scene.labels)
    predicted = stacked(scene, "prediction")
    if labels.dtype.kind == "f":
        held = labels[np.isfinite(labels)]
        ends = [(float(held.min()), float(held.max())) if held.size else (0.0, 1.0)]
        yield _number("label", label_title(scene), labels, ends)
        if predicted is not None:
            yield _number("prediction", "prediction of the probe", predicted, ends)
        return
    names = tuple(map(str, scene.label_names)) or tuple(map(str, range(int(labels.max(initial=0)) + 1)))
    order = np.argsort(-np.bincount(labels[labels >= 0], minlength=len(names)), kind="stable")
    yield _classes("label", label_title(scene), labels[None, None], names, order)
    if predicted is not None:
        yield _classes("prediction", "prediction of the probe", predicted, names, order)


def _answers(scene: Scene) -> Iterator[Colour]:
    """Whether the probes are right, what both sides say together, and how confident they are."""
    right = correct(scene)
    if right is not None:
        yield _classes("error", "error of the probe", right, RIGHT, np.arange(2), (CATEGORIES[1], CATEGORIES[0]))
    together = outcomes(scene)
    if (together != UNKNOWN).any():
        shown = (OTHER, CATEGORIES[1], CATEGORIES[0], GREYS[1])
        values = np.concatenate([together[:1], together])
        yield _classes("change", "gained and lost", values, OUTCOMES, np.arange(4), shown, pair=True)
    if (confidence := stacked(scene, "confidence")) is not None:
        yield _number("confidence", "confidence of the probe", confidence, [(0.0, 1.0)])


def _facts(scene: Scene) -> Iterator[Colour]:
    """Domain, cluster and length of the examples, and how far they moved."""
    if scene.domains is not None:
        names, codes = np.unique(np.asarray(scene.domains).astype(str), return_inverse=True)
        order = np.argsort(-np.bincount(codes), kind="stable")
        yield _classes("domain", "domain", codes[None, None], tuple(names), order)
    if all(side.clusters is not None for side in scene.sides):
        clusters = np.stack([side.clusters for side in scene.sides])  # type: ignore[misc]
        numbers = tuple(f"cluster {i + 1}" for i in range(int(clusters.max(initial=0)) + 1))
        yield _classes("cluster", "cluster of this layer", clusters, numbers, np.arange(len(numbers)))
    yield _number("length", "length", scene.lengths)
    if scene.movement is not None and len(scene.movement):
        values = np.concatenate([scene.movement[:1], scene.movement])
        scales = [_ends(layer) for layer in np.swapaxes(scene.movement, 0, 1)]  # far layers would darken the others
        yield _number("movement", "movement from the left model, scaled by layer", values, scales, pair=True)


def stacked(scene: Scene, name: str) -> np.ndarray | None:
    """An array of all sides, (sides, layers, n); -1 or NaN for sides that lack it, None if all do."""
    found = [getattr(side, name) for side in scene.sides]
    held = [one for one in found if one is not None]
    if not held:
        return None
    missing = np.full_like(held[0], np.nan if held[0].dtype.kind == "f" else -1)
    return np.stack([missing if one is None else one for one in found])


def correct(scene: Scene) -> np.ndarray | None:
    """Whether each probe is right: int8 (sides, layers, n), -1 unknown; None without predictions of classes."""
    labels, guess = np.asarray(scene.labels), stacked(scene, "prediction")
    if labels.dtype.kind == "f" or guess is None:
        return None
    return np.where((labels < 0) | (guess < 0), -1, guess == labels).astype(np.int8)


def outcomes(scene: Scene) -> np.ndarray:
    """What the first side and each further side say of each example: uint8 (sides - 1, layers, n)."""
    right = correct(scene)
    if right is None:
        return np.zeros((0, len(scene.sides[0].layers), len(scene.ids)), np.uint8)
    first, others = right[:1], right[1:]
    code = np.where(first == 1, np.where(others == 1, BOTH_RIGHT, LOST), np.where(others == 1, GAINED, BOTH_WRONG))
    return np.where((first < 0) | (others < 0), UNKNOWN, code).astype(np.uint8)


def _classes(
    name: str, title: str, codes: np.ndarray, names: tuple[str, ...], order: np.ndarray,
    shown: tuple[str, ...] = CATEGORIES, *, pair: bool = False,
) -> Colour:  # fmt: skip
    """Categories; all after the first of ``order`` that have a colour share one, "other". codes : (…, n), -1 missing"""
    several = len(names) - len(shown)
    first = [int(i) for i in order[: len(shown) if several <= 0 else len(shown) - 1]]
    place = np.full(len(names) + 2, len(first), np.uint8)
    place[first] = np.arange(len(first))
    missing = len(first) + (several > 0)
    place[-2:] = missing
    labels = [names[i] for i in first] + [f"{len(names) - len(first)} others"] * (several > 0)
    values = place[np.where(codes < 0, len(names), np.minimum(codes, len(names)))]
    held = (values == missing).any()
    palette = (*shown[: len(first)], *[GREYS[1]] * (several > 0), OTHER)
    return Colour(name, title, values, palette, ((*labels, *["missing"] * bool(held)),), pair)


def _ends(values: np.ndarray) -> tuple[float, float]:
    """The 1st and the 99th percentile."""
    held = values[np.isfinite(values)]
    low, high = np.percentile(held, (1, 99)) if held.size else (0.0, 1.0)
    return float(low), float(high)


def _number(
    name: str, title: str, values: np.ndarray, scales: Sequence[tuple[float, float]] = (), *, pair: bool = False
) -> Colour:
    """A number on one scale, by default from its 1st to its 99th percentile, or on one for each layer."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    values = np.asarray(values, np.float32)
    values = values.reshape((1,) * (3 - values.ndim) + values.shape)
    scales = scales or [_ends(values)]
    low, high = (np.array(ends)[:, None] for ends in zip(*scales, strict=True))
    scaled = (np.nan_to_num(values) - low) / np.where(high > low, high - low, 1.0)
    codes = np.where(np.isfinite(values), np.clip(scaled * STEPS, 0, STEPS - 1), STEPS).astype(np.uint8)
    map_ = colormaps["cividis"]
    palette = (*(to_hex(map_((i + 0.5) / STEPS)) for i in range(STEPS)), OTHER)
    return Colour(name, title, codes, palette, tuple((f"{a:.3g}", f"{b:.3g}") for a, b in scales), pair)
