"""The open caches of a scene, and the vectors of its points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.analyses.exploration.points import Points
from probekit.analyses.vectors import PairFeatures
from probekit.errors import UsageError

__all__ = ["Sources", "matched_layers", "opened"]


@dataclass(frozen=True, eq=False)
class Sources:
    """The open caches of a scene.

    Attributes
    ----------
    caches : tuple of ActivationCache
        One for each side.
    train : tuple of ActivationCache
        For each side the cache of its training split; () if none were given.
    points : Points
        The rows of the points in each cache.
    layers : tuple of tuple of str
        For each side the names of its shown layers.
    pooling : str or None
        Pooling of the vectors of examples.
    stack : ExitStack
        Closes the caches that the scene opened.
    """

    caches: tuple[ActivationCache, ...]
    train: tuple[ActivationCache, ...]
    points: Points
    layers: tuple[tuple[str, ...], ...]
    pooling: str | None
    stack: ExitStack

    def vectors(self, side: int, layer: int) -> Any:
        """The vectors of all points in a layer of a side, (n, d), by the layer's position."""
        cache, name, rows = self.caches[side], self.layers[side][layer], self.points.rows[side]
        if self.points.unit == "tokens":
            return cache.tokens(name).values[rows]
        x = cache.layer_words(name) if self.points.unit == "words" else cache.layer(name, self.pooling)
        in_order = len(rows) == len(x) and (rows == np.arange(len(rows))).all()
        x = x if in_order else x[rows]
        return PairFeatures(x) if self.is_paired(side) else x

    def is_paired(self, side: int) -> bool:
        """Whether a point is a pair of texts that the model read separately."""
        return self.points.unit == "examples" and self.caches[side].spec["pairs"] == "separate"

    def train_vectors(self, side: int, layer: int) -> Any:
        """The vectors of the training examples (words) in a layer of a side."""
        cache, name = self.train[side], self.layers[side][layer]
        if self.points.unit == "words":
            return cache.layer_words(name)
        x = cache.layer(name, self.pooling)
        return PairFeatures(x) if cache.spec["pairs"] == "separate" else x

    def train_labels(self, side: int) -> np.ndarray:
        """The labels of :meth:`train_vectors`."""
        return self.train[side].word_labels if self.points.unit == "words" else self.train[side].labels

    def side_layers(self, side: int) -> list[Callable[[], Any]]:
        """Functions that read the layers of a side."""
        return [partial(self.vectors, side, layer) for layer in range(len(self.layers[side]))]

    def close(self) -> None:
        """Close the caches that the scene opened."""
        self.stack.close()


def opened(caches: Sequence[str | Path | ActivationCache], stack: ExitStack) -> tuple[ActivationCache, ...]:
    """Open caches; ``stack`` closes those that were given by path."""
    return tuple(c if isinstance(c, ActivationCache) else stack.enter_context(ActivationCache(c)) for c in caches)


def matched_layers(
    caches: Sequence[ActivationCache], layers: Sequence[int | str] | str | None
) -> tuple[tuple[tuple[str, ...], ...], list[str]]:
    """The layers of each cache to show side by side, equally many, and how they were matched.

    Models with the same layers are shown layer by layer. Of a deeper or shallower model the layers at the same relative
    depth are shown.
    """
    if layers is not None:
        return tuple(cache.layer_names(layers) for cache in caches), []
    first = caches[0].layers
    if all(cache.layers == first for cache in caches[1:]):
        return tuple(cache.layers for cache in caches), []
    shared = tuple(name for name in first if all(name in cache.layers for cache in caches))
    depths = [_depth(cache) for cache in caches]
    if len(set(depths)) == 1 and shared:
        return (shared,) * len(caches), [f"The layers that all caches hold are shown: {', '.join(shared)}."]
    if 0 in depths:
        raise UsageError("the caches hold different layers; name shared ones with layers.")
    steps = range(min(depths) + 1)
    chosen = tuple(tuple(str(round(i * depth / min(depths))) for i in steps) for depth in depths)
    for cache, names in zip(caches, chosen, strict=True):
        if missing := [name for name in names if name not in cache.layers]:
            raise UsageError(f"{cache.path} lacks the layers {', '.join(missing)}; name shared ones with layers.")
    shown = "; ".join(f"{cache.path.name} {', '.join(names)}" for cache, names in zip(caches, chosen, strict=True))
    return chosen, [f"The models have different depths; layers at the same relative depth are side by side: {shown}."]


def _depth(cache: ActivationCache) -> int:
    """The number of the last layer of the residual stream."""
    return max((site.layer or 0 for site in cache.sites if site.name == "resid_post"), default=0)
