"""Which vectors of a cache are looked at: of texts or of words, which pooling, which layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from probekit.activations import ActivationCache
from probekit.errors import UsageError
from probekit.probes.protocol.diagnostic import pair_features
from probekit.recipe import Read
from probekit.rows.card import CACHE

__all__ = ["Reading", "read_of", "reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """Vectors of one cache by layer.

    representation : their pooling, or how words are read; words : whether a row is a word
    layers : by name, functions that give (n, d); (n, 4 d) [u; v; |u - v|; u * v] of separately encoded pairs
    labels : (n,)
    """

    representation: str
    words: bool
    layers: dict[str, Callable[[], np.ndarray]]
    labels: np.ndarray


def reading(cache: ActivationCache, pooling: str | None = None, layers: Sequence[int | str] | None = None) -> Reading:
    """What is to be read of ``cache``. Nothing is read but labels.

    pooling : one of the cache's poolings, the first for None; layers : some of the layers, all for None
    Raises UsageError for an unknown layer or pooling, and where the cache lacks the vectors that its task asks for.
    """
    spec, words = cache.spec, cache.spec["kind"] == "sequence-labelling"
    if words and not spec["tokens"]:
        raise UsageError(f"{spec['task']} labels words, and this cache holds none; make it with --tokens.")
    if words and pooling is not None:
        raise UsageError(f"{spec['task']} is probed word by word; there is no pooling to choose.")
    if not words and not cache.poolings:
        raise UsageError("the cache holds no pooled vectors; make it with --pooling mean.")
    how = str(spec["tokens"]) if words else pooling or cache.poolings[0]
    if not words and how not in cache.poolings:
        raise UsageError(f"there is no pooling {how!r}; the cache holds {', '.join(cache.poolings)}.")
    names = tuple(cache.layers) if layers is None else tuple(str(name) for name in layers)
    if not names:
        raise UsageError(f"no layer was asked for; the cache holds {', '.join(cache.layers)}.")
    if unknown := [name for name in names if name not in cache.layers]:
        raise UsageError(f"there is no layer {', '.join(unknown)}; the cache holds {', '.join(cache.layers)}.")

    def read(name: str) -> np.ndarray:
        if words:
            return cache.layer_words(name)
        x = cache.layer(name, how)
        return pair_features(x) if spec["pairs"] == "separate" else x

    labels = cache.word_labels if words else cache.labels
    return Reading(how, words, {name: partial(read, name) for name in names}, labels)


def read_of(cache: ActivationCache) -> Read:
    """What a card keeps of a cache that was read: where it is, its ``spec_id``, and its spec."""
    return Read(str(cache.path), "cache", cache.spec_id, {"spec": {k: cache.spec[k] for k in CACHE if k in cache.spec}})
