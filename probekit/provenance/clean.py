"""Deleting of a result what can be made again, unless anything has happened to it since it was looked at."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

from probekit.activations.writing.journal import journal_path, locked, partial_path
from probekit.errors import CacheBusy, CacheError, UsageError
from probekit.files import is_running
from probekit.models.identity import CARD
from probekit.provenance.disk import cache_of, pieces, state, written_by
from probekit.provenance.inventory import Item, What

__all__ = ["delete"]


def delete(item: Item) -> str:
    """Delete what ``item.paths`` names; returns "" where that was done, and else why not.

    The right to write is taken as a writer takes it, and what was found must be as it was then.
    Raises UsageError for an item that may not be deleted.
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
