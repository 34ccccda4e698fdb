"""The trees and the vectors of words of a cache whose task labels the relation of each word to its head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.targets import word_rows
from probekit.errors import DataError, UsageError
from probekit.notes import logger
from probekit.probes.spans import span_vectors
from probekit.probes.trees.gold import sentences
from probekit.tasks.treebank import not_a_tree

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Treebank:
    """The sentences of a cache, s of them with t words; those of one word, or that were cut off, are not among them.

    Attributes
    ----------
    length : np.ndarray
        int64 (s,).
    heads : np.ndarray
        int64 (t,), from 1 within the sentence; 0 for the root.
    relations : np.ndarray
        int64 (t,), the relation of each word to its head, an index into ``names``; -1 where it is unknown.
    names : tuple[str, ...]
        The relations; the last is "root", that of the words without a head.
    counted : np.ndarray
        Bool (t,), the words that are not punctuation.
    example : np.ndarray
        int64 (s,), the row of each sentence's example.
    layers : dict[str, Callable[[], Any]]
        By name: functions that return the means of the pieces of words, float32 (t, d).
    """

    length: np.ndarray
    heads: np.ndarray
    relations: np.ndarray
    names: tuple[str, ...]
    counted: np.ndarray
    example: np.ndarray
    layers: dict[str, Callable[[], Any]]

    def some(self, kept: np.ndarray) -> Treebank:
        """Some of the sentences, bool (s,), without vectors."""
        words = np.repeat(kept, self.length)
        return Treebank(
            self.length[kept], self.heads[words], self.relations[words], self.names, self.counted[words],
            self.example[kept], {},
        )  # fmt: skip


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
    names = (*cache.spec["label_names"], "root")
    relations = np.full(len(heads), len(names) - 1)
    place = start[example] + bounds[:, 0]
    if (bounds[:, [0, 2]] >= number[example, None]).any() or len(np.unique(place)) < len(place):
        at = int(np.flatnonzero((bounds[:, [0, 2]] >= number[example, None]).any(1) | _repeated(place))[0])
        raise _no_tree(cache, int(example[at]), "two roots")
    heads[place] = bounds[:, 2] + 1
    relations[place] = labels
    counted = relations != (names.index("punct") if "punct" in names else -2)
    first, last = word_rows(cache, number)
    read = np.minimum.reduceat((first >= 0).astype(np.int8), start) > 0
    rootless = (first[start + count] < 0) & (heads[start + count] == 0)
    whole = ~cache.truncated & (count > 0)
    for wrong, where in (("no root", rootless), ("two roots", _words(cache) > number)):
        if (where & whole).any():
            raise _no_tree(cache, int(np.flatnonzero(where & whole)[0]), wrong)
    kept = np.flatnonzero(read & (count > 0))
    some = np.isin(np.repeat(np.arange(len(number)), number), kept)
    for i, rows in zip(kept, sentences(number[kept]), strict=True):
        if wrong := not_a_tree(heads[some][rows].tolist()):
            raise _no_tree(cache, int(i), wrong)
    if cut := int((~read & (count > 0)).sum()):
        log.warning(
            "%s: %d sentences are left out, because the model did not read all of their words.", cache.path, cut
        )
    first, last = first[some][:, None], last[some][:, None]

    def read_layer(name: str) -> np.ndarray:
        return np.asarray(span_vectors(cache.tokens(name).values, first, last, mean=True))

    chosen = cache.layers if layers is None else cache.layer_names(layers)
    found: dict[str, Callable[[], Any]] = {name: partial(read_layer, name) for name in cache.layers if name in chosen}
    return Treebank(number[kept], heads[some], relations[some], names, counted[some], kept, found)


def _no_tree(cache: ActivationCache, row: int, wrong: str) -> DataError:
    return DataError(
        f"{cache.path}: the sentence {cache.ids[row]} is not a tree; it has {wrong}. Mend it in the data, or take it "
        "out, and cache them again."
    )


def _words(cache: ActivationCache) -> np.ndarray:
    """The number of words of each example that the model read, (n,)."""
    word, parts = cache.index("word_index"), zip(cache.index("start"), cache.index("length"), strict=True)
    return np.array([int(word[a : a + n].max(initial=-1)) + 1 for a, n in parts])


def _repeated(place: np.ndarray) -> np.ndarray:
    repeated = np.ones(len(place), dtype=bool)
    repeated[np.unique(place, return_index=True)[1]] = False
    return repeated
