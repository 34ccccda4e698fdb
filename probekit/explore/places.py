"""Where the points of a map are: each layer's projection, fitted into the square that is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from probekit.analyses.exploration.scene import Map, Scene

__all__ = ["METHODS", "Place", "caption", "methods", "place"]

METHODS = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP", "lda": "LDA (directions of the probe)"}
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
    if shown.explained is not None:
        of = "variance between classes" if method == "lda" else "variance"
        shares = [f"{100 * share:.0f} %" for share in np.asarray(shown.explained)[layer] if np.isfinite(share)]
        axes = {0: "", 1: "the horizontal axis holds", 2: "the two axes hold"}[len(shares)]
        parts += [f"{axes} {' and '.join(shares)} of the {of}"] if shares else []
    parts += _trust(shown, layer)
    half = place(scene, side, method, layer).half
    if np.isfinite(half):
        parts.append(f"the map is {2 * half:.3g} units wide")
    return "; ".join(parts) + "."


def _trust(shown: Map, layer: int) -> list[str]:
    """Trustworthiness and continuity where they are known."""
    named = (("trustworthiness", shown.trustworthiness), ("continuity", shown.continuity))
    return [f"{name} {float(v[layer]):.2f}" for name, v in named if v is not None and np.isfinite(v[layer])]
