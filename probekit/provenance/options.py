"""What is deleted: frozen values, checked when they are made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from probekit.constraint import Checked
from probekit.errors import UsageError
from probekit.recipe import option


class What(StrEnum):
    """What may be deleted, by the names that ``probekit clean --what`` takes."""

    LEFTOVERS = "leftovers"
    UNFINISHED = "unfinished"
    CACHES = "caches"
    CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class CleanOptions(Checked):
    """Which results are deleted, and where their sources are."""

    what: What = option(
        What.LEFTOVERS,
        "leftovers (temporary files of killed processes), unfinished (caches and runs that were interrupted, and could "
        "go on), caches, or checkpoints (of finished runs).",
    )
    older_than: str | None = option(None, "Not changed since: 12h, 30d, 8w.", metavar="AGE")
    model: tuple[str, ...] = option(
        (), "Folder of a model that caches are of, or a pattern such as ``'RUN/step-*'``. May be repeated."
    )
    data_dir: str | None = option(None, "Folder of the data that caches are of, or with a folder for each task.")

    def together(self) -> None:
        if self.older_than is not None and not re.fullmatch(r"\d+[hdw]", self.older_than.strip()):
            raise UsageError(f"--older-than is hours, days or weeks, such as 12h, 30d or 8w, not {self.older_than!r}.")

    @property
    def seconds(self) -> float:
        """The age below which nothing is deleted."""
        if self.older_than is None:
            return 0.0
        age = self.older_than.strip()
        return int(age[:-1]) * {"h": 3600.0, "d": 86400.0, "w": 604800.0}[age[-1]]
