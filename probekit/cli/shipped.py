"""The commands ``list`` and ``show`` of what comes with probekit as files: studies and suites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import cleandoc
from pathlib import Path

from cyclopts import App

from probekit.cli.show import say
from probekit.errors import UsageError, did_you_mean

__all__ = ["add_shipped"]

Shipped = Callable[[], Mapping[str, str]]
"""The text of each file, by name."""


def add_shipped(app: App, what: str, plural: str, *, example: str) -> Callable[[Shipped], Shipped]:
    """Add the two commands to the app of a kind of files, read from the decorated function.

    Parameters
    ----------
    app : App
        That of ``what``.
    what, plural : str
        The kind, such as "study" and "studies".
    example : str
        The name of one of the files, for the help.
    """

    def add(shipped: Shipped) -> Shipped:
        def list_command() -> None:
            from probekit.toml import parse_toml

            for name, text in shipped().items():
                say(f"{name}: {parse_toml(text, Path(name))['title']}")

        def show_command(name: str, /) -> None:
            files = shipped()
            if name not in files:
                raise UsageError(f"there is no {what} {name!r}; {did_you_mean(name, files, most=3)}")
            say(files[name].rstrip("\n"))

        list_command.__doc__ = cleandoc(f"""List the {plural} that come with probekit.

        Examples:

            probekit {what} list

            probekit {what} show {example}
        """)
        show_command.__doc__ = cleandoc(f"""Print the file of a {what}, as a starting point for your own.

        Examples:

            probekit {what} show {example}

            probekit {what} show {example} > mine.toml

        Parameters
        ----------
        name
            The name of the {what}.
        """)
        app.command(list_command, name="list")
        app.command(show_command, name="show")
        return shipped

    return add
