"""The place of a word in a text that a label is about: told by characters, or found by the word itself."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from probekit.tasks.datasets.sources import number
from probekit.tasks.files.no_label import missing

_WORD = re.compile(r"\w+(?:-\w+)*")


def place_of(word: str, text: str) -> tuple[int, int] | None:
    """The characters of the only word of a text that is ``word`` or, if none is, that begins like it.

    Examples
    --------
    >>> place_of("plan", "We planned it."), place_of("We", "We saw that we won.")
    ((3, 10), None)
    """
    words = list(_WORD.finditer(text))
    beginning = word.lower()[: max(3, len(word) - 2)]
    for fits in (word.lower().__eq__, lambda w: w.startswith(beginning)):
        found = [match.span() for match in words if fits(match.group().lower())]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def place_of_part(part: str, text: str) -> tuple[int, int] | None:
    """The characters of a part of a text that occurs in it once."""
    return (text.index(part), text.index(part) + len(part)) if part and text.count(part) == 1 else None


def place_among(ends: tuple[Any, Any]) -> tuple[int, int] | None:
    """Two numbers, or texts of numbers, as characters; None if they are none."""
    numbers = [None if isinstance(end, bool) else number(str(end)) for end in ends]
    if None in numbers or any(x != int(x) for x in numbers):  # type: ignore[arg-type]
        return None
    return int(numbers[0]), int(numbers[1])  # type: ignore[arg-type]


_PLACE = re.compile(r"[\[(]?\s*(\d+)\s*(?:[-:–]|,\s*)\s*(\d+)\s*[\])]?")


def with_places(values: Sequence[Any]) -> Sequence[Any]:
    """A column of places such as "4-9", "4:9" or "[4, 9]" with lists of two texts in their stead.

    A column of which fewer than half of the cells are such places is left as it is: it holds parts of texts.

    Examples
    --------
    >>> with_places(["4-9", "0:3", "", "bank"]), with_places(["bank", "4-9", "court"])
    ([['4', '9'], ['0', '3'], '', 'bank'], ['bank', '4-9', 'court'])
    """
    texts = [v for v in values if isinstance(v, str) and not missing(v)]
    found = {text: list(place.groups()) for text in set(texts) if (place := _PLACE.fullmatch(text.strip()))}
    if 2 * sum(text in found for text in texts) < max(1, len(texts)):
        return values
    return [found.get(v, v) if isinstance(v, str) else v for v in values]


def cuts_a_word(text: str, at: int) -> bool:
    """Whether a place is between two characters of a word; not in scripts without letter case, such as Chinese.

    Examples
    --------
    >>> [cuts_a_word("the court", at) for at in (3, 4, 8, 9)]
    [False, False, True, False]
    """
    return 0 < at < len(text) and all(unicodedata.category(c) in _OF_WORDS for c in text[at - 1 : at + 1])


_OF_WORDS = {"Lu", "Ll", "Lt", "Nd"}


def wrong_place(text: str, start: int, end: int) -> str:
    """What is wrong with characters of a text, as a sentence; "" if they are whole words of it.

    Examples
    --------
    >>> wrong_place("the court", 4, 8)
    "characters 4 to 8 are 'cour', which ends inside 'court'; give the first character, from 0, and the one after \
the last. If part of a word is meant, give this text itself."
    """
    if not 0 <= start < end <= len(text):
        return (
            f"[{start}, {end}] is no part of the text, which has {len(text)} characters; give the first character, "
            "from 0, and the one after the last."
        )
    for at, what in ((start, "begins"), (end, "ends")):
        if cuts_a_word(text, at):
            whole = next(m.group() for m in re.finditer(r"\w+", text) if m.start() < at < m.end())
            return (
                f"characters {start} to {end} are {text[start:end][:40]!r}, which {what} inside {whole[:40]!r}; give "
                "the first character, from 0, and the one after the last. If part of a word is meant, give this text "
                "itself."
            )
    return ""
