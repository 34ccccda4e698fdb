"""What the commands print alike."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from probekit.display import shown

if TYPE_CHECKING:
    from rich.console import Console

    from probekit.rows import Result

__all__ = ["console", "saved", "say", "warn"]


def console(*, stderr: bool = False, highlight: bool = True) -> Console:
    """Standard output, or standard error, as it is now."""
    from rich.console import Console
    from rich.text import Text

    class Shown(Console):
        """Shows what a terminal would obey instead of sending it: every cell and line passes here."""

        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(shown(text), **how)

    return Shown(stderr=stderr, highlight=highlight)


def say(text: object) -> None:
    """A line on standard output."""
    print(shown(text))  # noqa: T201


def warn(text: object) -> None:
    """A line on standard error."""
    print(shown(text), file=sys.stderr)  # noqa: T201


def saved(result: Result) -> None:
    """The verdict, and where a result was saved: its rows, and what was said of each example."""
    for sentence in result.verdict:
        say(sentence)
    if result.path is not None:
        say(f"{result.path}  ({len(result.rows)} rows, {sum(result.seconds.values()):.1f} s)")
        for path in result.prediction_paths(result.path):
            say(path)
