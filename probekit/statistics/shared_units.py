"""Draws by the names of sentences, so that tasks that read the same sentences are resampled together.

Resamples that are numbered by the order of examples are shared only by tasks of the same examples. Here the draws of a
unit (an example, or a group of examples) depend on the seed and on the names of its sentences alone: they are the same
in every task that holds it, whichever other examples the task has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import xxhash
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from probekit.statistics._sums import Units
from probekit.statistics.predictions import Predictions

__all__ = ["shared_units"]

PART = re.compile(r":\d+(-\d+)?(/.*)?$")
"""In the id of a target: its number in the sentence (of an edge of a tree: two words), and its label."""


def shared_units(tables: Sequence[tuple[str, Predictions]]) -> list[np.ndarray]:
    """The unit of each example of several tables, uint64 (n,); equal where examples must be drawn together.

    Units of different tables are one if they have a sentence in common, and so are units that a third one connects.

    Parameters
    ----------
    tables : sequence of (str, Predictions)
        Each with the source of its data: ids name the same sentence only in tables of one source.

    Examples
    --------
    >>> import pandas as pd
    >>> fits = pd.DataFrame([{"task": "t", "split": "dev", "model": "m", "layer": 0, "target": "gold"}])
    >>> a, b = (Predictions(fits, np.array(ids), np.zeros(2), np.zeros((1, 2)), ("accuracy",), groups)
    ...         for ids, groups in ((["s1:0", "s1:1"], np.array([4, 4])), (["s1", "s2"], None)))
    >>> one, other = shared_units([("", a), ("", b)])
    >>> (one == other[0]).tolist(), bool(other[0] == other[1])
    ([True, True], False)
    """
    names: dict[str, int] = {}
    rows, units, count = [], [], 0
    for source, e in tables:
        unit = Units.of_groups(e.groups, len(e.ids))
        of = np.arange(unit.rows) if unit.of is None else unit.of
        rows.append(np.array([names.setdefault(f"{source}\0{name}", len(names)) for name in _sentences(e, of)]))
        units.append(of + count)
        count += unit.count
    digest = np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in names], dtype=np.uint64)
    name, unit_of = np.concatenate(rows), np.concatenate(units)
    size = len(names) + count
    edges = sparse.coo_array((np.ones(len(name), dtype=bool), (name, unit_of + len(names))), shape=(size, size))
    part = connected_components(edges, directed=False)[1]
    key = np.full(part.max() + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(key, part[: len(names)], digest)
    return [key[part[its]] for its in rows]


def _sentences(e: Predictions, unit: np.ndarray) -> list[str]:
    """The name of each example's sentence: its id without the number of the target, if these are in one unit each."""
    ids = [str(name) for name in e.ids]
    names = [PART.sub("", name) for name in ids]
    inside: dict[str, int] = {}
    one_each = all(inside.setdefault(name, of) == of for name, of in zip(names, unit.tolist(), strict=True))
    return names if one_each else ids
