"""Tasks that a run of many steps reads again and again: its processes keep those they loaded last."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probekit.tasks.task import Task

MOST = 200_000
"""Examples that a process keeps, at most."""

_run: ContextVar[str] = ContextVar("run", default="")
_of: dict[str, dict[tuple[Any, ...], Task]] = {}


@contextmanager
def keeping_tasks(run: str) -> Iterator[None]:
    """Keep the tasks that are loaded inside, for later parts of the same run in this process.

    Parameters
    ----------
    run : str
        What the parts of a run have in common, and other runs have not: between two runs files may change. "" keeps
        nothing.
    """
    if run not in _of:
        _of.clear()
    token = _run.set(run)
    try:
        yield
    finally:
        _run.reset(token)


def kept(key: tuple[Any, ...], load: Callable[[], Task]) -> Task:
    """The task of a key, loaded unless it is kept."""
    run = _run.get()
    if not run:
        return _at_once(load)
    tasks = _of.setdefault(run, {})
    task = tasks.pop(key, None) or _at_once(load)
    tasks[key] = task  # last
    while len(tasks) > 1 and sum(len(split) for one in tasks.values() for split in one.splits.values()) > MOST:
        del tasks[next(iter(tasks))]
    return task


def _at_once(load: Callable[[], Task]) -> Task:
    """A task, loaded without collecting garbage: there is none, and to look for it among examples takes as long."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return load()
    finally:
        if collects:
            gc.enable()
