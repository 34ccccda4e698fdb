"""Making rows again from their evidence card, without trusting the card, and comparing them with what they were.

A card may come from a stranger. Its recipe must name a function of the closed table, with arguments that the function
declares, each of the declared type. All that it may write goes into a folder of ours, and the child process that runs
it is told nothing but this recipe, as JSON on its standard input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from probekit.errors import DataError, UsageError
from probekit.provenance.cards import Card, elsewhere, read_any_card, unread
from probekit.provenance.comparison import Comparison, compare_rows
from probekit.provenance.remake import Sources, how_made, recipe_of_read, wrong_cache
from probekit.recipe import Read, Recipe
from probekit.rows import read_card, read_rows
from probekit.rows.card import environment

__all__ = ["Plan", "Reproduction", "Verdict", "plan_reproduction", "reproduce", "run_reproduction"]

ROUNDING = 1e-5
"""How far a number may be off where another processor or library computed it, as a share where it is above 1."""


class Verdict(StrEnum):
    """How rows that were made again compare with what they were."""

    EXACT = "to the bit"
    ROUNDING = "to rounding"
    WITHIN = "within the tolerance"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be run to make rows again.

    Attributes
    ----------
    card : Card
        The evidence card.
    folder : Path
        Where it is run.
    recipe : Recipe
        What is run; it writes below ``scratch``.
    scratch, made : Path
        Our folder, and where the rows will be in it.
    changes : tuple of str
        What is otherwise now than it was then.
    missing : tuple of str
        What is not there, without which it cannot be run.
    lacking : tuple of Read
        The caches among it.
    """

    card: Card
    folder: Path
    recipe: Recipe
    scratch: Path
    made: Path
    changes: tuple[str, ...]
    missing: tuple[str, ...]
    lacking: tuple[Read, ...]

    @property
    def refusal(self) -> str:
        """The sentence for what is missing."""
        first, more = (
            self.missing[0].partition(";")[0],
            f", and {len(self.missing) - 1} more" if self.missing[1:] else "",
        )
        return f"{first}{more}. Make it again there, or name the folder that it was in with --from."

    @property
    def elsewhere(self) -> bool:
        """Whether another processor, library or package may have computed the rows."""
        then = {k: self.card.told.get(k) for k in ("machine", "versions")}
        return any(then[k] is None or then[k] != now for k, now in environment().items() if k in then)


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Rows made again.

    Attributes
    ----------
    verdict : Verdict
        To the bit, to rounding (of another processor or library), within the tolerance, or different.
    comparison : Comparison
        By metric, with the largest differences.
    changes : tuple of str
        What is otherwise now than it was then.
    recipe : Recipe
        What was run.
    """

    verdict: Verdict
    comparison: Comparison
    changes: tuple[str, ...]
    recipe: Recipe

    def __repr__(self) -> str:
        return f"<Reproduction {self.verdict}, largest difference {self.comparison.largest:.3g}: {self.recipe}>"


def reproduce(
    card: str | Path,
    *,
    out: str | Path | None = None,
    from_: str | Path = ".",
    tolerance: float | None = None,
    remake: bool = False,
    model: Iterable[str | Path] = (),
    data_dir: str | Path | None = None,
) -> Reproduction:
    """Make rows again by the recipe on their evidence card, and compare.

    Parameters
    ----------
    card : path
        The card, its rows, or the folder of a run.
    out : path, optional
        A new folder for what is made; it is thrown away without it.
    from_ : path
        The folder that relative paths of the recipe are below.
    tolerance : float, optional
        How far a number may be off; None for what another processor or library explains (1e-5), and nothing else.
    remake : bool
        Make the caches that are not there, below ``out``, where their data and models are here.
    model : iterable of path
        Folders of models that caches are of, where the card does not find them.
    data_dir : path, optional
        Folder with a folder for each task's files, where the card does not find them.

    Returns
    -------
    Reproduction
        The verdict, and by how much each metric is off.

    Raises
    ------
    DataError
        Where there is no such card.
    UsageError
        For a recipe that this version does not run, and where something is missing.

    Examples
    --------
    >>> probekit.reproduce("cola.parquet").verdict  # doctest: +SKIP
    <Verdict.EXACT: 'to the bit'>
    """
    with tempfile.TemporaryDirectory() as temporary:
        plan = plan_reproduction(card, temporary if out is None else out, from_)
        return run_reproduction(plan, tolerance, remake=remake, sources=Sources(model, data_dir))


def plan_reproduction(card: str | Path, out: str | Path, from_: str | Path = ".") -> Plan:
    """What would be run, and what is otherwise now; nothing is run or written. See :func:`reproduce`."""
    read, folder, scratch = read_any_card(card), Path(from_).expanduser(), Path(out).resolve()
    if not folder.is_dir():
        raise UsageError(f"--from {from_} is no folder.")
    if scratch.exists() and (not scratch.is_dir() or any(scratch.iterdir())):
        raise UsageError(f"--out {out} is there already; give a new folder.")
    folder = folder.resolve()
    recipe, made = elsewhere(read.recipe, scratch, folder)
    changes = [*_changes(read), *_environment(read.told)]
    missing, lacking = unread(recipe, folder), []
    for one in read.reads():
        path = folder / Path(one.path).expanduser()
        if not path.exists():
            if one.kind == "cache":
                lacking.append(one)
                missing.append(f"there is no cache {one.path} in {folder}{_how(one, path)}")
        elif one.kind == "cache" and (wrong := wrong_cache(path, one.digest)):
            changes.append(f"{wrong}{_how(one, path)}")
    return Plan(read, folder, recipe, scratch, made, tuple(changes), tuple(missing), tuple(lacking))


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
    _run(recipe, plan.folder)
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
    """The recipe with the caches that were not there, made anew below the scratch folder."""
    places = {}
    for i, one in enumerate(plan.lacking):
        path = plan.scratch / "remade" / f"{i}.{Path(one.path).name}"
        _run(recipe_of_read(one, path, plan.folder, sources), plan.folder)
        if wrong := wrong_cache(path, one.digest):
            raise UsageError(f"the cache {one.path} was made again, and is another: {wrong}.")
        places[one.path] = str(path)

    def here(value: Any) -> Any:
        if isinstance(value, list):
            return [here(v) for v in value]
        if isinstance(value, dict):  # a nested recipe
            return {key: here(v) for key, v in value.items()}
        return places.get(value, value) if isinstance(value, str) else value

    return replace(plan.recipe, arguments={key: here(value) for key, value in plan.recipe.arguments.items()})


def _run(recipe: Recipe, folder: Path) -> None:
    """Run a recipe in ``folder``, in a process that is told nothing else; UsageError where it fails."""
    command = [sys.executable, "-P", "-m", "probekit.provenance.child"]  # -P: what lies in the folder is not imported
    told = json.dumps(recipe.to_json())
    done = subprocess.run(command, cwd=folder, input=told, stdout=subprocess.DEVNULL, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{recipe.function} ended with the status {done.returncode}, so there is nothing to compare.")


def _changes(card: Card) -> list[str]:
    """Whether the rows are those that the card was written for."""
    try:
        read_card(card.rows)
    except DataError:
        return [f"{card.rows} is not the file that the card was written for: one of them was changed since"]
    return []


def _environment(told: Mapping[str, Any]) -> list[str]:
    """What is otherwise now: versions, processor, BLAS, and the revision of the code."""
    now, found = environment(), []
    then = told.get("versions")
    for package, version in sorted((then if isinstance(then, dict) else {}).items()):
        if (here := now["versions"].get(package)) != version:
            found.append(f"{package} was {version}, is {here or 'not there'}")
    machine = told.get("machine")
    for what, was in sorted((machine if isinstance(machine, dict) else {}).items()):
        if (here := now["machine"].get(what)) != was:
            found.append(f"the {what} was {_text(was)}, is {_text(here)}")
    if told.get("git") != now["git"]:
        found.append(f"the revision of the code was {told.get('git')}, is {now['git']}")
    return found


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _how(read: Read, path: Path) -> str:
    """How a cache was made, for a sentence."""
    told = how_made(read, path)
    return f"; {told}" if told else ""
