"""Device, dtype, cores, processes, threads and progress: what a job is told about the machine it runs on."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol, TextIO

from probekit.display import shown
from probekit.errors import UsageError
from probekit.files import lock, signal_when_closed

__all__ = [
    "Dtype",
    "Inherited",
    "Progress",
    "blas_thread",
    "cores",
    "devices",
    "end_with_parent",
    "local_executor",
    "no_progress",
    "processes",
    "progress_lines",
    "resolve_device",
    "torch_threads",
]

EVERY = 10.0  # seconds between lines of progress


class Dtype(StrEnum):
    """Numbers that the model computes in."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class Progress(Protocol):
    """Called as work goes on; the command line draws it, the library stays quiet."""

    def __call__(self, stage: str, done: int, total: int, /, **rates: float) -> None:
        """``done`` of ``total`` units of ``stage`` are finished; ``rates`` holds running totals such as tokens."""


def no_progress(stage: str, done: int, total: int, /, **rates: float) -> None:
    """Progress that nobody watches."""


def progress_lines(to: TextIO, clock: Callable[[], float] = monotonic) -> Progress:
    """A Progress that writes a line where ten seconds have gone by since the last one, and nothing for less work."""
    told = clock()
    begun: dict[str, tuple[float, int, int, int]] = {}  # of each stage: when, at what, and the last it said

    def show(stage: str, done: int, total: int, /, **rates: float) -> None:
        nonlocal told
        now = clock()
        began, first, *last = begun.get(stage, (now, done, done, total))
        if done < last[0] or total != last[1]:  # the same stage of another piece of work
            began, first = now, done
        begun[stage] = began, first, done, total
        if now - told < EVERY:
            return
        told, seconds = now, max(now - began, 1e-9)
        parts = [f"{stage}: {done:,} of {total:,} ({100 * done / max(total, 1):.0f} %)"]
        if now > began:
            parts += [f"{value / seconds:,.0f} {name}/s" for name, value in rates.items() if value]
        if done > first:
            parts.append(f"{(total - done) * seconds / (done - first):,.0f} s left")
        print(shown(", ".join(parts)), file=to, flush=True)

    return show


