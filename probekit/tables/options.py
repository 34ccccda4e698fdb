"""Options of tables."""

from dataclasses import dataclass
from typing import Literal

from probekit.constraint import Checked
from probekit.recipe import option
from probekit.rows.selection import MODELS, VARIANTS

__all__ = ["Kind", "TableOptions"]

Kind = Literal[
    "regimes",
    "domains",
    "glue",
    "task-correlations",
    "score-correlations",
    "mixtures",
    "diagnostic",
    "expected",
    "adaptation",
    "scoreboard",
]
"""The kinds of table."""


@dataclass(frozen=True, slots=True)
class TableOptions(Checked):
    """Which rows a table shows, and numbers beside ours."""

    published: str | None = option(
        None, "Published numbers to show as well: peters-2019/2 to peters-2019/6, or bowman-2018/1, 2, 4, 5 or 6."
    )
    models: tuple[str, ...] = option((), MODELS, metavar="NAME")
    variants: tuple[str, ...] = option((), VARIANTS, metavar="NAME")
