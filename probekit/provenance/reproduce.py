"""Make rows again from their evidence card, without trusting the card, and compare them with the original.

A card may come from a stranger. Its recipe must name a function of the closed table, with arguments that the function
declares, each of the declared type. All its outputs go into a folder of ours, and the child process that runs it gets
nothing but this recipe, as JSON on its standard input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from probekit.addresses import refuse_addresses
from probekit.calls import checked
from probekit.constraint import File, NotNegative
from probekit.errors import DataError, UsageError
from probekit.files import digest_of_content
from probekit.monitors.format import CARD
from probekit.provenance.cards import Card, elsewhere, read_any_card, unread
from probekit.provenance.comparison import Comparison, compare_rows
from probekit.provenance.remake import Sources, how_made, piped, recipe_of_read, wrong_cache
from probekit.recipe import Read, Recipe
from probekit.rows import read_card, read_rows
from probekit.rows.card import environment

ROUNDING = 1e-5
"""The tolerance where another processor or library computed a number; relative for numbers above 1."""
OFFLINE = {"HF_HUB_OFFLINE": "1"}
"""The environment of a recipe that may fetch nothing."""


class Verdict(StrEnum):
    """How rows that were made again compare with the original."""

    EXACT = "to the bit"
    ROUNDING = "to rounding"
    WITHIN = "within the tolerance"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Plan:
    """A reproduction that has not run yet.

    Attributes
    ----------
    card : Card
        The evidence card.
    folder : Path
        The folder in which the recipe runs.
    recipe : Recipe
        The call; it writes below ``scratch``.
    scratch, made : Path
        Our folder, and the path of the rows in it.
    changes : tuple of str
        Differences between now and then: versions, processor, files.
    missing : tuple of str
        Files that are missing and required.
    lacking : tuple of Read
        The caches among them.
    allow_remote : bool
        Whether the recipes may open addresses, and fetch from the hub.
    """

    card: Card
    folder: Path
    recipe: Recipe
    scratch: Path
    made: Path
    changes: tuple[str, ...]
    missing: tuple[str, ...]
    lacking: tuple[Read, ...]
    allow_remote: bool = False

    @property
    def refusal(self) -> str:
        """The sentence for what is missing."""
        first, more = (
            self.missing[0].partition(";")[0],
            f", and {len(self.missing) - 1} more" if self.missing[1:] else "",
        )
        what = self.lacking[0].path if self.lacking else "it"
        again = next(filter(None, map(piped, self.lacking)), "add --remake to make it again")
        return (
            f"{first}{more}. If you moved it, add --from FOLDER, the folder that now contains {what}; otherwise "
            f"{again}."
        )

    @property
    def elsewhere(self) -> bool:
        """Whether another processor, library or package may have computed the rows."""
        then = {k: self.card.content.get(k) for k in ("machine", "versions")}
        return any(then[k] is None or then[k] != now for k, now in environment().items() if k in then)


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Rows made again.

    Attributes
    ----------
    verdict : Verdict
        To the bit, to rounding (of another processor or library), within the tolerance, or different.
    comparison : Comparison
        The largest differences of each metric.
    changes : tuple of str
        Differences between now and then: versions, processor, files.
    recipe : Recipe
        The call that was run.
    """

    verdict: Verdict
    comparison: Comparison
    changes: tuple[str, ...]
    recipe: Recipe

    def __repr__(self) -> str:
        return f"<Reproduction {self.verdict}, largest difference {self.comparison.largest:.3g}: {self.recipe}>"