def cores() -> int:
    """How many cores this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes() -> tuple[int, int]:
    """This process's rank and the number of processes, as torchrun tells them; (0, 1) for a process alone."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Inherited:
    """An open file that worker processes are to have, too, with the locks on it: an argument of their ``begin``."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Callable[[Any], Inherited], tuple[Any]]:
        from multiprocessing.reduction import DupFd

        return _inherited, (DupFd(self.fd),)


def _inherited(handle: Any) -> Inherited:
    return Inherited(handle.detach())


def devices(device: str, workers: int) -> list[str]:
    """The device of each of several processes: of "cuda" each the next GPU, of any other all the same."""
    import torch

    count = torch.cuda.device_count() if device == "cuda" else 0
    return [f"cuda:{k % count}" if count else device for k in range(workers)]


@contextmanager
def local_executor(
    workers: int,
    *,
    threads: int | None = None,
    gpus: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    begin: Callable[..., None] | None = None,
    given: tuple[Any, ...] = (),
) -> Iterator[Executor]:
    """Worker processes on this machine, for the time of the block.

    They end with this process however it ends, SIGKILL too, so that none goes on writing. One that dies breaks the
    executor, whose futures raise ``concurrent.futures.process.BrokenProcessPool``. Scripts that use it need no
    ``if __name__ == "__main__"``.

    Parameters
    ----------
    workers
        How many.
    threads
        Of each worker, in BLAS, OpenMP and numba; an equal share of the cores where None. One worker alone is told
        nothing, and has what this process would have.
    gpus
        Names as in ``CUDA_VISIBLE_DEVICES``, dealt out: a worker sees one of them.
    environment
        Variables that differ from this process's.
    begin, given
        A function that each worker calls first, and its arguments.
    """
    from loky.process_executor import ProcessPoolExecutor

    warnings.filterwarnings("ignore", message="A worker was restarted", category=UserWarning)  # it has grown: well
    environment = dict(environment or {})
    if threads or workers > 1:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment |= dict.fromkeys(names, str(threads or max(1, cores() // workers)))
    with ExitStack() as stack:
        slots = stack.enter_context(tempfile.TemporaryDirectory(prefix="probekit-workers-"))
        leash = _Leash(f"{slots}/leash")
        os.mkfifo(leash.path)
        stack.callback(os.close, os.open(leash.path, os.O_RDWR | os.O_NONBLOCK))  # which this process alone has
        pool = ProcessPoolExecutor(
            workers, env=environment, initializer=_begin, initargs=(leash, slots, tuple(gpus), begin, given),
            timeout=None,
        )  # fmt: skip
        stack.callback(pool.shutdown, wait=True, kill_workers=True)
        yield pool


class _Leash:
    """What ends a worker when its parent does: pickled first of its arguments, it holds before the others are read.

    A pipe with a name, so that each worker opens an end of its own: of one that is handed down the system signals the
    last owner alone.
    """

    def __init__(self, path: str) -> None:
        from multiprocessing import current_process

        self.path, self.parent = path, int(current_process().pid or 0)

    def __reduce__(self) -> tuple[Callable[[str, int], None], tuple[str, int]]:
        return _follow, (self.path, self.parent)


def _follow(path: str, parent: int) -> None:
    """End this process at once when nobody holds the other end of a pipe, as where the parent is killed."""
    import select

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        os._exit(1)
    signal_when_closed(fd)
    if os.getppid() != parent:  # it ended before the pipe was opened
        os._exit(1)

    def wait() -> None:
        poll = select.poll()
        poll.register(fd, select.POLLHUP)
        poll.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def end_with_parent() -> None:
    """Let this process, which another has started and waits for, end within a second after that one, however it ends.

    On Linux the system sees to it, in a long call into C, too; elsewhere a thread looks whether it has another parent.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    def watch() -> None:
        while os.getppid() == parent:
            sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _begin(leash: None, slots: str, gpus: Sequence[str], begin: Callable[..., None] | None, given: Any) -> None:
    """A worker's first call: take a GPU, begin; ``leash`` holds already."""
    if gpus:  # CUDA has not begun in this process, and will see one GPU
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[_slot(Path(slots)) % len(gpus)]
    if begin is not None:
        begin(*given)


def _slot(folder: Path) -> int:
    """The first number that no living worker has; ours until this process ends."""
    for number in itertools.count():
        try:
            _HELD.enter_context(lock(folder / str(number), BlockingIOError()))
        except BlockingIOError:
            continue
        return number
    raise AssertionError


_HELD = ExitStack()


@contextmanager
def torch_threads(count: int) -> Iterator[int]:
    """Let torch use ``count`` threads within an operation; yields how many it used before. A decorator, too.

    Small operations on several threads cost more in waiting than they save, and sum in another order.
    """
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(count)
        yield before
    finally:
        torch.set_num_threads(before)


@contextmanager
def blas_thread() -> Iterator[None]:
    """Let BLAS use one thread: several stall each other beside threads of ours, and sum in another order.

    The limit is the whole process's: of several threads that want it the last to end takes it away.
    """
    global _limit, _limited
    with _limiting:
        _limited += 1
        if _limited == 1:
            _limit = _controller().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _limiting:
            _limited -= 1
            if not _limited:
                _limit.restore_original_limits()


_limiting = threading.Lock()
_limited = 0
_limit: Any = None


@lru_cache(maxsize=1)
def _controller() -> Any:
    """What knows the loaded libraries, looked up once: that takes longer than much of the work."""
    import numpy  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


def resolve_device(device: str = "auto") -> str:
    """The torch device string to use: "auto" takes CUDA, then MPS, then the CPU.

    Raises
    ------
    UsageError
        Where the device asked for is not there.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind = device.partition(":")[0]
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in there:
        raise UsageError(f"unknown device {device!r}; there are auto, cpu, cuda, cuda:N and mps.")
    if not there[kind]:
        raise UsageError(f"device {device!r} was asked for, but torch sees none here; use --device cpu.")
    return device
