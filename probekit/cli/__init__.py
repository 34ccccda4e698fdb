"""The command line: ``probekit COMMAND``. Each command parses, calls one function and prints.

Exit status: 0 done, 1 a check failed, 2 wrong usage or input, with one plain sentence on standard error
(``--debug`` shows the traceback), 130 interrupted.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from probekit.errors import ProbekitError, UsageError

__all__ = ["app", "main", "parse"]

CLICK_ERROR: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""The root of usage errors, of click's or of the copy of click that typer brings."""

INTERRUPTED = 130

app = typer.Typer(
    name="probekit",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="What each layer of a language model knows, how adaptation changes it, and how sure we are.\n\n"
    "Start with `probekit demo`; then `probekit cache-activations`, `probekit probe` and `probekit plot layers`.",
)


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        typer.echo(f"probekit {version('probekit')}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more of what is done.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    from rich.console import Console
    from rich.logging import RichHandler

    handler = RichHandler(console=Console(stderr=True), show_time=False, show_path=False)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s", handlers=[handler])


def _register() -> None:
    from probekit.cli import demo
    from probekit.cli.reproduce import reproduce_command
    from probekit.cli.results import clean_command, results_command
    from probekit.cli.study import app as study

    app.command("demo")(demo.demo_command)
    app.command("reproduce")(reproduce_command)
    app.command("results")(results_command)
    app.command("clean")(clean_command)
    app.add_typer(study, name="study")


_register()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; ``arguments`` are those of the process by default."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        return _run_typer(words) if words[:1] in ([name] for name in _typer_names()) else _run(words)
    except (KeyboardInterrupt, typer.Abort):
        word = "interrupted; the same command again goes on where it stopped (caches, training, searches)."
        print(f"probekit: {word}", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    except (ProbekitError, OSError) as error:
        if debug:
            raise
        return _fail(str(error))


def _run(words: Sequence[str]) -> int:
    from cyclopts import CycloptsError

    from probekit.cli.commands import COMMANDS, make_app

    verbose = {"--verbose", "-v"} & set(words[:1])
    words = _spelled(words[len(verbose) :])
    _log(verbose=bool(verbose))
    if not words:
        make_app()(["--help"])
        return 2
    try:
        return int(make_app(words)(words) or 0)
    except CycloptsError as error:
        known = words[0] in COMMANDS
        hint = f" See probekit {words[0]} --help." if known else ""
        return _fail(f"{str(error).rstrip('.?')}.{hint}")


def _log(*, verbose: bool) -> None:
    from rich.console import Console
    from rich.logging import RichHandler

    handler = RichHandler(console=Console(stderr=True), show_time=False, show_path=False)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s", handlers=[handler])


def _typer_names() -> list[str]:
    return list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def _spelled(words: Sequence[str]) -> list[str]:
    """As cyclopts reads them: --no-X is --X=false, and a list that begins with a negative number stays an option's."""
    spelled: list[str] = []
    for word in words:
        if re.fullmatch(r"-\d+(,\S+)+", word) and spelled and spelled[-1].startswith("--"):
            spelled[-1] += f"={word}"
        else:
            spelled.append(re.sub(r"^--no-(.+)$", r"--\1=false", word))
    return spelled


def _run_typer(words: Sequence[str]) -> int:
    try:
        status = int(app(words, prog_name="probekit", standalone_mode=False) or 0)
    except CLICK_ERROR as error:
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return 2
        hint = f" See {context.command_path} --help." if context is not None else ""
        return _fail(f"{error.format_message().rstrip('.?')}.{hint}")
    if status == INTERRUPTED:  # typer's word for Ctrl-C
        raise KeyboardInterrupt
    return status


def parse(words: Sequence[str]) -> None:
    """Raise UsageError where the words of a command are none, without running it."""
    from cyclopts import CycloptsError

    from probekit.cli.commands import COMMANDS, make_app

    if words[0] in COMMANDS:
        try:
            make_app(words).parse_args(list(words))
        except CycloptsError as error:
            raise UsageError(f"probekit {words[0]}: {str(error).rstrip('.?')}.") from error
        return
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands"):
        if not rest or rest[0] not in command.commands:
            raise UsageError(f"there is no {' '.join(words[:2])!r}; there are {', '.join(command.commands)}.")
        command = command.commands[rest.pop(0)]
    try:
        command.make_context("probekit", rest)
    except CLICK_ERROR as error:
        raise UsageError(f"probekit {words[0]}: {error.format_message().rstrip('.?')}.") from error


def _fail(message: str) -> int:
    print(f"probekit: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return 2
