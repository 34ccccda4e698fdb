"""``probekit results`` and ``probekit clean``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.cli.show import say, warn
from probekit.cli.terminal import show_table
from probekit.display import shown
from probekit.errors import UsageError
from probekit.files import DATA_CACHE
from probekit.grid import Column, Grid
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
    """List the results in a folder, one line each: kind, task, model, size, age, and whether it can be made again.

    Folders of studies and runs, rows, caches, reports, figures, captions and task files are recognised. Under the
    table stands what `probekit clean` would delete, and why a cache cannot be made again. A narrow terminal leaves out
    model, task and age.

    Examples:

        probekit results

        probekit results runs/

        probekit results data_cache/ --model models/bert-of-mine --json

    Parameters
    ----------
    folder
        Listed with all folders below it; data_cache/ by default.
    model
        Folder of a model from which caches were made, or a pattern such as 'RUN/step-*'. May be repeated.
    data_dir
        Folder of the data from which caches were made, or with a folder for each task.
    json
        Print JSON, with the commands that make the results again.
    """
    import json as js

    from probekit.files import in_words
    from probekit.provenance.inventory import results as find_results

    def _place(path: Path, folder: Path) -> str:
        return "." if path == folder else path.parent.relative_to(folder).as_posix()

    found = find_results(folder, model=_expanded(model), data_dir=data_dir)
    if json:
        say(js.dumps([item.to_json() for item in found], indent=2, ensure_ascii=False))
        return
    by_folder: dict[str, list[Item]] = {}
    for item in found:
        by_folder.setdefault(_place(item.path, folder), []).append(item)
    for name, items in by_folder.items():
        show_table(_listing(items, str(folder) if name == "." else f"{folder / name}"))
    say(f"{len(found):,} results, {in_words(sum(item.size for item in found))}, in {folder}")
    for line in _cleanable(found):
        say(line)


def _listing(items: Sequence[Item], title: str) -> Grid:
    """A line for each result of one folder."""
    from probekit.files import in_words

    columns = [
        Column("name", align="left", key=True),
        Column("kind", align="left"),
        Column("task", align="left", optional=2),
        Column("model", align="left", optional=3),
        Column("size"),
        Column("age", optional=1),
        Column("can be remade", align="left"),
    ]
    lines = []
    for item in items:
        remade = "" if item.kind not in REMADE else "yes" if item.what else "no"
        kind = f"{item.kind} (damaged)" if item.kind == "cache" and not item.spec else item.kind
        lines.append([item.path.name, kind, item.task, item.model, in_words(item.size), _age(item), remade])
    return Grid(columns, lines, title)


REMADE = ("cache", "unfinished cache", "unfinished run")
"""The kinds that may be made again as a whole."""


def _cleanable(items: Sequence[Item]) -> Iterator[str]:
    """What can be deleted, with its size; and why caches cannot be made again."""
    from collections import Counter

    from probekit.files import in_words
    from probekit.provenance.disk import size_of
    from probekit.provenance.inventory import What

    for what in What:
        some = [item for item in items if item.what is what]
        if some:
            size = sum(size_of(path) for item in some for path in item.paths)
            state = "left by processes that ended" if what is What.LEFTOVERS else "can be made again"
            yield f"probekit clean --what {what}: {len(some):,} {state}, {in_words(size)}"
    for (kind, why), n in Counter((item.kind, item.why) for item in items if item.kind in REMADE and item.why).items():
        yield f"{n:,} of kind {kind} cannot be deleted: {why}"


def _age(item: Item) -> str:
    """How long ago a result was made, in its largest unit."""
    import time
    from datetime import datetime

    try:
        made = datetime.fromisoformat(item.created).timestamp()
    except ValueError:
        made = item.changed
    seconds = max(time.time() - made, 0)
    for unit, length in (("y", 31_557_600), ("w", 604_800), ("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= (2 if unit in "yw" else 1) * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def clean(
    folder: Path = DATA_CACHE,
    /,
    *,
    options: Annotated[CleanOptions, Parameter(name="*")] = CleanOptions(),
    dry_run: bool = False,
    yes: bool = False,
) -> int:
    """Delete files that can be recomputed, after asking.

    A cache can be made again if its data and its model are on this machine, with the digests that the cache records.
    Data: generated tasks; a task file (.toml); the folder --data-dir; the hub's local cache. Models: minilm, --model,
    the checkpoints of runs in FOLDER, the hub's local cache. The places that the cache's own command or its study
    names are searched, too. Rows, cards, files of others, and files that a process is writing are never deleted. Exit
    status 1 if something could not be deleted.

    Examples:

        probekit clean

        probekit clean --what caches --older-than 30d --dry-run

        probekit clean --what caches --model models/bert-of-mine --data-dir data/

        probekit clean runs/ --what checkpoints

    Parameters
    ----------
    folder
        Searched with all folders below it; data_cache/ by default.
    dry_run
        Print what would be deleted, and delete nothing.
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
        say(f"{things}. Nothing is deleted (--dry-run).")
        return 0
    if not yes and not _confirmed(f"Delete these ({things})?"):
        say("nothing was deleted.")
        return 0
    cleaned = delete_all(found)
    for path, reason in cleaned.left.items():
        warn(f"{path} is not deleted: {reason}.")
    say(f"{len(cleaned.deleted):,} deleted, {in_words(cleaned.size)}.")
    return 1 if cleaned.left else 0


def _note(item: Item) -> str:
    """The option that the command of an unfinished cache may lack."""
    arguments = {} if item.recipe is None else item.recipe.arguments
    known = "data_dir" in arguments or str(arguments.get("task")).startswith("grammar:")
    unsure = item.kind == "unfinished cache" and not known
    return "  (add --data-dir if the task's files are in a folder)" if unsure else ""


def _confirmed(question: str) -> bool:
    """Ask on the terminal; UsageError where there is no terminal."""
    if not sys.stdin.isatty():
        raise UsageError("standard input is not a terminal, so nobody can confirm and nothing is deleted; give --yes.")
    print(f"{shown(question)} [y/N]: ", end="", flush=True)  # noqa: T201
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _expanded(models: tuple[str, ...]) -> list[str]:
    from probekit.cli.patterns import expand

    return [path for pattern in models for path in expand(pattern)]
