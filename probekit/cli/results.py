"""``probekit results`` and ``probekit clean``."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from probekit.files import DATA_CACHE

__all__ = ["clean_command", "results_command"]

Folder = Annotated[Path, typer.Argument(metavar="[FOLDER]", help="With all that is below it; data_cache/ without it.")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model", help="Folder of a model that caches are of, or a pattern such as 'RUN/step-*'. May be repeated."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the data that caches are of, or with a folder for each task."),
]


def results_command(
    folder: Folder = DATA_CACHE,
    model: Models = None,
    data_dir: DataDir = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON, with the commands that make them again.")] = False,
) -> None:
    """List the results in a folder with their sizes, and what of them may be deleted.

    The column *clean* is what `probekit clean --what` knows a thing by that can be made again. What has none is left
    alone: results, files of others, what is being written, and caches whose model or data are not known.

    Examples:

        probekit results

        probekit results runs/

        probekit results data_cache/ --model models/bert-of-mine --json
    """
    import json as js

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from probekit.files import in_words
    from probekit.provenance.inventory import results

    found = results(folder, _folders(model), data_dir)
    if json:
        typer.echo(js.dumps([item.told() for item in found], indent=2, ensure_ascii=False))
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("file", overflow="fold", ratio=4)
    table.add_column("what it is", overflow="fold", ratio=5)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("clean", overflow="fold", ratio=2)
    for item in found:
        name = item.path.relative_to(folder).as_posix()
        about = f"{item.kind}: {item.about}" if item.about else item.kind
        about += f" ({item.created[:10]})" if item.created else ""
        clean = f"[bold]{item.what}[/]" if item.what else f"[dim]{escape(item.why)}[/]"
        table.add_row(escape(name), escape(about), in_words(item.size), clean)
    Console().print(table)
    typer.echo(f"{len(found):,} things of {in_words(sum(item.size for item in found))} in {folder}")


def clean_command(
    folder: Folder = DATA_CACHE,
    what: Annotated[
        str,
        typer.Option(
            "--what",
            help="leftovers (temporary files of killed processes), unfinished (caches and runs that were interrupted, "
            "and could go on), caches, or checkpoints (of finished runs).",
        ),
    ] = "leftovers",
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Not changed since: 12h, 30d, 8w.")
    ] = None,
    model: Models = None,
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete what can be made again, after asking.

    A cache can be made again where its data and its model are here, with the digests that it tells: the data generated,
    below --data-dir, or in the hub's local cache; the model named with --model, below FOLDER as the checkpoint of a
    run, or in the hub's local cache; or either where the study that made it has found it. Rows, cards and files that
    are not probekit's are never deleted, nor what a process is writing. Exit status 1 where something could not be
    deleted.

    Examples:

        probekit clean

        probekit clean --what caches --older-than 30d --dry-run

        probekit clean --what caches --model models/bert-of-mine --data-dir data/

        probekit clean runs/ --what checkpoints
    """
    from probekit.errors import UsageError
    from probekit.files import in_words
    from probekit.provenance.clean import delete
    from probekit.provenance.disk import size_of
    from probekit.provenance.inventory import What, results

    if what not in tuple(What):
        raise UsageError(f"--what is {', '.join(What)}, not {what!r}.")
    before = time.time() - (0 if older_than is None else _seconds(older_than))
    every = [item for item in results(folder, _folders(model), data_dir, verify=True) if item.what == what]
    found = [item for item in every if item.changed <= before]
    sizes = {item.path: sum(map(size_of, item.paths)) for item in found}
    for item in found:
        typer.echo(f"{item.path}  {in_words(sizes[item.path])}  {item.about}".rstrip())
        if item.command and what != "leftovers":
            files = item.kind == "unfinished cache" and not re.search(" --task grammar:| --data-dir ", item.command)
            note = "  (and --data-dir, where the task's files are in a folder)" * files
            typer.echo(f"    {item.command}{note}")
    if not found:
        typer.echo(f"there are no {what} to delete in {folder}.")
        return
    things = f"{what}: {len(found):,}, {in_words(sum(sizes.values()))}"
    if dry_run:
        typer.echo(f"{things}; --dry-run, so nothing is deleted.")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("nobody is there to be asked, so nothing is deleted; give --yes.")
        if not typer.confirm(f"Delete these ({things})?"):
            typer.echo("nothing was deleted.")
            return
    failed = {item.path: reason for item in found if (reason := delete(item))}
    for path, reason in failed.items():
        typer.echo(f"{path} is left: {reason}.", err=True)
    gone = [size for path, size in sizes.items() if path not in failed]
    typer.echo(f"{len(gone):,} deleted, {in_words(sum(gone))}.")
    if failed:
        raise typer.Exit(1)


def _folders(models: list[str] | None) -> list[Path]:
    from probekit.cli.patterns import expand
    from probekit.errors import UsageError

    found = [Path(path).expanduser() for word in models or () for path in expand(word)]
    for path in found:
        if not (path / "config.json").is_file():
            raise UsageError(f"{path} is no folder of a model: it has no config.json.")
    return found


def _seconds(age: str) -> float:
    from probekit.errors import UsageError

    match = re.fullmatch(r"(\d+)([hdw])", age.strip())
    if match is None:
        raise UsageError(f"--older-than is hours, days or weeks, such as 12h, 30d or 8w, not {age!r}.")
    return int(match[1]) * {"h": 3600.0, "d": 86400.0, "w": 604800.0}[match[2]]
