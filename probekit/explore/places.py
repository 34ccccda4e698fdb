"""Where the points of a map are: each layer's projection, fitted into the square that is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from probekit.analyses.exploration.scene import Map, Scene

METHODS = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP", "lda": "LDA (linear discriminant)"}
MARGIN = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """The points of one layer: float32 (n, 2) within -1 … 1, and the half width of the square in its own units."""

    xy: np.ndarray
    half: float


def methods(scene: Scene) -> list[str]:
    """The projections that every side has."""
    return [name for name in scene.sides[0].maps if all(name in side.maps for side in scene.sides)]


def place(scene: Scene, side: int, method: str, layer: int) -> Place:
    """The points of a side at a layer; both axes have one scale, and all points are inside."""
    xy = np.asarray(scene.sides[side].maps[method].xy[layer], np.float32)
    finite = np.isfinite(xy.sum(axis=1))
    if not finite.any():
        return Place(np.zeros_like(xy), float("nan"))
    low, high = xy[finite].min(axis=0), xy[finite].max(axis=0)
    half = float((high - low).max() / 2) or 1.0
    fitted = MARGIN * (xy - (low + high) / 2) / half
    return Place(np.where(finite[:, None], fitted, 0).astype(np.float32), half)


def caption(scene: Scene, side: int, method: str, layer: int) -> str:
    """What the map shows and how far to trust it, in words."""
    shown = scene.sides[side].maps[method]
    name = METHODS.get(method, method)
    parts = [f"{name}, layer {scene.sides[side].layers[layer]}"]
    share = np.nan if shown.explained is None else float(np.asarray(shown.explained)[layer].sum())
    if method == "lda":
        parts += _separation(scene.labels, np.asarray(shown.xy[layer], np.float64))
        # up to three classes have no variance between them outside the plane
        parts += [f"the plane holds {100 * share:.0f} % of the variance between classes of train"] * (share < 1 - 1e-9)
    elif np.isfinite(share):
        parts.append(f"the plane holds {100 * share:.0f} % of the variance")
    parts += _trust(shown, layer)
    half = place(scene, side, method, layer).half
    if np.isfinite(half) and (span := _span(scene, method)):
        parts.append(f"the points span {span.format(2 * half)}")
    return "; ".join(parts) + "."


def _span(scene: Scene, method: str) -> str:
    """A distance on a map in words; "" if it is nothing that the vectors have."""
    if method == "pca":
        return "a Euclidean distance of {:.3g}"
    classes = method == "lda" and scene.labels.dtype.kind != "f"
    return "{:.3g} standard deviations within the classes of train" if classes else ""


def _separation(labels: np.ndarray, xy: np.ndarray) -> list[str]:
    """How the axes separate the labels of the shown points, which the discriminant was not fitted on."""
    if labels.dtype.kind == "f":
        known = np.isfinite(labels)
        if known.sum() < 3 or not (np.ptp(labels[known]) and np.ptp(xy[known], axis=0).all()):
            return []
        r = [float(np.corrcoef(axis, labels[known])[0, 1]) for axis in xy[known].T]
        return [f"of these points, the axes correlate with the labels by {abs(r[0]):.2f} and {abs(r[1]):.2f}"]
    classes = [xy[labels == c] for c in np.unique(labels[labels >= 0])]
    if len(classes) != 2 or min(map(len, classes)) < 2:
        return []
    within = np.sqrt(np.mean([one.var(axis=0, ddof=1) for one in classes], axis=0))
    gap = np.abs(classes[1].mean(axis=0) - classes[0].mean(axis=0)) / np.where(within > 0, within, np.nan)
    if not np.isfinite(gap).all():
        return []
    return [
        f"the classes of these points lie {gap[0]:.2f} standard deviations apart horizontally, {gap[1]:.2f} vertically"
    ]


def _trust(shown: Map, layer: int) -> list[str]:
    """Trustworthiness and continuity where they are known."""
    named = (("trustworthiness", shown.trustworthiness), ("continuity", shown.continuity))
    return [f"{name} {float(v[layer]):.2f}" for name, v in named if v is not None and np.isfinite(v[layer])]
