"""Delete files that can be recomputed, unless they have changed since they were found."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from probekit.activations.writing.journal import journal_path, locked, partial_path
from probekit.calls import checked
from probekit.errors import CacheBusy, CacheError, UsageError
from probekit.files import DATA_CACHE, is_running
from probekit.models.identity import CARD
from probekit.provenance.disk import cache_of, pieces, size_of, state, written_by
from probekit.provenance.inventory import Item, What, results
from probekit.provenance.options import CleanOptions

__all__ = ["Cleaned", "candidates", "clean", "delete", "delete_all"]


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The paths that were deleted, those that were not, each with the reason, and the number of bytes deleted."""

    deleted: tuple[Path, ...]
    left: Mapping[Path, str]
    size: int


def candidates(folder: str | Path = DATA_CACHE, options: CleanOptions | None = None) -> list[Item]:
    """The items that would be deleted; see :func:`clean`."""
    options = options or CleanOptions()
    before = time.time() - options.seconds
    found = results(folder, model=options.model, data_dir=options.data_dir, verify=True)
    return [item for item in found if item.what == options.what and item.changed <= before]


@checked
def clean(
    folder: str | Path = DATA_CACHE,
    *,
    what: str = "leftovers",
    older_than: str | None = None,
    model: Iterable[str | Path] = (),
    data_dir: str | Path | None = None,
    yes: bool = False,
) -> Cleaned:
    """Delete files that can be recomputed.

    Rows, cards, files that probekit did not write, and files that a process is writing are never deleted.

    Parameters
    ----------
    folder : path
        Searched with all folders below it.
    what : {"leftovers", "unfinished", "caches", "checkpoints"}
        The kind; see :class:`probekit.provenance.inventory.What`.
    older_than : str, optional
        Delete only files that have not changed for this time, such as "12h", "30d", "8w".
    model : iterable of path
        Folders of the models of the caches.
    data_dir : path, optional
        Folder of the data of the caches, or a folder with a folder for each task.
    yes : bool
        Required to delete; :func:`candidates` lists what would be deleted.

    Returns
    -------
    Cleaned
        The deleted files, and the files that were not deleted, each with the reason.

    Raises
    ------
    UsageError
        For a folder or kind that does not exist, and without ``yes``.
    """
    if not yes:
        raise UsageError("nothing is deleted without confirmation; give yes=True.")
    places = tuple(str(path) for path in model)
    options = CleanOptions(what, older_than, places, None if data_dir is None else str(data_dir))
    return delete_all(candidates(folder, options))


def delete_all(items: Iterable[Item]) -> Cleaned:
    """Delete the items that may be deleted; see :func:`delete`."""
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
    """Delete the paths of an item; returns "", or the reason why they were not deleted.

    The lock of a writer is held meanwhile, and the files must be unchanged since they were found.

    Raises
    ------
    UsageError
        For an item that must not be deleted.
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
                return "its process is still running"
            if _changed(item):
                return "it has changed since it was found"
            for path in sorted(item.paths, key=lambda p: p.name == CARD):  # the card last: until then it is a run
                _remove(path)
    except CacheBusy:
        return "another process has started to write it"
    except (CacheError, OSError) as error:
        return str(error)
    return ""


def _cache(item: Item, out: Path, stack: ExitStack) -> str:
    new = not journal_path(out).exists()
    stack.enter_context(locked(out, wait=None))
    if _changed(item) or (item.what is What.LEFTOVERS and partial_path(out).exists()):
        if new:
            journal_path(out).unlink()
        return "it has changed since it was found"
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