@checked
def reproduce(
    card: File,
    /,
    *,
    out: File | None = None,
    from_: File = Path(),
    tolerance: NotNegative | None = None,
    remake: bool = False,
    model: Iterable[str | Path] = (),
    data_dir: File | None = None,
    allow_remote: bool = False,
) -> Reproduction:
    """Compute saved rows again with the recipe on their evidence card, and say whether they are the same.

    The verdict is "reproduced to the bit"; "reproduced to rounding" if another processor or library computed the rows
    and no number differs by more than 1e-5; or "different". Only public functions that write rows are run, and they
    write only below ``out``, so another person's card cannot overwrite your files. They may read any file, but fetch
    nothing without ``allow_remote``.

    The command first lists what has changed since: versions, processor, revision, caches, rows edited by hand. Its exit
    status is 1 if the rows differ.

    Parameters
    ----------
    card : path
        The evidence card (.json), its rows, or a run of ``probekit train``.
    out : path, optional
        A new folder for the recomputed files; by default they are discarded.
    from_ : path
        The folder in which the original command was run.
    tolerance : float, optional
        Largest difference allowed in any number, on any processor and library; by default 1e-5 if another processor or
        library computed the rows, else 0.
    remake : bool
        Recompute missing caches, below ``out``, if their models and data are available.
    model : iterable of path
        Folder of a model that a cache was computed with, if it is not where the card says; may be repeated.
    data_dir : path, optional
        Folder with one subfolder of files per task, if they are not where the card says.
    allow_remote : bool
        Open addresses (s3://bucket/cache) that the card names, and fetch models and data from the hub. Without it,
        nothing is fetched: whoever wrote the card chose the addresses.

    Returns
    -------
    Reproduction
        The verdict, and the largest difference of each metric.

    Raises
    ------
    DataError
        For a card that does not exist, or names addresses.
    UsageError
        For a recipe that this version cannot run, and for missing files.

    Examples
    --------
    >>> probekit.reproduce("cola.parquet").verdict  # doctest: +SKIP
    <Verdict.EXACT: 'to the bit'>

    On the command line::

        probekit reproduce cola.parquet
        probekit reproduce figures/demo/layers.parquet --tolerance 1e-6
        probekit reproduce runs/mrpc --from ~/paper --out again/ --plan
        probekit reproduce cola.parquet --remake --model models/bert --data-dir data/
    """
    with tempfile.TemporaryDirectory() as temporary:
        plan = plan_reproduction(card, temporary if out is None else out, from_, allow_remote=allow_remote)
        return run_reproduction(plan, tolerance, remake=remake, sources=Sources(model, data_dir))


def plan_reproduction(
    card: str | Path, out: str | Path, from_: str | Path = ".", *, allow_remote: bool = False
) -> Plan:
    """Plan a reproduction and list the changes since; nothing is run or written. See :func:`reproduce`."""
    read, folder, scratch = read_any_card(card), Path(from_).expanduser(), Path(out).resolve()
    if not folder.is_dir():
        raise UsageError(f"--from {from_} is not a folder.")
    if scratch.exists() and (not scratch.is_dir() or any(scratch.iterdir())):
        raise UsageError(f"--out {out} exists already; give a new folder.")
    recipes = [read.recipe.to_json(), *(one.about.get("recipe") for one in read.reads())]
    refuse_addresses(recipes, read.path, allowed=allow_remote)
    folder = folder.resolve()
    recipe, made = elsewhere(read.recipe, scratch, folder)
    changes = [*_changes(read), *_environment(read.content)]
    missing, lacking = unread(recipe, folder), []
    for one in read.reads():
        path = folder / Path(one.path).expanduser()
        if not path.exists():
            if one.kind == "cache":
                lacking.append(one)
                missing.append(f"the cache {one.path} is not in {folder.resolve()}{_making(one, path)}")
        elif one.kind == "cache" and (wrong := wrong_cache(path, one.digest)):
            changes.append(f"{wrong}{_making(one, path)}")
        elif one.kind == "probe" and ((card := path / CARD).is_file() and digest_of_content(card) != one.digest):
            changes.append(f"the kept probe {one.path} has changed since")
    return Plan(read, folder, recipe, scratch, made, tuple(changes), tuple(missing), tuple(lacking), allow_remote)


def run_reproduction(
    plan: Plan, tolerance: float | None = None, *, remake: bool = False, sources: Sources | None = None
) -> Reproduction:
    """Run the recipe of a plan in a process of its own, and compare its rows; see :func:`reproduce`."""
    if plan.missing and (not remake or len(plan.missing) > len(plan.lacking)):
        raise UsageError(plan.refusal)
    recipe = plan.recipe
    plan.scratch.mkdir(parents=True, exist_ok=True)
    if remake:
        recipe = _with_caches(plan, sources or Sources())
    _run(recipe, plan, threads=plan.card.content.get("threads"))
    found = compare_rows(read_rows(plan.card.rows), read_rows(plan.made), shared=plan.card.old)
    return Reproduction(_verdict(found, tolerance, plan), found, plan.changes, recipe)


