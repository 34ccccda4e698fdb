r"""Slices: named sets of examples that a TOML file describes by conditions.

A table for each slice; an example is in the slice if all its conditions hold::

    [negation]
    text = '\b(not|never|no)\b'

    [long]
    words_at_least = 20

=============== ==============================================================================================
text, pair      regular expression of Python's ``re`` that is found anywhere in the first (second) text;
                "(?i)" at its start ignores case
words_at_least, number of words in both texts together: what spaces separate, or the given words of a
words_at_most   token-labelled example
label           name of the gold class, or a list of names; for tasks that classify whole examples
domain          domain of the example, or a list of domains; one of several domains suffices
=============== ==============================================================================================
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probekit.errors import DataError, did_you_mean
from probekit.files import digest_of_content, read_lines
from probekit.tasks.task import Example, Split, Task, TaskKind, domains_of
from probekit.toml import line_of, read_toml


class Conditions(BaseModel):
    """The conditions of a slice, as in the module's table."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    text: str | None = None
    pair: str | None = None
    words_at_least: int | None = Field(default=None, ge=0)
    words_at_most: int | None = Field(default=None, ge=0)
    label: str | list[str] | None = None
    domain: str | list[str] | None = None

    def hold(self, example: Example, label_names: Sequence[str]) -> bool:
        """Whether an example fulfils all conditions but the regular expressions."""
        words = len(example.words or example.text.split()) + len((example.pair or "").split())
        gold = label_names[int(example.label)] if self.label is not None and isinstance(example.label, int) else None
        return (
            (self.words_at_least is None or words >= self.words_at_least)
            and (self.words_at_most is None or words <= self.words_at_most)
            and (self.label is None or gold in _several(self.label))
            and (self.domain is None or not set(_several(self.domain)).isdisjoint(domains_of(example.domain)))
        )


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of a file.

    Attributes
    ----------
    path : Path
        The file.
    conditions : Mapping[str, Conditions]
        The conditions of each slice, by its name.
    lines : Mapping[str, int | None]
        The line of each slice.
    """

    path: Path
    conditions: Mapping[str, Conditions]
    lines: Mapping[str, int | None]

    @property
    def digest(self) -> str:
        """Digest of the file's bytes."""
        return digest_of_content(self.path)

    def members(self, task: Task, split: Split) -> dict[str, frozenset[str]]:
        """The ids of the examples of each slice.

        Raises
        ------
        DataError
            For a slice without an example, a condition that the task cannot have, a slice named as a domain, and a
            regular expression that takes minutes.
        """
        found = {}
        for name, conditions in self.conditions.items():
            self._check(name, conditions, task, split)
        matched = self._matched(split)
        for name, conditions in self.conditions.items():
            examples = compress(split, matched[name]) if name in matched else split
            inside = frozenset(e.id for e in examples if conditions.hold(e, task.label_names))
            if not inside:
                raise self._error(
                    name, f" holds none of the {len(split)} examples of {task.name} {split.name}; change it."
                )
            found[name] = inside
        return found

    def _matched(self, split: Split) -> dict[str, list[bool]]:
        """For each slice with regular expressions whether all of them are found in each example.

        Some, such as ``(a+)+$``, take years on one text, and ``re`` knows no limit: another process searches, and ends.
        """
        asked = [(name, key, given) for name, one in self.conditions.items() for key in ("text", "pair")
                 if (given := getattr(one, key)) is not None]  # fmt: skip
        if not asked:
            return {}
        texts = {key: [getattr(e, key) or "" for e in split] for key in {key for _, key, _ in asked}}
        request = json.dumps([texts, [(key, given) for _, key, given in asked], SECONDS])
        done = subprocess.run([sys.executable, "-I", "-S", "-c", _SEARCH], input=request.encode(), capture_output=True)
        found = [[mark == "1" for mark in line] for line in done.stdout.decode().splitlines()]
        if done.returncode:
            name, key, given = asked[min(len(found), len(asked) - 1)]
            raise self._error(
                name,
                f", key {key!r}: {given!r} is not found in {len(split):,} texts within {SECONDS} seconds; write it "
                "without a repetition within a repetition.",
            )
        matched: dict[str, list[bool]] = {}
        for (name, _, _), marks in zip(asked, found, strict=True):
            matched[name] = [a and b for a, b in zip(matched.get(name, marks), marks, strict=True)]
        return matched

    def _check(self, name: str, conditions: Conditions, task: Task, split: Split) -> None:
        if name in task.domains:
            raise self._error(name, f" has the name of a domain of {task.name}; choose another name.")
        if conditions.pair is not None and not split.paired:
            raise self._error(name, f", key 'pair': the examples of {task.name} have one text; use text.")
        classes = task.label_names if task.kind is TaskKind.CLASSIFICATION else ()
        for key, given, known in (("label", conditions.label, classes), ("domain", conditions.domain, task.domains)):
            for one in _several(given):
                if one not in known:
                    has = did_you_mean(one, known, most=5) if known else f"its examples have no {key}s to choose from."
                    raise self._error(name, f", key {key!r}: {task.name} has no {key} {one!r}; {has}")

    def _error(self, name: str, message: str) -> DataError:
        return DataError(f"slice {name!r}{message}", file=self.path, line=self.lines[name])


