"""The examples that several caches share, in one order, and the vectors of each cache for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.writing.request import data_digest
from probekit.analyses.features import without_dictionary
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors, open_caches, read_of
from probekit.errors import DataError, NonFiniteError, ProbekitError, UsageError
from probekit.notes import logger
from probekit.probes.protocol.labels import Labels
from probekit.probes.protocol.pieces import keys
from probekit.recipe import Read
from probekit.tasks.context import in_context
from probekit.tasks.load import load_task

log = logger(__name__)
FEWEST = 4
"""Fewer examples show nothing about two layers."""
SHOWN = 3  # ids in a message


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Some rows of vectors, read a few at a time."""

    x: Any
    rows: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.x.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.x.dtype)

    def __getitem__(self, rows: Any) -> np.ndarray:
        return np.asarray(self.x[self.rows[rows]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


@dataclass(frozen=True, slots=True)
class Side:
    """One cache of several that were matched.

    Attributes
    ----------
    cache : ActivationCache
        Open.
    layers : dict[str, Callable[[], Any]]
        By name, functions that return the vectors of the shared examples, (n, d).
    columns : dict[str, Any]
        The columns of rows that identify the vectors and the model.
    """

    cache: ActivationCache
    layers: dict[str, Callable[[], Any]]
    columns: dict[str, Any]

    @property
    def read(self) -> Read:
        return read_of(self.cache)


@dataclass(frozen=True, slots=True)
class Matched:
    """Caches of the same examples.

    Attributes
    ----------
    sides : tuple of Side
        In the order of the caches.
    labels : Labels
        Labels, groups and ids of the shared rows, in the order of the first cache.
    words : bool
        Whether a row is a word.
    group_columns : dict[str, Any]
        The columns of rows that describe the grouping of examples.
    """

    sides: tuple[Side, ...]
    labels: Labels
    words: bool
    group_columns: dict[str, Any]

    def __len__(self) -> int:
        return len(self.labels.y)


def opened(caches: Sequence[str | Path | ActivationCache], stack: ExitStack) -> tuple[ActivationCache, ...]:
    """Open caches; ``stack`` closes those that were given by path.

    Raises
    ------
    UsageError
        If there is none, or if two hold the same activations.
    """
    if not caches:
        raise UsageError("no cache was given; give one or more, such as cola.dev.h5.")
    found = open_caches(caches, stack)
    check_once(found)
    return found


def check_once(caches: Sequence[ActivationCache]) -> None:
    """Raise UsageError if two caches hold the same activations."""
    known: dict[str, ActivationCache] = {}
    for cache in caches:
        if (other := known.setdefault(cache.spec_id, cache)) is not cache:
            same = other.path.resolve() == cache.path.resolve()
            what = (
                f"{cache.path} is given twice" if same else f"{other.path} and {cache.path} hold the same activations"
            )
            raise UsageError(f"{what}; give each cache once.")


def by_step(caches: Sequence[ActivationCache]) -> Sequence[ActivationCache]:
    """The first cache, then the others in the order of their training steps, if all of these have one."""
    first, *others = caches
    if any(cache.spec.get("step") is None for cache in others):
        return caches
    return [first, *sorted(others, key=lambda cache: int(cache.spec["step"]))]


def matched(caches: Sequence[ActivationCache], options: VectorOptions = VectorOptions()) -> Matched:
    """The vectors of the examples that all caches share, by id; a warning says how many are left out.

    Raises
    ------
    UsageError
        If the caches hold other tasks, splits or labels, share fewer than 4 examples, or repeat ids.
    """
    without_dictionary(options, "the comparison of layers")
    first = caches[0]
    for cache in caches[1:]:
        check_same_data(first, cache)
    alone = replace(options, groups="none")  # the groups of the first cache hold for all
    found = [layer_vectors(cache, alone if i else options) for i, cache in enumerate(caches)]
    ids = [np.asarray(one.labels.ids).astype(str) for one in found]
    what = "words" if found[0].words else "examples"
    rows, notes = _shared(caches, ids, [one.labels for one in found], what)
    for note in notes:
        log.warning("%s", note)
    labels = [one.labels[at] for one, at in zip(found, rows, strict=True)]
    if len(rows[0]) < FEWEST:
        raise UsageError(
            f"layers can be compared on {FEWEST} {what} or more; {names_of(caches)} {_have(caches)} {len(rows[0])}."
        )
    sides = tuple(
        Side(cache, _of_rows(one, at), columns_of(cache, one.representation))
        for cache, one, at in zip(caches, found, rows, strict=True)
    )
    return Matched(sides, labels[0], found[0].words, _group_columns(found[0], labels[0]))


def check_same_data(first: ActivationCache, other: ActivationCache) -> None:
    """Raise UsageError for caches of other tasks, splits or labels: the same ids would be other examples there."""
    words = [cache.spec["kind"] == "sequence-labelling" for cache in (first, other)]
    data = [f"{cache.spec['task']} {cache.spec['split']}" for cache in (first, other)]
    if words[0] != words[1]:
        units = ["words" if word else "sentences" for word in words]
        raise UsageError(
            f"{first.path} holds {units[0]} ({data[0]}), {other.path} {units[1]} ({data[1]}); they cannot be compared. "
            "Cache the same task with both models."
        )
    if data[0] != data[1]:
        raise UsageError(
            f"{first.path} holds {data[0]}, {other.path} {data[1]}: these are not the same examples, even if their ids "
            "are the same. Cache the same split of the same task with both models."
        )
    if list(first.spec["label_names"]) != list(other.spec["label_names"]):
        raise UsageError(
            f"the labels of {first.path} are {', '.join(first.spec['label_names'])}, those of {other.path} "
            f"{', '.join(other.spec['label_names'])}. Make both caches from the same files."
        )


def shared_examples(caches: Sequence[ActivationCache]) -> tuple[list[np.ndarray], list[str]]:
    """For each cache the rows of the examples that all hold, in the order of the first, and what to say of them.

    Raises
    ------
    UsageError
        If ids are repeated, shared by none, or are those of other labels or texts.
    """
    ids = [np.asarray(cache.ids).astype(str) for cache in caches]
    return _shared(caches, ids, [Labels(cache.labels, ids=cache.ids) for cache in caches], "examples")


def _shared(
    caches: Sequence[ActivationCache], ids: Sequence[np.ndarray], labels: Sequence[Labels], what: str
) -> tuple[list[np.ndarray], list[str]]:
    """As :func:`shared_examples`, of examples or words."""
    for cache, names in zip(caches, ids, strict=True):
        if repeated := len(names) - len(np.unique(names)):
            raise UsageError(f"{cache.path}: {repeated:,} ids are repeated, so {what} cannot be matched by id.")
    rows = _shared_rows(caches, ids, what)
    notes = []
    for cache, own, at in zip(caches[1:], labels[1:], rows[1:], strict=True):
        _check_labels(caches[0], cache, labels[0][rows[0]], own[at], what)
        if what == "examples" and (note := _check_texts(caches[0], cache, rows[0], at)):
            notes.append(note)
    if any(len(names) > len(rows[0]) for names in ids):
        sizes = ", ".join(f"{len(names):,} in {cache.path.name}" for cache, names in zip(caches, ids, strict=True))
        both = "both caches" if len(ids) == 2 else "all caches"
        notes.append(f"{len(rows[0]):,} {what} are in {both} ({sizes}); the others are left out.")
    return rows, notes


def _shared_rows(caches: Sequence[ActivationCache], ids: Sequence[np.ndarray], what: str) -> list[np.ndarray]:
    """For each cache the rows of the shared ids, in the order of the first."""
    if all(np.array_equal(names, ids[0]) for names in ids[1:]):
        return [np.arange(len(ids[0]))] * len(ids)
    if what == "words":
        for cache in caches[1:]:
            _check_word_counts(caches[0], cache)
    shared = ids[0][np.logical_and.reduce([np.isin(ids[0], names) for names in ids[1:]])]
    if not len(shared):
        begin = "; ".join(
            f"{cache.path} has {', '.join(map(repr, names[:SHOWN].tolist()))} …"
            for cache, names in zip(caches, ids, strict=True)
        )
        raise UsageError(
            f"{names_of(caches)} share no example: no id is in {'both' if len(ids) == 2 else 'all'} ({begin}). Cache "
            "the same split of the same task with each model."
        )
    rows = []
    for names in ids:
        order = np.argsort(names)
        rows.append(order[np.searchsorted(names, shared, sorter=order)])
    return rows


def _check_word_counts(first: ActivationCache, other: ActivationCache) -> None:
    """Raise UsageError if a sentence that neither cache has truncated has other numbers of words in the two."""
    counts = []
    for cache in (first, other):
        count = np.bincount(cache.word_sentence, minlength=len(cache))
        whole = ~cache.truncated
        counts.append(dict(zip(cache.ids[whole].tolist(), count[whole].tolist(), strict=True)))
    for name, count in counts[0].items():
        if (theirs := counts[1].get(name, count)) != count:
            raise UsageError(
                f"sentence {name!r} has {count} words in {first.path} and {theirs} in {other.path}; the caches were "
                "made from different data. Cache the same files with both models."
            )


def _check_labels(first: ActivationCache, other: ActivationCache, a: Labels, b: Labels, what: str) -> None:
    both = a.known & b.known
    assert a.ids is not None
    if different := np.flatnonzero(both & (a.y != b.y)).tolist():
        at = different[0]
        raise UsageError(
            f"{len(different):,} of {len(a.y):,} {what} with the same id have another label in {other.path} than in "
            f"{first.path} (the first is {a.ids[at]!r}: {b.y[at]} and {a.y[at]}); the data differ. Make both caches "
            "from the same files."
        )


def _check_texts(first: ActivationCache, other: ActivationCache, one: np.ndarray, two: np.ndarray) -> str:
    """Refuse examples that share an id, but not their text; a note if other tokenizers leave that open."""
    if first.spec["data_digest"] == other.spec["data_digest"] or len(first.pieces) != len(other.pieces):
        return ""
    if first.spec["tokenizer_digest"] != other.spec["tokenizer_digest"]:
        names = names_of([first, other])
        return (
            f"{names} have other tokenizers and other data: only ids and labels say that their examples are the same."
        )
    texts, texts_too = keys(first.pieces), keys(other.pieces)
    differ = [
        (a, b)
        for a, b in zip(one.tolist(), two.tolist(), strict=True)
        # a text that one cache has truncated begins that of the other
        if not all(x.startswith(y) or y.startswith(x) for x, y in zip(texts[a], texts_too[b], strict=True))
    ]
    if differ:
        raise UsageError(
            f"{len(differ):,} of {len(one):,} examples with the same id, such as {first.ids[differ[0][0]]!r}, have "
            f"another text in {other.path} than in {first.path}; the data differ. Make both caches from the same files."
        )
    return ""


def check_layers(reference: Side, side: Side) -> None:
    """Raise UsageError for other layers, or other widths, than the reference has."""
    if list(side.layers) != list(reference.layers):
        raise UsageError(
            f"{reference.cache.path} has the layers {', '.join(reference.layers)}, {side.cache.path} "
            f"{', '.join(side.layers)}; name shared ones with --layers, or use probekit similarity."
        )
    for name in side.layers:
        widths = [one.cache.widths[one.cache.layers.index(name)] for one in (reference, side)]
        if widths[0] != widths[1]:
            raise UsageError(
                f"layer {name} has {widths[0]} dimensions in {reference.cache.path} and {widths[1]} in "
                f"{side.cache.path}, so no distance is defined; use probekit similarity."
            )


def names_of(caches: Sequence[ActivationCache]) -> str:
    """The names of the files: "a.h5, b.h5 and c.h5"."""
    first, *more = (cache.path.name for cache in caches)
    return f"{', '.join([first, *more[:-1]])} and {more[-1]}" if more else str(first)


def _have(caches: Sequence[ActivationCache]) -> str:
    return "share" if len(caches) > 1 else "has"


def _of_rows(found: LayerVectors, rows: np.ndarray) -> dict[str, Callable[[], Any]]:
    """The layers, reduced to some rows."""
    if len(rows) == len(found.labels.y) and np.array_equal(rows, np.arange(len(rows))):
        return found.layers
    return {name: partial(_chosen, read, rows) for name, read in found.layers.items()}


def _chosen(read: Callable[[], Any], rows: np.ndarray) -> RowsOf:
    return RowsOf(read(), rows)


def _group_columns(found: LayerVectors, labels: Labels) -> dict[str, Any]:
    """The columns that describe the groups of the shared examples."""
    if not found.group_columns or labels.groups is None:
        return {}
    size = np.unique(labels.groups, return_counts=True)[1]
    return found.group_columns | {"n_groups": len(size), "largest_group": int(size.max())}


def check_finite(x: Any, cache: ActivationCache, name: str, labels: Labels) -> None:
    """Raise NonFiniteError, with the names of cache, layer and example, for a vector with NaN or infinity."""
    step = max(1, (1 << 22) // x.shape[1])
    for start in range(0, x.shape[0], step):
        bad = ~np.isfinite(np.asarray(x[start : start + step])).all(1)
        if bad.any():
            assert labels.ids is not None
            which = labels.ids[start + int(bad.argmax())]
            raise NonFiniteError(f"{cache.path}: layer {name} contains NaN or infinity (first in {which!r}).")


def drawn(rows: np.ndarray, most: int | None, seed: int, cache: ActivationCache, *words: str) -> np.ndarray:
    """The rows, or so many of them drawn at random, with a warning; words: what they are, and what is done to them."""
    if most is None or len(rows) <= most:
        return rows
    what, done = words
    message = "%s: %s of %s %s are %s, drawn at random; --max-examples changes that."
    log.warning(message, cache.path, f"{most:,}", f"{len(rows):,}", what, done)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def texts_of(cache: ActivationCache) -> dict[str, str] | None:
    """The text of each example by id, from the data that the cache's recipe names; None if they cannot be read."""
    if (recipe := cache.recipe) is None:
        return None
    arguments = {**recipe.defaults, **recipe.arguments}
    if not isinstance(name := arguments.get("task"), str):  # a Task in memory, which the recipe does not contain
        return None
    try:
        task = load_task(name, arguments.get("data_dir"))
        task = in_context(task, arguments.get("context", "none"))
        split = task.split(cache.spec["split"]).sample(arguments.get("limit"), arguments.get("data_seed", 0))
    except (ProbekitError, DataError, OSError, KeyError, TypeError) as error:
        log.warning("%s: the texts of its examples cannot be read (%s); they are shown by id.", cache.path, error)
        return None
    if data_digest(split.digest(), task.label_names) != cache.spec["data_digest"]:
        log.warning("%s: its data have changed since it was made; its examples are shown by id.", cache.path)
        return None
    return {e.id: e.text if e.pair is None else f"{e.text} / {e.pair}" for e in split.examples}
