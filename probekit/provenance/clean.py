"""Delete files that can be recomputed, unless they have changed since they were found."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from probekit.activations.writing.journal import journal_path, locked, partial_path
from probekit.calls import keywords
from probekit.constraint import File
from probekit.errors import CacheBusy, CacheError, UsageError
from probekit.files import DATA_CACHE, is_running
from probekit.models.identity import CARD
from probekit.provenance.disk import cache_of, pieces, size_of, state, written_by
from probekit.provenance.inventory import Item, What, results
from probekit.provenance.options import CleanOptions


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


@keywords(options=CleanOptions)
def clean(folder: File = DATA_CACHE, /, *, options: CleanOptions, yes: bool = False) -> Cleaned:
    """Delete files that can be recomputed, after asking.

    A cache can be made again if its data and its model are on this machine, with the digests that the cache records.
    Data: generated tasks; a task file (.toml); the folder ``data_dir``; the hub's local cache. Models: minilm,
    ``model``, the checkpoints of runs in the folder, the hub's local cache. The places that the cache's own command or
    its study names are searched, too. Rows, cards, files of others, and files that a process is writing are never
    deleted. On the command line, the exit status is 1 if something could not be deleted.

    Parameters
    ----------
    folder : path
        Searched with all folders below it; data_cache/ by default.
    options : CleanOptions
        ``what``, ``older_than``, ``model``, ``data_dir``; each may be given as a keyword.
    yes : bool
        Do not ask. In Python it is required; :func:`candidates` lists what would be deleted.

    Returns
    -------
    Cleaned
        The deleted files, and the files that were not deleted, each with the reason.

    Raises
    ------
    UsageError
        For a folder or kind that does not exist, and without ``yes``.

    Examples
    --------
    >>> probekit.clean("data_cache", what="caches", older_than="30d", yes=True).size  # doctest: +SKIP

    On the command line::

        probekit clean
        probekit clean --what caches --older-than 30d --dry-run
        probekit clean --what caches --model models/bert-of-mine --data-dir data/
        probekit clean runs/ --what checkpoints
    """
    if not yes:
        raise UsageError("nothing is deleted without confirmation; give yes=True.")
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
