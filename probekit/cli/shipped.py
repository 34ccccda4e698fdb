"""What comes with probekit as a file, listed and shown: studies and suites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from probekit.cli.show import say
from probekit.errors import UsageError, did_you_mean

__all__ = ["say_file", "say_titles"]


def say_titles(shipped: Mapping[str, str]) -> None:
    """The name and title of each file."""
    from probekit.toml import parse_toml

    for name, text in shipped.items():
        say(f"{name}: {parse_toml(text, Path(name))['title']}")


def say_file(what: str, name: str, shipped: Mapping[str, str]) -> None:
    """The file with a name; raises UsageError, with the nearest names, if there is none."""
    if name not in shipped:
        raise UsageError(f"there is no {what} {name!r}; {did_you_mean(name, shipped, most=3)}")
    say(shipped[name].rstrip("\n"))