SECONDS = 60
"""Of work, for the regular expressions of all slices on one split."""
_SEARCH = """
import json, re, resource, sys
texts, asked, seconds = json.load(sys.stdin.buffer)
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
for key, pattern in asked:
    search = re.compile(pattern).search
    print("".join("01"[search(text) is not None] for text in texts[key]), flush=True)
"""
"""What the other process does: a line of 0 and 1 for each regular expression."""


def read_slices(path: str | Path) -> Slices:
    """The slices of a TOML file.

    Raises
    ------
    DataError
        If it is not a file of slices; the message names the line, the slice and the key, and what is allowed.
    """
    path = Path(path).expanduser()
    try:
        values, text = read_toml(path)
    except DataError as error:
        if not re.search("twice|overwrite", str(error.__cause__)):
            raise
        above = read_lines(path)[: error.line]  # all, if it is at the end
        table = next((line.strip() for line in above[::-1] if line.lstrip().startswith("[")), "")
        twice = f"{above[-1].strip()} is given twice" + (f" in {table}" if table != above[-1].strip() else "")
        raise DataError(
            f"{twice}; each slice has one table, and each key is in it once.", file=path, line=len(above)
        ) from error
    if not values:
        raise DataError("describes no slices; add a table such as [long] with a line words_at_least = 20.", file=path)
    conditions, lines = {}, {name: line_of(text, name) for name in values}
    for name, table in values.items():
        conditions[name] = _conditions(name, table, path, lines[name])
    return Slices(path, conditions, lines)


def _conditions(name: str, table: object, path: Path, line: int | None) -> Conditions:
    known = ", ".join(Conditions.model_fields)
    if not isinstance(table, dict) or not table:
        what = "has no conditions" if table == {} else "is not a table"
        raise DataError(f"slice {name!r} {what}; write [{name}] and below it one of {known}.", file=path, line=line)
    try:
        found = Conditions.model_validate(table)
        for key in ("text", "pair"):
            re.compile(table.get(key) or "")
    except ValidationError as error:
        key, given = str(error.errors()[0]["loc"][0]), error.errors()[0]["input"]
        if key not in Conditions.model_fields:
            raise DataError(
                f"slice {name!r} has no key {key!r}; the keys are {known}.", file=path, line=line
            ) from error
        must = "a whole number of 0 or more" if key.startswith("words") else "a text in quotation marks"
        must += ", or a list of texts" if key in ("label", "domain") else ""
        raise DataError(f"slice {name!r}, key {key!r}: {given!r} must be {must}.", file=path, line=line) from error
    except re.error as error:
        raise DataError(
            f"slice {name!r}, key {key!r}: {table[key]!r} is not a regular expression of Python: {error}.",
            file=path, line=line,
        ) from error  # fmt: skip
    return found


def _several(given: str | list[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else given or []
