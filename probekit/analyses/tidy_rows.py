"""Rows of your data as a task can read them: labels spelled alike, no rows without a text or without their word."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from probekit.analyses.task_splits import Part
from probekit.tasks.files.marked import place_of, place_of_part, with_places
from probekit.tasks.files.no_label import class_name, missing
from probekit.tasks.files.roles import Guess
from probekit.tasks.task import TaskKind

MOST = 5
"""Spellings that a remark names, at most."""


def tidied(splits: Mapping[str, Part], first: Guess) -> tuple[dict[str, Part], Guess, list[str]]:
    """The splits without unusable rows and with one spelling of each label, and what was done, as sentences.

    Nothing changes in data that need nothing.
    """
    remarks = list[str]()
    spelling = _spellings(splits, first)
    found = {split: _without(part, split, _unusable(part, first), remarks) for split, part in splits.items()}
    if spelling:
        found = {split: _spelled(part, first.roles["label"], spelling) for split, part in found.items()}
        labels = (v for v in found["train"].raw.columns[first.roles["label"]] if not missing(v))
        first = replace(first, classes=dict(Counter(map(class_name, labels)).most_common()))
        remarks += _about(spelling)
    if remarks:
        found = {split: replace(part, stays=False) for split, part in found.items()}
    return found, first, remarks


def _spellings(splits: Mapping[str, Part], first: Guess) -> dict[str, str]:
    """For labels that differ only by case, blanks or the form of characters: the most frequent one of them."""
    if first.kind is not TaskKind.CLASSIFICATION or "label" not in first.roles:
        return {}
    columns = [part.raw.columns.get(first.roles["label"], []) for part in splits.values()]
    counts = Counter(v for values in columns for v in values if isinstance(v, str) and not missing(v))
    alike: dict[str, list[str]] = {}
    for name, _ in counts.most_common():
        alike.setdefault(_plain(name).casefold(), []).append(name)
    return {
        name: _plain(names[0])
        for key, names in alike.items()
        for name in names
        if key and len(names) > 1 and name != _plain(names[0])
    }


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name).strip()


def _about(spelling: Mapping[str, str]) -> Iterator[str]:
    """What became of labels, as sentences."""
    of: dict[str, list[str]] = {}
    for name, to in spelling.items():
        of.setdefault(to, []).append(name)
    for to, names in of.items():
        listed = ", ".join(map(repr, names[:MOST])) + " …" * (len(names) > MOST)
        yield f"The label {to!r} is also spelled {listed}; all are one class. If they are several, spell them apart."


def _spelled(part: Part, label: str, spelling: Mapping[str, str]) -> Part:
    columns = dict(part.raw.columns)
    if label in columns:
        columns[label] = [spelling.get(v, v) if isinstance(v, str) else v for v in columns[label]]
    return replace(part, raw=replace(part.raw, columns=columns))


def _unusable(part: Part, first: Guess) -> dict[str, list[int]]:
    """The rows that no model can read, by what they lack."""
    columns, found = part.raw.columns, dict[str, list[int]]()
    for role in ("text", "pair", "messages", "words"):
        name = first.roles.get(role)
        if name in columns and (rows := [i for i, v in enumerate(columns[name]) if _is_absent(v)]):
            found[f"without {name}"] = rows
    word = first.roles.get("pair_span")
    if isinstance(word, str) and word in columns and not _told(columns[word]):
        texts = [columns[first.roles[role]] for role in ("text", "pair")]
        of_rows = zip(columns[word], *texts, strict=True)
        if rows := [i for i, (w, *some) in enumerate(of_rows) if not _has(w, some)]:
            found[f"whose {word} is not once in both texts"] = rows
    return found


def _told(values: Sequence[Any]) -> bool:
    """Whether a column holds places of words, in place of words."""
    return any(isinstance(v, list) for v in with_places(values))


def _has(word: Any, texts: Sequence[Any]) -> bool:
    return isinstance(word, str) and all(
        isinstance(t, str) and (place_of(word, t) or place_of_part(word, t)) for t in texts
    )


def _is_absent(value: Any) -> bool:
    """Whether a cell has no text at all; one that is empty is a text."""
    return value is None or value != value or value == []


def _without(part: Part, split: str, lacking: Mapping[str, Sequence[int]], remarks: list[str]) -> Part:
    """The split without these rows, of which a remark tells."""
    if not lacking:
        return part
    gone = {i for rows in lacking.values() for i in rows}
    why = ", ".join(f"{len(rows):,} {what}" for what, rows in lacking.items())
    kept = len(part.raw) - len(gone)
    remarks.append(f"{split}: {len(gone):,} of {len(part.raw):,} rows are left out: {why}.")
    columns = {name: [v for i, v in enumerate(values) if i not in gone] for name, values in part.raw.columns.items()}
    return replace(part, raw=replace(part.raw, columns=columns), note=f"{kept:,} usable of {part.note}")
