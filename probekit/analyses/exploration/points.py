"""The points of a scene: which rows of which caches they are, in one order for all models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.tokens import TokenReader
from probekit.analyses.matching import FEWEST, check_same_data, names_of, shared_examples
from probekit.errors import UsageError

UNITS = ("examples", "words", "tokens")


@dataclass(frozen=True, eq=False)
class Points:
    """The points that all caches share.

    Attributes
    ----------
    unit : str
        "examples", "words" or "tokens".
    ids : np.ndarray
        (n,) str.
    rows : tuple of np.ndarray
        For each cache (n,) int64: rows of pooled vectors, of labelled words, or of ``/tokens``.
    examples : tuple of np.ndarray
        For each cache (n,) int64: the row of the example.
    position : np.ndarray or None
        (n,) int64, for tokens and words: the position in the example.
    labels : np.ndarray
        (n,).
    notes : tuple of str
        What was left out.
    """

    unit: str
    ids: np.ndarray
    rows: tuple[np.ndarray, ...]
    examples: tuple[np.ndarray, ...]
    position: np.ndarray | None
    labels: np.ndarray
    notes: tuple[str, ...]


def find_points(caches: Sequence[ActivationCache], unit: str | None, max_points: int | None, seed: int) -> Points:
    """The points that all caches share, at most ``max_points`` of them.

    Raises
    ------
    UsageError
        If the caches hold different tasks, splits or labels, share fewer than four points, cut the texts into different
        tokens, or lack token vectors.
    """
    first = caches[0]
    unit = _unit(first, unit)
    for other in caches[1:]:
        check_same_data(first, other)
    rows, notes = shared_examples(caches)
    names = first.ids[rows[0]].astype(str)
    if unit == "examples":
        owner, position, points = np.arange(len(names)), None, tuple(rows)
        ids, labels = names, first.labels[rows[0]]
    else:
        points, owner, position, more = (_words if unit == "words" else _tokens)(caches, rows)
        notes += more
        ids = np.char.add(np.char.add(names[owner], ":"), position.astype(str))
        labels = first.word_labels[points[0]] if unit == "words" else first.labels[rows[0][owner]]
    if len(ids) < FEWEST:
        raise UsageError(f"a map needs {FEWEST} {unit}; {names_of(caches)} share {len(ids)}.")
    if max_points is not None and len(ids) > max_points:
        drawn = np.sort(np.random.default_rng(seed).choice(len(ids), max_points, replace=False))
        notes.append(f"{max_points:,} of {len(ids):,} {unit} are shown, drawn at random with seed {seed}.")
        ids, owner, labels = ids[drawn], owner[drawn], labels[drawn]
        points = tuple(at[drawn] for at in points)
        position = None if position is None else position[drawn]
    return Points(unit, ids, points, tuple(at[owner] for at in rows), position, labels, tuple(notes))


def _unit(cache: ActivationCache, unit: str | None) -> str:
    words = cache.spec["kind"] == "sequence-labelling"
    unit = unit or ("words" if words else "examples")
    if unit not in UNITS:
        raise UsageError(f"unit is {unit!r}; expected one of {', '.join(UNITS)}.")
    if unit == "words" and not words:
        raise UsageError(f"{cache.spec['task']} does not label words; choose unit examples or tokens.")
    if unit == "examples" and not cache.poolings:
        raise UsageError(f"{cache.path} has no pooled vectors; make it with --pooling mean, or choose another unit.")
    if unit != "examples" and not cache.spec["tokens"]:
        raise UsageError(f"{cache.path} has no token vectors; make it with --tokens.")
    return unit


def _words(
    caches: Sequence[ActivationCache], rows: Sequence[np.ndarray]
) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray, list[str]]:
    """Labelled words that no cache has truncated: their rows in each cache, shared example, position, and notes."""
    places, total = [], 0
    for cache, at in zip(caches, rows, strict=True):
        number = np.full(len(cache), -1)
        number[at] = np.arange(len(at))
        sentence = cache.word_sentence
        position = np.arange(len(sentence)) - np.searchsorted(sentence, sentence)
        keep = np.flatnonzero(number[sentence] >= 0)
        key = number[sentence[keep]] << 32 | position[keep]
        order = np.argsort(key)
        places.append((key[order], keep[order]))
        total = max(total, len(keep))
    shared = places[0][0]
    for key, _ in places[1:]:
        shared = np.intersect1d(shared, key, assume_unique=True)
    found = tuple(at[np.searchsorted(key, shared)] for key, at in places)
    cut = total - len(shared)
    notes = [f"{cut:,} of {total:,} words are truncated in one of the caches and left out."] if cut else []
    return found, shared >> 32, shared & 0xFFFFFFFF, notes


def _tokens(
    caches: Sequence[ActivationCache], rows: Sequence[np.ndarray]
) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray, list[str]]:
    """Tokens without special ones, of examples that all caches cut alike: rows of ``/tokens``, and so on."""
    levels = {str(cache.spec["tokens"]) for cache in caches}
    if len(levels) > 1:
        raise UsageError(f"the token vectors of the caches are of {' and '.join(sorted(levels))}; make them alike.")
    spans = [TokenTable(cache).rows(at) for cache, at in zip(caches, rows, strict=True)]
    counts = np.array([count for _, count in spans])
    alike = (counts == counts[0]).all(0)
    if not alike.any() or (alike.mean() < 0.5):
        at = int(np.argmin(alike))
        raise UsageError(
            f"the caches cut {int((~alike).sum()):,} of {len(alike):,} texts into different numbers of tokens "
            f"(example {caches[0].ids[rows[0][at]]}: {' and '.join(map(str, counts[:, at]))}), so tokens cannot be "
            "linked. Make both caches with --token-level word-mean, or compare examples."
        )
    found = tuple(at[np.repeat(alike, count)] for at, count in spans)
    count = counts[0][alike]
    position = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    notes = []
    if not alike.all():
        notes.append(
            f"{int((~alike).sum()):,} of {len(alike):,} examples have other numbers of tokens in another cache and are "
            "left out."
        )
    return found, np.repeat(np.flatnonzero(alike), count), position, notes


@dataclass(frozen=True, eq=False)
class TokenTable:
    """The tokens of a cache without special pieces; what it reads of the file, but for vectors, it reads once.

    Attributes
    ----------
    cache : ActivationCache
        With token vectors.
    """

    cache: ActivationCache
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    readers: dict[str, TokenReader] = field(default_factory=dict)

    @cached_property
    def special(self) -> np.ndarray:
        """Bool (t,), the pieces that the tokenizer added."""
        return self.cache.special_rows()

    @cached_property
    def first_lengths(self) -> np.ndarray:
        """(n,) numbers of tokens of the first texts."""
        return self.cache.pieces[0].length

    def column(self, name: str) -> np.ndarray:
        """An array of the cache's index."""
        if name not in self.columns:
            self.columns[name] = self.cache.index(name)
        return self.columns[name]

    def rows(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of ``/tokens`` of some examples, concatenated, and their number for each example."""
        start, length = self.column("start")[examples], self.column("length")[examples]
        flat_start, flat_length = start.reshape(-1), length.reshape(-1)  # pairs: first and second text in turn
        every = np.arange(int(flat_length.sum())) + np.repeat(
            flat_start - (np.cumsum(flat_length) - flat_length), flat_length
        )
        keep = ~self.special[every]
        owner = np.repeat(np.repeat(np.arange(len(examples)), start.size // max(len(examples), 1)), flat_length)
        return every[keep], np.bincount(owner[keep], minlength=len(examples))

    def vectors(self, layer: str, rows: np.ndarray) -> np.ndarray:
        """Some rows of the token vectors of a layer, (k, d), read without the others."""
        if layer not in self.readers:
            self.readers[layer] = TokenReader(self.cache, [layer])
        first = np.flatnonzero(np.diff(rows, prepend=-2) != 1)  # neighbours are read at once
        return self.readers[layer].gather(rows[first], np.diff(first, append=len(rows)))[0]
