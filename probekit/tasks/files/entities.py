"""Named entities that are told by the characters of a text: read as words with tags B-, I- and O."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from probekit.errors import Faults
from probekit.tasks.files.columns import Rows
from probekit.tasks.files.marked import place_among, wrong_place

STARTS = ("start", "start_offset", "start_char", "startOffset", "begin", "beginOffset", "char_start", "from")
ENDS = ("end", "end_offset", "end_char", "endOffset", "stop", "char_end", "to")
LABELS = ("label", "type", "tag", "entity", "entity_group", "entity_type", "category", "class", "labels")
EXPECTED = 'expected a list of entities such as {"start": 0, "end": 4, "label": "PER"} or [0, 4, "PER"]'
_WITHOUT_BLANKS = re.compile(r"([\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")
"""Characters that are words of their own: Chinese and Japanese."""


@cache
def _word() -> re.Pattern[str]:
    """A word of letters, their marks and digits, or a mark of punctuation."""
    marks = "".join(chr(i) for i in range(0x300, 0xFB1F) if unicodedata.category(chr(i))[0] == "M")
    return re.compile(rf"(?:[^\W_]|[{marks}])+|[^\w\s]|_")


def entity(value: Any) -> tuple[int, int, str] | None:
    """The first character of an entity, the one after its last, and its label; None if the value is none."""
    if isinstance(value, Mapping):
        keys = [next((key for key in names if key in value), None) for names in (STARTS, ENDS, LABELS)]
        if None in keys:
            return None
        start, end, label = (value[key] for key in keys)
    elif isinstance(value, list | tuple) and len(value) == 3:
        start, end, label = value
    else:
        return None
    if isinstance(label, list) and len(label) == 1:
        label = label[0]
    place = place_among((start, end))
    return None if place is None or not isinstance(label, str) or not label else (*place, label)


def is_entities(values: Sequence[Any]) -> bool:
    """Whether a column has lists of entities."""
    given = [v for v in values if isinstance(v, list) and v]
    return bool(given) and all(entity(one) is not None for v in given[:100] for one in v)


def words_in(text: str) -> list[tuple[int, int]]:
    """The words and marks of a text, as characters.

    Examples
    --------
    >>> [("It's 3.5 km, O.K."[a:b]) for a, b in words_in("It's 3.5 km, O.K.")]
    ['It', "'", 's', '3', '.', '5', 'km', ',', 'O', '.', 'K', '.']
    """
    found = []
    for match in _word().finditer(text):
        start = match.start()
        for part in filter(None, _WITHOUT_BLANKS.split(match.group())):
            found.append((start, start + len(part)))
            start += len(part)
    return found


def with_tags(rows: Mapping[str, Rows]) -> dict[str, Rows]:
    """The rows of each split, with words and their tags in place of entities; all wrong entities are one DataError."""
    faults = Faults()
    found = {split: _with_tags(part, faults) if "entities" in part.columns else part for split, part in rows.items()}
    faults.check()
    return found


def _with_tags(part: Rows, faults: Faults) -> Rows:
    words: list[list[str]] = []
    tags: list[list[str] | None] = []
    for i, (text, given) in enumerate(zip(part.columns["text"], part.columns["entities"], strict=True)):
        places, found = [(0, 0)], None
        with faults:
            if not isinstance(text, str):
                raise part.error(i, "text", f"expected a text, found {text!r}; remove the row, or write its text.")
            places = words_in(text)
            if not places:
                raise part.error(i, "text", "expected a text with words, found none; remove the row.")
            found = None if given is None else _tags(part, i, text, given, places)
        words.append([str(text)[a:b] for a, b in places])
        tags.append(found)
    columns = {role: values for role, values in part.columns.items() if role != "entities"}
    return part.with_columns({**columns, "words": words, "tags": tags})


def _tags(part: Rows, i: int, text: str, given: Any, places: Sequence[tuple[int, int]]) -> list[str]:
    """The tag of each word."""
    tags = ["O"] * len(places)
    for one in given if isinstance(given, list) else [given]:
        known = entity(one)
        if known is None:
            raise part.error(i, "entities", f"{EXPECTED}; found {str(one)[:60]!r}.")
        start, end, label = known
        if wrong := _wrong(text, start, end, places):
            raise part.error(i, "entities", wrong)
        inside = [k for k, (a, b) in enumerate(places) if start < b and a < end]
        if taken := [k for k in inside if tags[k] != "O"]:
            word = text[slice(*places[taken[0]])]
            raise part.error(i, "entities", f"two entities cover {word!r}; keep one of entities that overlap.")
        for k in inside:
            tags[k] = f"{'B' if k == inside[0] else 'I'}-{label}"
    return tags


def _wrong(text: str, start: int, end: int, places: Sequence[tuple[int, int]]) -> str:
    """What is wrong with the place of an entity; "" if it covers whole words."""
    if wrong := wrong_place(text, start, end).partition(" If part of a word")[0]:
        return wrong
    if not any(start < b and a < end for a, b in places):
        return f"characters {start} to {end} are {text[start:end]!r}, which has no word."
    cut = next(((a, b) for a, b in places for at in (start, end) if a < at < b), None)
    if cut:
        return (
            f"characters {start} to {end} are {text[start:end][:40]!r}, which covers {text[slice(*cut)][:40]!r} in "
            "part; entities cover whole words."
        )
    return ""
