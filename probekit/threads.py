"""Threads that compute for one call, and stop soon when it ends early: after an error, or Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import Event
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probekit.runtime import cores, torch_threads

T = TypeVar("T")
_ended: ContextVar[Event | None] = ContextVar("ended", default=None)


class _Pool(ThreadPoolExecutor):
    """A pool whose work has the context of the thread that gave it: its notes, and whether it is still wanted."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return super().submit(copy_context().run, fn, *args, **kwargs)


@contextmanager
def working_threads(count: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads (default: as many as cores), each of which computes alone, without threads of BLAS or torch.

    When the block ends, work that has not begun is cancelled, and that which runs ends at its next :func:`go_on`.

    Examples
    --------
    >>> with working_threads(2) as pool:
    ...     list(pool.map(len, ["a", "bc"]))
    [1, 2]
    """
    event = Event()
    with threadpool_limits(1), torch_threads(1), _Pool(count or cores()) as pool:
        token = _ended.set(event)
        try:
            yield pool
        finally:
            event.set()
            _ended.reset(token)
            pool.shutdown(wait=False, cancel_futures=True)


def go_on() -> None:
    """Raise CancelledError in a thread whose work nobody waits for any more; long work calls it about every second."""
    if (event := _ended.get()) is not None and event.is_set():
        raise CancelledError