def _verdict(found: Comparison, tolerance: float | None, plan: Plan) -> Verdict:
    if found.exact:
        return Verdict.EXACT
    if tolerance is not None:
        return Verdict.WITHIN if found.within(tolerance) else Verdict.DIFFERENT
    close = plan.elsewhere and found.within(ROUNDING, relative=True)
    return Verdict.ROUNDING if close else Verdict.DIFFERENT


def _with_caches(plan: Plan, sources: Sources) -> Recipe:
    """The recipe with the missing caches, made again below the scratch folder."""
    places = {}
    for i, one in enumerate(plan.lacking):
        path = plan.scratch / "remade" / f"{i}.{Path(one.path).name}"
        _run(recipe_of_read(one, path, plan.folder, sources), plan)
        if wrong := wrong_cache(path, one.digest):
            raise UsageError(f"the cache {one.path} was made again and differs: {wrong}.")
        places[one.path] = str(path)

    def here(value: Any) -> Any:
        if isinstance(value, list):
            return [here(v) for v in value]
        if isinstance(value, dict):  # a nested recipe
            return {key: here(v) for key, v in value.items()}
        return places.get(value, value) if isinstance(value, str) else value

    return replace(plan.recipe, arguments={key: here(value) for key, value in plan.recipe.arguments.items()})


def _run(recipe: Recipe, plan: Plan, threads: Any = None) -> None:
    """Run a recipe in the folder of a plan, in a process that gets nothing else; UsageError if it fails.

    ``threads`` is the number of torch's threads on the card of a training, where it affects how sums are rounded.
    """
    command = [sys.executable, "-P", "-m", "probekit.provenance.child"]  # -P: nothing in the folder is imported
    given = json.dumps(
        {
            "recipe": recipe.to_json(), "allow_remote": plan.allow_remote,
            "threads": threads if isinstance(threads, int) else None,
        }
    )  # fmt: skip
    how: Any = {"cwd": plan.folder, "env": {**os.environ, **({} if plan.allow_remote else OFFLINE)}}
    done = subprocess.run(command, input=given, stdout=subprocess.DEVNULL, text=True, check=False, **how)
    if done.returncode:
        raise UsageError(
            f"{recipe.function} failed with exit status {done.returncode}, so there is nothing to compare."
            + ("" if plan.allow_remote else " Nothing is fetched from the hub without --allow-remote.")
        )


def _changes(card: Card) -> list[str]:
    """A sentence if the rows are not those that the card was written for."""
    try:
        read_card(card.rows)
    except DataError:
        return [f"{card.rows} is not the file that the card was written for: one of them has changed"]
    return []


def _environment(card: Mapping[str, Any]) -> list[str]:
    """Differences between now and then: versions, processor, BLAS, and the revision of the code."""
    now, found = environment(), []
    then = card.get("versions")
    for package, version in sorted((then if isinstance(then, dict) else {}).items()):
        if (here := now["versions"].get(package)) != version:
            found.append(f"{package} was {version}, is now {here or 'not installed'}")
    machine = card.get("machine")
    for what, was in sorted((machine if isinstance(machine, dict) else {}).items()):
        here = now["machine"].get(what)
        if isinstance(was, list) and isinstance(here, list) and ({*was} <= {*here} or {*here} <= {*was}):
            continue  # the libraries that were loaded when it was asked
        if here != was:
            found.append(f"the {what} was {_text(was)}, is now {_text(here)}")
    if card.get("git") != now["git"]:
        found.append(f"the revision of the code was {card.get('git')}, is now {now['git']}")
    return found


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _making(read: Read, path: Path) -> str:
    """How a cache was made, as a clause."""
    clause = how_made(read, path)
    return f"; {clause}" if clause else ""
