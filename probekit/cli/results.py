"""``probekit results``, ``clean`` and ``reproduce``: what is there, what may go, what can be made again."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.cli.made import made, work
from probekit.cli.show import say, warn
from probekit.cli.terminal import show_table
from probekit.constraint import NotNegative, check
from probekit.display import shown
from probekit.errors import UsageError
from probekit.files import in_words
from probekit.grid import Column, Grid
from probekit.provenance.options import CleanOptions

if TYPE_CHECKING:
    from probekit.provenance.comparison import Comparison
    from probekit.provenance.inventory import Item


@made(instead=True)
def results(folder: Path, *, model: tuple[str, ...], json: bool = False, **more: Any) -> None:
    """A table for each folder, and what can be deleted.

    Parameters
    ----------
    json
        Print JSON, with the commands that make the results again.
    """
    import json as js

    found = work("results", folder, model=_expanded(model), **more)
    if json:
        say(js.dumps([item.to_json() for item in found], indent=2, ensure_ascii=False))
        return
    by_folder: dict[Path, list[Item]] = {}
    for item in found:
        by_folder.setdefault(folder if item.path == folder else item.path.parent, []).append(item)
    for place, items in by_folder.items():
        show_table(_listing(items, str(place)))
    say(f"{len(found):,} results, {in_words(sum(item.size for item in found))}, in {folder}")
    for line in _cleanable(found):
        say(line)


def _listing(items: Sequence[Item], title: str) -> Grid:
    """A line for each result of one folder."""

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


@made(instead=True)
def clean(folder: Path, *, options: CleanOptions, yes: bool, dry_run: bool = False) -> int:
    """What can be deleted; it is deleted after a question.

    Parameters
    ----------
    dry_run
        Print what would be deleted, and delete nothing.
    """
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


@made(instead=True)
def reproduce(
    card: Path,
    *,
    out: Path | None,
    from_: Path,
    tolerance: float | None,
    remake: bool,
    model: tuple[str, ...],
    data_dir: Path | None,
    allow_remote: bool,
    plan: bool = False,
) -> int:
    """What has changed, and the verdict; exit status 1 if the rows differ.

    Parameters
    ----------
    plan
        Print the command and the changes, and stop.
    """
    from probekit.provenance.remake import Sources
    from probekit.provenance.reproduce import Verdict, plan_reproduction, run_reproduction

    tolerance = check("--tolerance", NotNegative | None, tolerance)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory())) if out is None else out
        planned = plan_reproduction(card, scratch, from_, allow_remote=allow_remote)
        say(f"in {planned.folder}: {planned.recipe}")
        for change in planned.changes:
            say(f"- changed since then: {change}.")
        for missing in planned.missing:
            say(f"- missing: {missing}.")
        if planned.missing and not remake:
            raise UsageError(planned.refusal)
        if plan:
            return 0
        done = run_reproduction(planned, tolerance, remake=remake, sources=Sources(model, data_dir))
    _show_comparison(done.comparison)
    largest = f"the largest difference is {done.comparison.largest:.3g}"
    exactness = "to the bit" if tolerance is None else f"within {tolerance:g}"
    sentences = {
        Verdict.EXACT: "reproduced to the bit.",
        Verdict.ROUNDING: f"reproduced to rounding, on another processor or library: {largest}.",
        Verdict.WITHIN: f"reproduced {exactness}: {largest}.",
        Verdict.DIFFERENT: f"different: not reproduced {exactness}.",
    }
    say(sentences[done.verdict])
    return int(done.verdict is Verdict.DIFFERENT)


def _show_comparison(comparison: Comparison) -> None:
    """One line per metric, and the number of rows without a counterpart."""
    numbers = map(Column, ("rows", "equal", "value", "interval", "others"))
    columns = [Column("metric", align="left", key=True), *numbers, Column("also differ", align="left", wrap=True)]
    lines = []
    for row in comparison.metrics.to_dict("records"):
        largest = (f"{row[name]:.3g}" for name in ("value", "interval", "others"))
        lines.append([row["metric"], str(row["rows"]), str(row["equal"]), *largest, row["words"]])
    show_table(Grid(columns, lines, "Largest differences"))
    for state, rows in (("missing", comparison.missing), ("new", comparison.new)):
        if not rows.empty:
            first = rows.iloc[0]
            where = f"{first['task']} {first['split']}, layer {first['layer_name'] or '-'}, {first['metric']}"
            say(f"{len(rows):,} rows are {state}, the first: {where}")
