"""Deleting of a result what can be made again, unless anything has happened to it since it was looked at."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from probekit.activations.writing.journal import journal_path, locked, partial_path
from probekit.errors import CacheBusy, CacheError, UsageError
from probekit.files import DATA_CACHE, is_running
from probekit.models.identity import CARD
from probekit.provenance.disk import cache_of, pieces, size_of, state, written_by
from probekit.provenance.inventory import Item, What, results
from probekit.provenance.options import CleanOptions

__all__ = ["Cleaned", "candidates", "clean", "delete", "delete_all"]


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was deleted, and what was left, with the reason. size : bytes that were deleted"""

    deleted: tuple[Path, ...]
    left: Mapping[Path, str]
    size: int


def candidates(folder: str | Path = DATA_CACHE, options: CleanOptions | None = None) -> list[Item]:
    """What would be deleted; see :func:`clean`."""
    options = options or CleanOptions()
    before = time.time() - options.seconds
    found = results(folder, model=options.model, data_dir=options.data_dir, verify=True)
    return [item for item in found if item.what == options.what and item.changed <= before]


def clean(
    folder: str | Path = DATA_CACHE,
    *,
    what: str = "leftovers",
    older_than: str | None = None,
    model: Iterable[str | Path] = (),
    data_dir: str | Path | None = None,
    yes: bool = False,
) -> Cleaned:
    """Delete what can be made again.

    Rows, cards and files that are not probekit's are never deleted, nor what a process is writing.

    Parameters
    ----------
    folder : path
        With all that is below it.
    what : {"leftovers", "unfinished", "caches", "checkpoints"}
        Of which kind; see :class:`probekit.provenance.inventory.What`.
    older_than : str, optional
        Not changed since: "12h", "30d", "8w".
    model : iterable of path
        Folders of models that caches are of.
    data_dir : path, optional
        Folder of the data that caches are of, or with a folder for each task.
    yes : bool
        Delete; what would be is told by :func:`candidates`, and nothing is deleted without it.

    Returns
    -------
    Cleaned
        What was deleted, and what could not be.

    Raises
    ------
    UsageError
        Where there is no such folder or kind, and without ``yes``.
    """
    if not yes:
        raise UsageError("nobody is asked here, so nothing is deleted; give yes=True.")
    places = tuple(str(path) for path in model)
    options = CleanOptions(what, older_than, places, None if data_dir is None else str(data_dir))
    return delete_all(candidates(folder, options))


def delete_all(items: Iterable[Item]) -> Cleaned:
    """Delete what may be; see :func:`delete`."""
    deleted: dict[Path, int] = {}
    left: dict[Path, str] = {}
    for item in items:
        size = sum(map(size_of, item.paths))
        if reason := delete(item):
            left[item.path] = reason
        else:
            deleted[item.path] = size
    return Cleaned(tuple(deleted), left, sum(deleted.values()))


def delete(item: Item) -> str:
    """Delete what ``item.paths`` names; returns "" where that was done, and else why not.

    The right to write is taken as a writer takes it, and what was found must be as it was then.

    Raises
    ------
    UsageError
        For an item that may not be deleted.
    """
    if item.what is None:
        raise UsageError(f"{item.path} is not deleted: {item.why}.")
    try:
        with ExitStack() as stack:
            name = cache_of(item.path.name)
            lock = journal_path(item.path.with_name(name)) if name else item.path / ".lock"
            if lock.is_symlink():
                return f"its lock {lock.name} is a link"
            if name:
                return _cache(item, item.path.with_name(name), stack)
            if item.what in (What.UNFINISHED, What.CHECKPOINTS):
                from probekit.adaptation.runs.folder import locked_run

                stack.enter_context(locked_run(item.path))
            elif (pid := written_by(item.path)) is not None and is_running(pid):
                return "its process is at work"
            if _changed(item):
                return "it has changed meanwhile"
            for path in sorted(item.paths, key=lambda p: p.name == CARD):  # the card last: until then it is a run
                _remove(path)
    except CacheBusy:
        return "another process has begun to write it"
    except (CacheError, OSError) as error:
        return str(error)
    return ""


def _cache(item: Item, out: Path, stack: ExitStack) -> str:
    new = not journal_path(out).exists()
    stack.enter_context(locked(out, wait=None))
    if _changed(item) or (item.what is What.LEFTOVERS and partial_path(out).exists()):
        if new:
            journal_path(out).unlink()
        return "it has changed meanwhile"
    for path in item.paths:
        if path != journal_path(out):
            path.unlink()
    if not pieces(out) or pieces(out) == [journal_path(out)]:
        journal_path(out).unlink()  # last: until then the right is ours
    return ""


def _changed(item: Item) -> bool:
    return tuple(map(state, item.paths)) != item.states


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
