"""``probekit results`` and ``probekit clean``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.cli.show import console, say, warn
from probekit.display import shown
from probekit.errors import UsageError
from probekit.files import DATA_CACHE
from probekit.provenance.options import CleanOptions

if TYPE_CHECKING:
    from probekit.provenance.inventory import Item

__all__ = ["clean", "results"]


def results(
    folder: Path = DATA_CACHE,
    /,
    *,
    model: tuple[str, ...] = (),
    data_dir: Path | None = None,
    json: bool = False,
) -> None:
    """List the results in a folder with their sizes, and what of them may be deleted.

    The column *clean* is what `probekit clean --what` knows a thing by that can be made again. What has none is left
    alone: results, files of others, what is being written, and caches whose model or data are not known.

    Examples:

        probekit results

        probekit results runs/

        probekit results data_cache/ --model models/bert-of-mine --json

    Parameters
    ----------
    folder
        With all that is below it; data_cache/ without it.
    model
        Folder of a model that caches are of, or a pattern such as 'RUN/step-*'. May be repeated.
    data_dir
        Folder of the data that caches are of, or with a folder for each task.
    json
        As JSON, with the commands that make them again.
    """
    import json as js

    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from probekit.files import in_words
    from probekit.provenance.inventory import results as look

    found = look(folder, model=_expanded(model), data_dir=data_dir)
    if json:
        say(js.dumps([item.told() for item in found], indent=2, ensure_ascii=False))
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
    console().print(table)
    say(f"{len(found):,} things of {in_words(sum(item.size for item in found))} in {folder}")


def clean(
    folder: Path = DATA_CACHE,
    /,
    *,
    options: Annotated[CleanOptions, Parameter(name="*")] = CleanOptions(),
    dry_run: bool = False,
    yes: bool = False,
) -> int:
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

    Parameters
    ----------
    folder
        With all that is below it; data_cache/ without it.
    dry_run
        Say what would be deleted, and delete nothing.
    yes
        Do not ask.
    """
    from probekit.files import in_words
    from probekit.provenance.clean import candidates, delete_all
    from probekit.provenance.disk import size_of

    found = candidates(folder, replace(options, model=tuple(_expanded(options.model))))
    for item in found:
        say(f"{item.path}  {in_words(sum(map(size_of, item.paths)))}  {item.about}".rstrip())
        if item.command and options.what != "leftovers":
            say(f"    {item.command}{_note(item)}")
    if not found:
        say(f"there are no {options.what} to delete in {folder}.")
        return 0
    size = sum(size_of(path) for item in found for path in item.paths)
    things = f"{options.what}: {len(found):,}, {in_words(size)}"
    if dry_run:
        say(f"{things}; --dry-run, so nothing is deleted.")
        return 0
    if not yes and not _confirmed(f"Delete these ({things})?"):
        say("nothing was deleted.")
        return 0
    cleaned = delete_all(found)
    for path, reason in cleaned.left.items():
        warn(f"{path} is left: {reason}.")
    say(f"{len(cleaned.deleted):,} deleted, {in_words(cleaned.size)}.")
    return 1 if cleaned.left else 0


def _note(item: Item) -> str:
    """What the recipe of an unfinished cache may not know."""
    told = {} if item.recipe is None else item.recipe.arguments
    known = "data_dir" in told or str(told.get("task")).startswith("grammar:")
    unsure = item.kind == "unfinished cache" and not known
    return "  (and --data-dir, where the task's files are in a folder)" if unsure else ""


def _confirmed(question: str) -> bool:
    """Ask on the terminal; UsageError where nobody is there."""
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to be asked, so nothing is deleted; give --yes.")
    print(f"{shown(question)} [y/N]: ", end="", flush=True)  # noqa: T201
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _expanded(models: tuple[str, ...]) -> list[str]:
    from probekit.cli.patterns import expand

    return [path for word in models for path in expand(word)]
