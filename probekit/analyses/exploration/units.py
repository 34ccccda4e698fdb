"""Units and directions: what they respond to, in tokens, labels and the other model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from probekit.analyses.exploration.selection import label_texts
from probekit.analyses.exploration.texts import surfaces
from probekit.errors import UsageError, did_you_mean
from probekit.probes.units.rankings import Ranked, by_lines
from probekit.projection.plane import blocks, centre

if TYPE_CHECKING:
    import pandas as pd

    from probekit.analyses.exploration.data import SceneData

BINS = 30


@dataclass(frozen=True, eq=False)
class UnitView:
    """What a unit, or a direction, responds to.

    Attributes
    ----------
    name : str
        "unit 7" or "direction".
    layer : str
        The layer's name.
    values : np.ndarray
        float32 (n,), the activation of each point.
    tokens : DataFrame or None
        The top-activating tokens: value, token, before, after, id, label; None if the cache has no token vectors.
    edges : np.ndarray
        float (bins + 1,) of the histogram.
    histogram : mapping of str to np.ndarray
        Counts (bins,) by label; "all" for numbers.
    similar : DataFrame or None
        The units of the other model that correlate most over the points: layer, unit, correlation.
    searched : int
        Number of units among which they are the most similar.
    noise : float
        If none of them had to do with this unit, the largest |correlation| would be below this in 95 % of cases:
        Šidák's bound with Student's distribution, too large if they correlate with each other; NaN if none
        were searched.
    """

    name: str
    layer: str
    values: np.ndarray
    tokens: pd.DataFrame | None
    edges: np.ndarray
    histogram: dict[str, np.ndarray]
    similar: pd.DataFrame | None
    searched: int = 0
    noise: float = float("nan")

    def __repr__(self) -> str:
        return f"<{self.name} of layer {self.layer}, {len(self.values):,} points>"


def unit_view(
    scene: SceneData, side: int, layer: int | str, unit: int | np.ndarray, *, k: int = 20, other: int | None = None
) -> UnitView:
    """What a unit, or a direction, responds to: tokens, labels, and units of another side.

    Parameters
    ----------
    side : int
        Position of the side.
    layer : int or str
        Name or number of the layer.
    unit : int or np.ndarray
        Number of the unit from 0, or a direction (d,).
    k : int
        Number of tokens, and of similar units.
    other : int, optional
        Position of the side in which similar units are searched for, in all its layers.
    """
    at, sources = scene.position(layer), scene.open_sources
    x = sources.vectors(side, at)
    direction = _direction(unit, x.shape[1])
    values = np.concatenate([part @ direction for part in blocks(x)])
    edges = np.histogram_bin_edges(values, BINS)
    histogram = {name: np.histogram(values[mask], edges)[0] for name, mask in _by_label(scene)}
    name = f"unit {unit}" if isinstance(unit, int | np.integer) else "direction"
    tokens = _top_tokens(scene, side, at, direction, k) if sources.caches[side].spec["tokens"] else None
    if tokens is not None and sources.is_paired(side):
        tokens = None
    similar, searched = (None, 0) if other is None else _similar(scene, values, other, k)
    independent = len(scene) if scene.groups is None else len(np.unique(scene.groups))
    noise = largest_of_noise(independent, searched)
    of = values.astype(np.float32)
    return UnitView(name, scene.layers[at], of, tokens, edges, histogram, similar, searched, noise)


def largest_of_noise(n: int, count: int, level: float = 0.95) -> float:
    """What the largest of ``count`` |correlations| over n unrelated points stays below with this probability."""
    if n < 4 or not count:
        return float("nan")
    t = stats.t.isf(-np.expm1(np.log(level) / count) / 2, n - 2)
    return float(t / np.sqrt(n - 2 + t * t))


def _direction(unit: int | np.ndarray, width: int) -> np.ndarray:
    if isinstance(unit, int | np.integer):
        if not 0 <= unit < width:
            raise UsageError(f"there is no unit {unit}; the layer has {width}, numbered from 0.")
        return np.eye(width)[unit]
    direction = np.asarray(unit, dtype=np.float64)
    if direction.shape != (width,) or not np.isfinite(direction).all() or not direction.any():
        raise UsageError(
            f"a direction has {width} finite numbers, not all 0; this one has the shape {direction.shape}."
        )
    return direction / np.linalg.norm(direction)


def _by_label(scene: SceneData) -> list[tuple[str, np.ndarray]]:
    if scene.labels.dtype.kind == "f":
        return [("all", np.ones(len(scene), dtype=bool))]
    found = [(name, scene.labels == c) for c, name in enumerate(scene.label_names)]
    return [*found, ("unlabelled", scene.labels < 0)] if (scene.labels < 0).any() else found


def _top_tokens(scene: SceneData, side: int, at: int, direction: np.ndarray, k: int) -> pd.DataFrame:
    """The tokens of the scene's examples with the largest activation; each distinct token and context once."""
    import pandas as pd

    sources, cache = scene.open_sources, scene.open_sources.caches[side]
    examples, first = np.unique(sources.points.examples[side], return_index=True)
    rows, count = sources.tokens[side].rows(examples)
    x = cache.tokens(sources.layers[side][at]).values
    parts = np.array_split(rows, len(rows) // 8192 + 1)
    activation = np.concatenate([x[part].astype(np.float64) @ direction for part in parts])
    _, once = np.unique(rows, return_index=True)  # a text that occurs twice has its tokens once
    top = once[np.argsort(-activation[once], kind="stable")[:k]]
    owner = np.repeat(np.arange(len(examples)), count)[top]
    place = top - (np.cumsum(count) - count)[owner]
    points = first[owner].tolist()
    strings = surfaces(sources.tokens[side], examples[owner], [scene.text_of(p) for p in points])
    shown = list(zip(strings, place.tolist(), strict=True))
    return pd.DataFrame(
        {
            "value": activation[top],
            "before": [" ".join(tokens[max(0, j - 8) : j]) for tokens, j in shown],
            "token": [tokens[j] for tokens, j in shown],
            "after": [" ".join(tokens[j + 1 : j + 9]) for tokens, j in shown],
            "id": cache.ids[examples[owner]],
            "label": label_texts(scene, scene.labels[points]),
        }
    )


def correlations(x: Any, values: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each column with values, float64 (d,); 0 for constant columns."""
    mean, centred = centre(x), values - values.mean()
    cross, square, start = np.zeros(x.shape[1]), np.zeros(x.shape[1]), 0
    for part in blocks(x):
        part -= mean
        cross += centred[start : start + len(part)] @ part
        square += (part * part).sum(0)
        start += len(part)
    scale = np.sqrt(square) * np.linalg.norm(centred)
    return np.divide(cross, scale, out=np.zeros_like(cross), where=scale > 0)


def _similar(scene: SceneData, values: np.ndarray, other: int, k: int) -> tuple[pd.DataFrame, int]:
    """The most similar units, and among how many."""
    import pandas as pd

    tables, searched = [], 0
    for layer, name in enumerate(scene.sides[other].layers):
        found = correlations(scene.open_sources.vectors(other, layer), values)
        searched += len(found)
        top = np.argsort(-np.abs(found), kind="stable")[:k]
        tables.append(pd.DataFrame({"layer": name, "unit": top, "correlation": found[top]}))
    table = pd.concat(tables, ignore_index=True)
    order = np.argsort(-table["correlation"].abs().to_numpy(), kind="stable")[:k]
    return table.iloc[order].reset_index(drop=True), searched


def rank_units(
    scene: SceneData, side: int, layer: int | str, *, by: str = "probe", label: int | str | None = None, k: int = 20
) -> pd.DataFrame:
    """The units of a layer that say most about a label.

    Parameters
    ----------
    side : int
        Position of the side.
    layer : int or str
        Name or number of the layer.
    by : str
        "probe": the weight of the standardised unit in a linear discriminant fitted on train; "correlation" with
        the label over the points.
    label : int or str, optional
        Default: the second of two labels; of more, the root of the sum of squares over all labels.
    k : int
        Number of units.

    Returns
    -------
    DataFrame
        unit and score, the largest magnitudes first.
    """
    import pandas as pd

    if by not in ("probe", "correlation"):
        raise UsageError(f"by is {by!r}; {did_you_mean(by, ('probe', 'correlation'))}")
    at, sources = scene.position(layer), scene.open_sources
    numbers = scene.labels.dtype.kind == "f"
    every = label is None and not numbers and len(scene.label_names) > 2
    classes = (
        list(range(len(scene.label_names)))
        if every
        else [scene.label_index(1 if label is None and len(scene.label_names) == 2 else label)]
    )
    x = sources.vectors(side, at)
    if by == "probe":
        probe = sources.discriminant(side, at)
        fitted = [c for c in classes if c < len(probe.coef)]
        weights = [
            probe.coef[c] if numbers else probe.coef[c] - np.delete(probe.coef, c, axis=0).mean(0) for c in fitted
        ]
        mean, square = centre(x), np.zeros(x.shape[1])
        for part in blocks(x):
            square += ((part - mean) ** 2).sum(0)
        ranked = by_lines(np.array(weights), np.sqrt(square / len(scene)))
    else:
        known = ~np.isnan(scene.labels) if numbers else scene.labels >= 0
        labels = scene.labels[known]
        targets = [labels if numbers else (labels == c).astype(np.float64) for c in classes]
        varied = [target for target in targets if len(np.unique(target)) > 1]
        if not varied:
            raise UsageError("all labels are equal, so no unit correlates with them.")
        scores = np.array([correlations(x[known], target) for target in varied])
        ranked = Ranked.of(np.linalg.norm(scores, axis=0) if every else scores[0])
    top = ranked.order[:k]
    return pd.DataFrame({"unit": top, "score": ranked.score[top]})
