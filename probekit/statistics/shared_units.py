"""Draws by the names of sentences, so that tasks that read the same sentences are resampled together.

Resamples that are numbered by the order of examples are shared only by tasks of the same examples. Here the draws of a
unit (an example, or a group of examples) depend on the seed and on the names of its sentences alone: they are the same
in every task that holds it, whichever other examples the task has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xxhash
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from probekit.statistics._sums import Units
from probekit.statistics.predictions import Predictions

PART = re.compile(r":\d+(-\d+)?(/.*)?$")
"""In the id of a target: its number in the sentence (of an edge of a tree: two words), and its label."""
NUMBER = r"(?:(?:{split}|train|dev|validation|test)(?:-\w+)*-)?\d+"
"""An id that only numbers the examples of a split: such ids of two tasks are equal though their sentences differ."""


class Source(NamedTuple):
    """Where the examples of a table come from: the folder of the data, and the digest of the cache; "" if unknown."""

    folder: str = ""
    cache: str = ""


def shared_units(tables: Sequence[tuple[Source, Predictions]]) -> list[np.ndarray]:
    """The unit of each example of several tables, uint64 (n,); equal where examples must be drawn together.

    Units of different tables are one if they have a sentence in common, and so are units that a third one connects.
    Tables of one split have a sentence in common if an id of both names it:

    - each id, in tables of one task and folder;
    - an id that is more than a number ("weblog-17", not "17" or "dev-17"), in tables of one folder;
    - a bare number, in tables of one cache whose ids are all the same (two labels of the same pairs).

    Parameters
    ----------
    tables : sequence of (Source, Predictions)
        Each with the source of its data.

    Examples
    --------
    >>> import pandas as pd
    >>> fits = pd.DataFrame([{"task": "t", "split": "dev", "model": "m", "layer": 0, "target": "gold"}])
    >>> a, b = (Predictions(fits, np.array(ids), np.zeros(2), np.zeros((1, 2)), ("accuracy",), groups)
    ...         for ids, groups in ((["s1:0", "s1:1"], np.array([4, 4])), (["s1", "s2"], None)))
    >>> one, other = shared_units([(Source("data"), a), (Source("data"), b)])
    >>> (one == other[0]).tolist(), bool(other[0] == other[1])
    ([True, True], False)
    """
    names: dict[str, int] = {}
    rows, units, count = [], [], 0
    for source, e in tables:
        unit = Units.of_groups(e.groups, len(e.ids))
        of = np.arange(unit.rows) if unit.of is None else unit.of
        sentences = _sentences(e, of)
        in_task = _names_of_task(source, e, sentences)
        named = zip(_names(source, e, sentences, in_task), in_task, strict=True)
        rows.append(np.array([[names.setdefault(name, len(names)) for name in both] for both in named]))
        units.append(of + count)
        count += unit.count
    digest = np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in names], dtype=np.uint64)
    name, unit_of = np.concatenate(rows), np.concatenate(units)
    size = len(names) + count
    at = name.ravel(), np.repeat(unit_of + len(names), name.shape[1])
    edges = sparse.coo_array((np.ones(name.size, dtype=bool), at), shape=(size, size))
    part = connected_components(edges, directed=False)[1]
    key = np.full(part.max() + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(key, part[: len(names)], digest)
    return [key[part[its[:, 0]]] for its in rows]


def _names_of_task(source: Source, e: Predictions, sentences: Sequence[str]) -> list[str]:
    """The names of the sentences among those of the same task."""
    where = "\0".join((e.task, source.folder, e.split, ""))
    return [where + name for name in sentences]


def _names(source: Source, e: Predictions, sentences: Sequence[str], own: Sequence[str]) -> list[str]:
    """The names of the sentences among those of other tasks; those of ``own`` where it is unknown which these are."""
    split = e.split
    number = re.compile(NUMBER.format(split=re.escape(split)))
    every = xxhash.xxh3_128_hexdigest("\0".join(map(str, e.ids)).encode())
    found = []
    for name, in_task in zip(sentences, own, strict=True):
        if not number.fullmatch(name):
            found.append("\0".join(("", source.folder, split, name)) if source.folder else in_task)
        elif name.isdecimal() and source.cache:
            found.append("\0".join(("", source.cache, every, name)))
        else:
            found.append(in_task)
    return found


def _sentences(e: Predictions, unit: np.ndarray) -> list[str]:
    """The name of each example's sentence: its id without the number of the target, if these are in one unit each."""
    ids = [str(name) for name in e.ids]
    names = [PART.sub("", name) for name in ids]
    inside: dict[str, int] = {}
    one_each = all(inside.setdefault(name, of) == of for name, of in zip(names, unit.tolist(), strict=True))
    return names if one_each else ids
