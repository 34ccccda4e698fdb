"""The open caches of a scene, and the vectors of its points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.description import check_same
from probekit.analyses.exploration.points import Points, TokenTable
from probekit.analyses.vectors import PairFeatures
from probekit.errors import UsageError
from probekit.probes.protocol.pieces import keys
from probekit.projection import Discriminant, fit_discriminant
from probekit.runtime import blas_thread
from probekit.statistics.folds import duplicates

WEIGHTS = ("weights_digest", "random_weights")
SAME = ("task", "kind", "label_names", "tokenizer_digest", "pairs")
"""Keys of the spec in which a cache and its training cache agree."""


@dataclass(frozen=True, eq=False)
class Sources:
    """The open caches of a scene.

    Attributes
    ----------
    caches : tuple of ActivationCache
        One for each side.
    train : tuple of ActivationCache or None
        For each side the cache of its training split, if it was given.
    points : Points
        The rows of the points in each cache.
    layers : tuple of tuple of str
        For each side the names of its shown layers.
    pooling : str or None
        Pooling of the vectors of examples.
    stack : ExitStack
        Closes the caches that the scene opened.
    fitted : dict
        The linear discriminants that were asked for, by side and layer.
    strip : dict
        The tokens and vectors of the last example that was asked for.
    """

    caches: tuple[ActivationCache, ...]
    train: tuple[ActivationCache | None, ...]
    points: Points
    layers: tuple[tuple[str, ...], ...]
    pooling: str | None
    stack: ExitStack
    fitted: dict[tuple[int, int], Discriminant] = field(default_factory=dict)
    strip: dict[int, tuple[list[Any], list[Any]]] = field(default_factory=dict)

    def vectors(self, side: int, layer: int) -> Any:
        """The vectors of all points in a layer of a side, (n, d), by the layer's position."""
        cache, name, rows = self.caches[side], self.layers[side][layer], self.points.rows[side]
        if self.points.unit == "tokens":
            return self.tokens[side].vectors(name, rows)
        x = cache.layer_words(name) if self.points.unit == "words" else cache.layer(name, self.pooling)
        in_order = len(rows) == len(x) and (rows == np.arange(len(rows))).all()
        x = x if in_order else x[rows]
        return PairFeatures(x) if self.is_paired(side) else x

    @cached_property
    def tokens(self) -> tuple[TokenTable, ...]:
        """The tokens of each side."""
        return tuple(TokenTable(cache) for cache in self.caches)

    def is_paired(self, side: int) -> bool:
        """Whether a point is a pair of texts that the model read separately."""
        return self.points.unit == "examples" and self.caches[side].spec["pairs"] == "separate"

    def example_row(self, side: int, point: int) -> int:
        """The row of a point's example in the cache of a side."""
        return int(self.points.examples[side][point])

    def trained(self, side: int) -> tuple[list[Callable[[], Any]], np.ndarray]:
        """Functions that read the layers of a side on its training examples (words), and their labels.

        Raises
        ------
        UsageError
            If the side has no cache of its training split.
        """
        cache = self.train[side] if self.train else None
        if cache is None:
            raise UsageError(
                f"a linear discriminant is fitted on the training split of {self.caches[side].path.name}, whose "
                "cache was not given; give train = TRAIN.h5 (one for each model). Fitted on the examples that it "
                "shows, a map would separate the labels even if the vectors did not."
            )
        if self.points.unit == "words":
            return [partial(cache.layer_words, name) for name in self.layers[side]], cache.word_labels
        if not cache.poolings:
            raise UsageError(f"{cache.path} has no pooled vectors to fit directions on; make it with --pooling mean.")
        pooling = self.pooling or cache.poolings[0]
        apart = cache.spec["pairs"] == "separate"

        def read(name: str) -> Any:
            x = cache.layer(name, pooling)
            return PairFeatures(x) if apart else x

        return [partial(read, name) for name in self.layers[side]], cache.labels

    def discriminant(self, side: int, layer: int) -> Discriminant:
        """The linear discriminant of a layer, fitted on the training split."""
        if (side, layer) not in self.fitted:
            layers, labels = self.trained(side)
            with blas_thread():
                self.fitted[side, layer] = fit_discriminant(layers[layer](), labels)
        return self.fitted[side, layer]

    def side_layers(self, side: int) -> list[Callable[[], Any]]:
        """Functions that read the layers of a side."""
        return [partial(self.vectors, side, layer) for layer in range(len(self.layers[side]))]

    def close(self) -> None:
        """Close the caches that the scene opened."""
        self.stack.close()


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


def matched_train(
    caches: Sequence[ActivationCache], given: Sequence[ActivationCache]
) -> tuple[tuple[ActivationCache | None, ...], list[str]]:
    """For each cache the training cache of the same weights, and how many shown examples it contains.

    Raises
    ------
    CacheMismatch
        If a training cache belongs to none of the caches.
    UsageError
        If it holds the shown examples.
    """
    found: list[ActivationCache | None] = [None] * len(caches)
    notes = []
    for train in given:
        sides = [s for s, cache in enumerate(caches) if all(train.spec.get(k) == cache.spec.get(k) for k in WEIGHTS)]
        if not sides:
            check_same(train, caches[0], WEIGHTS)
        for s in sides:
            cache = caches[s]
            check_same(train, cache, SAME)
            if train.spec["data_digest"] == cache.spec["data_digest"]:
                raise UsageError(
                    f"{train.path} and {cache.path} hold the same examples; directions fitted on the examples that are "
                    "shown would flatter. Give the cache of another split as train."
                )
            found[s] = train
            if train.spec["tokenizer_digest"] == cache.spec["tokenizer_digest"]:
                seen = int(duplicates(keys(train.pieces), keys(cache.pieces)).sum())
                if seen:
                    notes.append(
                        f"{seen:,} of {len(cache):,} examples of {cache.path.name} are in {train.path.name}, too."
                    )
    return tuple(found), notes
