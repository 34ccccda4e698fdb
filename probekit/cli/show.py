"""What the commands print alike."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from probekit.rows import Result

__all__ = ["console", "saved", "say", "warn"]


def console() -> Console:
    """Standard output, as it is now."""
    from rich.console import Console

    return Console()


def say(text: object) -> None:
    """A line on standard output."""
    print(text)  # noqa: T201


def warn(text: object) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr)  # noqa: T201


def saved(result: Result) -> None:
    """Where a result was saved: its rows, and what was said of each example."""
    if result.path is not None:
        say(f"{result.path}  ({len(result.rows)} rows, {sum(result.seconds.values()):.1f} s)")
        for path in result.prediction_paths(result.path):
            say(path)
