"""Options of figures: one declaration for Python and for ``probekit plot``, which each kind takes a part of."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from probekit.errors import UsageError
from probekit.plots.look import Legend
from probekit.recipe import option

__all__ = ["COMMON", "KINDS", "WIDTHS", "Kind", "PlotOptions", "inches", "options_of"]

WIDTHS = {"column": 3.03, "text": 6.30}
"""Widths in inches of one column and of the text of a two-column paper (A4, as the ACL sets it)."""
Kind = Literal["layers", "differences", "trajectory", "mix", "domains", "relation", "transfer"]
KINDS: dict[str, tuple[str, ...]] = {
    "layers": ("metric", "summary", "columns"),
    "differences": ("level", "columns"),
    "trajectory": ("metric", "columns"),
    "mix": ("columns",),
    "domains": ("metric", "top"),
    "relation": ("transfer", "columns"),
    "transfer": ("columns",),
}
"""The kinds of figure, and which options each takes beside :data:`COMMON`."""
COMMON = ("width", "names", "title", "legend", "dpi")
"""The options that all kinds take."""


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """What a figure shows, and how wide it is."""

    metric: str | None = option(
        None, "Such as log-loss, selectivity(accuracy) or, of domains, js-distance; the rows' first without it."
    )
    summary: tuple[str, ...] = option(
        (), "Rows that probekit summary wrote, drawn under the curves; may be given several times.", metavar="ROWS"
    )
    level: float = option(0.05, "Hollow where the corrected p-value is above it.")
    top: int = option(20, "Terms of each pair.")
    transfer: bool = option(False, "What is lost by training on another domain, a point for each pair.")
    columns: int | None = option(None, "Panels side by side, at most; 3 or 4 without it.")
    width: str | float | None = option(
        None,
        "Of the figure as it is printed: of a column (3.03 in) or of the text (6.3 in) of a two-column paper, or in "
        "inches. Letters keep their size, 7 to 10 points. As wide as its panels without it.",
        metavar="column|text|INCHES",
    )
    names: tuple[str, ...] = option(
        (),
        "What is shown for the name of a task, a model, a run, a domain … or for an entry of the legend; may be given "
        "several times. Published tasks are shown as their authors write them, models without their owner.",
        metavar="RAW=SHOWN",
    )
    title: str | None = option(None, "Over all panels.")
    legend: Legend = option("below", "Where it stands.")
    dpi: int = option(300, "Of bitmaps.")

    def __post_init__(self) -> None:
        inches(self.width)
        if isinstance(self.names, Mapping):
            object.__setattr__(self, "names", tuple(f"{raw}={shown}" for raw, shown in self.names.items()))
        for name in self.names:
            if not all(name.partition("=")):
                raise UsageError(f"names are given as RAW=SHOWN, such as cola=CoLA, not {name!r}.")
        for name, low in (("columns", 1), ("top", 1), ("dpi", 30)):
            if (value := getattr(self, name)) is not None and value < low:
                raise UsageError(f"{name} is at least {low}, not {value}.")
        if not 0 <= self.level <= 1:
            raise UsageError(f"level is from 0 to 1, not {self.level}.")


def inches(width: str | float | None) -> float | None:
    """The width of a figure in inches; UsageError for none that there is."""
    if width is None:
        return None
    try:
        found = WIDTHS.get(str(width)) or float(width)
    except ValueError:
        found = 0.0
    if not 1 <= found <= 100:
        raise UsageError(f"a width is {', '.join(WIDTHS)} or inches, from 1 to 100, not {width!r}.")
    return found


@lru_cache(maxsize=16)
def options_of(kind: str) -> type:
    """The options that one kind of figure takes, as a dataclass of their own."""
    own = (*KINDS[kind], *COMMON)
    fields = [
        (f.name, f.type, dataclasses.field(default=f.default, metadata=f.metadata))
        for f in dataclasses.fields(PlotOptions)
        if f.name in own
    ]
    about = {"__module__": __name__}
    return dataclasses.make_dataclass(f"{kind.capitalize()}Options", fields, frozen=True, namespace=about)
