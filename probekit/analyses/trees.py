"""The trees and the vectors of words of a cache whose task labels the relation of each word to its head."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.targets import word_rows
from probekit.errors import DataError, UsageError
from probekit.probes.spans import span_vectors
from probekit.probes.trees.gold import check_heads

__all__ = ["Treebank", "treebank"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Treebank:
    """The sentences of a cache, s of them with t words.

    Attributes
    ----------
    length : np.ndarray
        int64 (s,).
    heads : np.ndarray
        int64 (t,), from 1 within the sentence; 0 for the root.
    counted : np.ndarray
        Bool (t,), the words that are not punctuation.
    example : np.ndarray
        int64 (s,), the row of each sentence's example.
    layers : dict[str, Callable[[], Any]]
        By name: functions that return the means of the pieces of words, float32 (t, d).
    left_out : int
        Sentences of a single word, or that the model did not read to the end.
    """

    length: np.ndarray
    heads: np.ndarray
    counted: np.ndarray
    example: np.ndarray
    layers: dict[str, Callable[[], Any]]
    left_out: int


def treebank(cache: ActivationCache, layers: tuple[int | str, ...] | None = None) -> Treebank:
    """The trees of a cache of relations, such as those of ``ud-relations``.

    Raises
    ------
    UsageError
        If the targets of the cache are not words with their heads.
    DataError
        If a sentence is not a tree: two roots, or a cycle.
    """
    if not cache.spec["tokens"]:
        raise UsageError(f"{cache.path} has no token vectors; create a cache with --tokens.")
    example, bounds, _, labels, in_words = cache.stored_targets()
    words = bounds.shape[1] == 4 and labels.ndim == 1 and bool(in_words.all())
    if not words or not (np.diff(bounds.reshape(-1, 2)) == 1).all():
        raise UsageError(
            f"structural probes need a tree for each sentence, as ud-relations has; targets of {cache.spec['task']} "
            "are not words with their heads. For a cache of several tasks, give --task."
        )
    count = np.bincount(example, minlength=len(cache))
    number = count + 1  # the root is no target
    start = np.cumsum(number) - number
    heads = np.zeros(int(number.sum()), dtype=np.int64)
    names = list(cache.spec["label_names"])
    counted = np.ones(len(heads), dtype=bool)
    place = start[example] + bounds[:, 0]
    if (bounds[:, [0, 2]] >= number[example, None]).any() or len(np.unique(place)) < len(place):
        at = int(np.flatnonzero((bounds[:, [0, 2]] >= number[example, None]).any(1) | _repeated(place))[0])
        raise DataError(f"{cache.path}: the sentence {cache.ids[example[at]]} is not a tree: it has two roots.")
    heads[place] = bounds[:, 2] + 1
    counted[place] = labels != (names.index("punct") if "punct" in names else -2)
    first, last = word_rows(cache, number)
    read = np.minimum.reduceat((first >= 0).astype(np.int8), start) > 0
    kept = np.flatnonzero(read & (count > 0))
    some = np.isin(np.repeat(np.arange(len(number)), number), kept)
    try:
        check_heads(heads[some], number[kept])
    except DataError as error:
        raise DataError(f"{cache.path}: {error}") from error
    if left_out := len(number) - len(kept):
        log.info("%s: %d sentences of one word, or cut off, are left out.", cache.path, left_out)
    first, last = first[some][:, None], last[some][:, None]

    def read_layer(name: str) -> np.ndarray:
        return np.asarray(span_vectors(cache.tokens(name).values, first, last, mean=True))

    chosen = cache.layers if layers is None else cache.layer_names(layers)
    found: dict[str, Callable[[], Any]] = {name: partial(read_layer, name) for name in cache.layers if name in chosen}
    return Treebank(number[kept], heads[some], counted[some], kept, found, left_out)


def _repeated(place: np.ndarray) -> np.ndarray:
    repeated = np.ones(len(place), dtype=bool)
    repeated[np.unique(place, return_index=True)[1]] = False
    return repeated
