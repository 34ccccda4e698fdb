"""What all commands print with: the console, lines, and the end of an analysis."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from probekit.display import shown

if TYPE_CHECKING:
    from rich.console import Console

    from probekit.rows import Result


def console(*, stderr: bool = False, highlight: bool = True, width: int | None = None) -> Console:
    """Standard output, or standard error, as it is now; ``width`` columns wide, or as wide as the terminal."""
    from rich.console import Console
    from rich.text import Text

    class Shown(Console):
        """Writes control characters out instead of sending them to the terminal: every cell and line passes here."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(shown(text), **options)

    return Shown(stderr=stderr, highlight=highlight, width=width, emoji=False)  # a task may be called ":x:"


def say(text: object) -> None:
    """A line on standard output."""
    print(shown(text))  # noqa: T201


def warn(text: object) -> None:
    """A line on standard error."""
    print(shown(text), file=sys.stderr)  # noqa: T201


def saved(result: Result) -> None:
    """The verdict, and where a result was saved: its rows, and its predictions for each example."""
    for sentence in result.verdict:
        say(sentence)
    if result.path is not None:
        say(f"{result.path}  ({len(result.rows)} rows, {sum(result.seconds.values()):.1f} s)")
        for path in result.prediction_paths(result.path):
            say(path)
