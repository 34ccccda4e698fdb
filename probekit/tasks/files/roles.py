"""What columns are: text, label, groups … with the reason for each, and what is not sure about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probekit.errors import UsageError, did_you_mean
from probekit.tasks.files.raw import SAMPLE, Raw
from probekit.tasks.task import TaskKind

ROLES = (
    *("text", "pair", "label", "id", "domain", "groups", "words", "tags", "messages", "entities", "span", "pair_span"),
    "split",
)
"""What a column can be told to be."""
SEVERAL = ("span", "pair_span", "label")
"""Those that several columns may have together: label=toxic+threat."""
NONE = "none"
"""In place of a column: there is none."""


@dataclass(frozen=True)
class Doubt:
    """A guess that is not sure: the column for a role, what else it could be, and the reason for the guess."""

    role: str
    column: str
    others: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        others = " or ".join(map(repr, self.others))
        return f"{self.role} is {self.column!r} ({self.why}), but could be {others}"


@dataclass(frozen=True)
class Guess:
    """The kind of task, and the column for each role with the reason for it."""

    kind: TaskKind
    roles: Mapping[str, Any]
    why: Mapping[str, str]
    classes: Mapping[str, int]
    repeated: Mapping[str, int] = field(default_factory=dict)
    """Without groups: the columns whose values are repeated, and how many values each has."""
    doubts: tuple[Doubt, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    """Further keys of the task file."""


class Found:
    """The columns of a file, and the roles that they have so far."""

    def __init__(self, raw: Raw, given: Mapping[str, str]) -> None:
        self.raw = raw
        self.sample = {name: values[:SAMPLE] for name, values in raw.columns.items()}
        self.roles: dict[str, Any] = {role: name for role, name in given.items() if name != NONE}
        self.why = dict.fromkeys(self.roles, "as given with --columns")
        self.refused = {role for role, name in given.items() if name == NONE}
        self.doubts: list[Doubt] = []
        self.keys: dict[str, str] = {}
        for role in SEVERAL:
            if (given_as := self.roles.get(role, "")) not in raw.columns and len(parts := given_as.split("+")) > 1:
                self.roles[role] = parts

    @property
    def used(self) -> set[str]:
        return {name for column in self.roles.values() for name in (column if isinstance(column, list) else [column])}

    @property
    def free(self) -> dict[str, list[Any]]:
        """The columns without a role."""
        return {name: values for name, values in self.sample.items() if name not in self.used}

    def wants(self, role: str) -> bool:
        return role not in self.roles and role not in self.refused

    def take(self, role: str, column: Any, why: str, others: Iterable[str] = ()) -> None:
        """Give a role to a column, unless it has one; others could have it, too."""
        if self.wants(role) and column is not None and not self.used & set(_listed(column)):
            self.roles[role], self.why[role] = column, why
            if others := [name for name in others if name not in self.used]:
                self.doubts.append(Doubt(role, column, tuple(others), why))


def _listed(column: Any) -> list[str]:
    return column if isinstance(column, list) else [column]


def told(raw: Raw, columns: Sequence[str]) -> dict[str, str]:
    """ROLE=COLUMN as a dict; raises UsageError for an unknown role or column."""
    found = {}
    for one in columns:
        role, equals, column = one.partition("=")
        if not equals or role not in ROLES:
            raise UsageError(f"columns is {one!r}; write ROLE=COLUMN, such as label=stars. {did_you_mean(role, ROLES)}")
        names = column.split("+") if role in SEVERAL and column not in raw.columns else [column]
        for name in names if column != NONE else ():
            if name not in raw.columns:
                raise UsageError(f"{role} is {name!r}, but there is no such column; {did_you_mean(name, raw.columns)}")
        found[role] = column
    return found
