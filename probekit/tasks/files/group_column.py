"""Guess which column of a file groups rows that depend on each other: dialogue, document, author …"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from probekit.tasks.datasets.sources import number
from probekit.toml import read_toml

NAMES = read_toml(Path(__file__).with_name("names.toml"))[0]
"""Names of columns by which their roles are guessed."""
UNITS = tuple(NAMES["units"])
"""The last word of a column's name, the likeliest first."""
GROUP_NAMES = frozenset(name for unit in UNITS for name in (unit, f"{unit}s", f"{unit}_id", f"{unit}id"))
"""Headers that name such a column."""
_IDENTIFIERS = {"id", "ids", "key", "name", "uuid", "guid", "hash"}
FEWEST_GROUPS = 20
"""Distinct values that the column must have: fewer groups are too few to shuffle or hold out."""
FEWEST_UNITED = 50
"""Distinct values that a coarser column must have: a tenth of them suffices for intervals."""
DOCUMENTS = ("document", "doc")
"""Sentences of a document belong together, however few documents there are."""
LONGEST = 6
"""Words of an identifier, on average; longer values are texts."""


@dataclass(frozen=True)
class GroupGuess:
    """The column, the reason for it, and other columns with repeated values."""

    column: str | None = None
    why: str = ""
    repeated: Mapping[str, int] | None = None


def missing(value: Any) -> bool:
    """Whether a cell names no group."""
    return value is None or value != value or str(value).strip() == ""


def group_column(columns: Mapping[str, Sequence[Any]]) -> GroupGuess:
    """The column that groups the rows: by its name, otherwise by its values; a coarser one if it unites these groups.

    Without such a name, the values must have two rows or more on average, and either be adjacent or combine letters and
    digits.

    Parameters
    ----------
    columns : Mapping[str, Sequence[Any]]
        The columns without another role, by name.

    Examples
    --------
    >>> group_column({"dialogueId": [i // 5 for i in range(200)], "turn": [i % 5 for i in range(200)]}).column
    'dialogueId'
    >>> group_column({"where": [f"x{i % 40}" for i in range(200)]}).why
    'not by its name: 40 values with about 5 rows each; --groups none if rows are independent'
    """
    values = {name: ["" if missing(v) else str(v) for v in column] for name, column in columns.items()}
    distinct = {name: len(set(column) - {""}) for name, column in values.items()}
    present = {name: sum(map(bool, column)) for name, column in values.items()}
    fewest = {name: 2 if _unit(name) in DOCUMENTS else FEWEST_GROUPS for name in values}
    repeated = [name for name in values if fewest[name] <= distinct[name] < present[name]]
    named = sorted((name for name in repeated if _unit(name) in UNITS), key=lambda name: UNITS.index(_unit(name)))
    several = [name for name in repeated if 2 * distinct[name] <= present[name]]
    likely = [name for name in several if _identifies(values[name])]
    if not (candidates := named or sorted(likely, key=distinct.__getitem__, reverse=True)):
        return GroupGuess(repeated={name: distinct[name] for name in several})
    first = candidates[0]
    united = [n for n in candidates[1:] if distinct[n] >= FEWEST_UNITED and _unites(values[n], values[first])]
    name = min(united, key=distinct.__getitem__) if united else first
    if named:
        return GroupGuess(name, "by its name; values are repeated")
    rows = present[name] / distinct[name]
    return GroupGuess(
        name,
        f"not by its name: {distinct[name]:,} values with about {rows:.0f} rows each; --groups none if rows are "
        "independent",
    )


def _unit(name: str) -> str:
    """The last word of a column's name in the singular, without id: conversationId, "User ID", docid, id_dialog."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    words = [word for word in words if word not in _IDENTIFIERS]
    last = words[-1] if words else ""
    return next((form for form in (last, last.removesuffix("s"), last.removesuffix("id")) if form in UNITS), last)


def _identifies(values: Sequence[str]) -> bool:
    """Whether values look like names of groups: adjacent rows have the same, or letters and digits are combined."""
    given = [value for value in values if value]
    if fmean(len(value.split()) for value in given) > LONGEST or any((number(v) or 0) % 1 for v in given):
        return False
    runs = 1 + sum(a != b for a, b in pairwise(given))
    mixed = sum(bool(re.search(r"[^\W\d]", v) and re.search(r"\d", v)) for v in given)
    return runs == len(set(given)) or mixed > 0.9 * len(given)


def _unites(coarse: Sequence[str], fine: Sequence[str]) -> bool:
    """Whether all rows with the same fine value have the same coarse value."""
    pairs = {(f, c) for f, c in zip(fine, coarse, strict=True) if f}
    return len(pairs) == len({f for f, _ in pairs}) and all(c for _, c in pairs)
