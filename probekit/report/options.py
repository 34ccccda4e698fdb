"""Options of a report."""

from dataclasses import dataclass

from probekit.recipe import option

__all__ = ["ReportOptions"]


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What stands on a page beside the rows."""

    title: str | None = option(None, "Of the page; the tasks' names without it.")
    figure: tuple[str, ...] = option(
        (), "A further figure, .svg, its caption beside it as .md or .json; may be given several times."
    )
    text: tuple[str, ...] = option((), "A text to begin with, Markdown; may be given several times.")
