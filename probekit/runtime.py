"""Device, dtype, cores, processes, threads and progress of a job."""

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
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Any, Protocol, TextIO

from probekit.constraint import Into
from probekit.display import shown
from probekit.errors import ProbekitError, UsageError
from probekit.files import lock, signal_when_closed

EVERY = 10.0  # seconds between lines of progress


class Dtype(StrEnum):
    """Precision of the model's computation, also as fp32, fp16, bf16, or a torch dtype.

    Examples
    --------
    >>> Dtype("bf16")
    <Dtype.BFLOAT16: 'bfloat16'>
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FP32 = "float32"
    FP16 = "float16"
    BF16 = "bfloat16"

    @classmethod
    def _missing_(cls, value: object) -> Dtype | None:
        return cls.__members__.get(str(value).removeprefix("torch.").upper())


def dtype_name(value: Any, name: str = "dtype") -> str:
    """The name of a precision; raises UsageError, with the name of the option, if there is none."""
    try:
        return str(Dtype(value))
    except ValueError:
        raise UsageError(f"{name} is {value!r}; expected one of {', '.join(Dtype)}.") from None


DtypeName = Annotated[str, Into(dtype_name)]


class Progress(Protocol):
    """Called during the computation; :mod:`probekit.progress` displays it."""

    def __call__(self, stage: str, done: int, total: int, /, **rates: float) -> None:
        """``done`` of ``total`` units of ``stage`` are finished; ``rates`` holds running totals such as tokens."""


def no_progress(stage: str, done: int, total: int, /, **rates: float) -> None:
    """A Progress that does nothing."""


def part_of(progress: Progress, number: int, parts: int) -> Progress:
    """Progress of one of several parts of about equal size, counted over all of them; ``number`` begins with 0."""

    def show(stage: str, done: int, total: int, /, **rates: float) -> None:
        progress(stage, number * total + done, parts * total, **rates)

    return show


def remaining(seconds: float, done: int, todo: int) -> float | None:
    """The seconds that are left if ``done`` units took so many seconds; None if nothing is done yet, or all is."""
    return todo * seconds / done if done > 0 and todo > 0 else None


def time_left(seconds: float) -> str:
    """A remaining time in words: "40 s left", "4 min left", "2.5 h left"."""
    if seconds < 90:
        return f"{seconds:,.0f} s left"
    return f"{seconds / 60:,.0f} min left" if seconds < 5400 else f"{seconds / 3600:,.1f} h left"


class Clock:
    """When each stage began, and how long it will take."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock, self.begun = clock, dict[str, tuple[float, int, int]]()

    def __call__(self, stage: str, done: int) -> tuple[float, int, bool]:
        """The seconds since a stage began, its first count, and whether it begins now, or again on other data."""
        now = self.clock()
        began, first, last = self.begun.get(stage, (now, done, done))
        new = stage not in self.begun or done < last
        if new:
            began, first = now, done
        self.begun[stage] = began, first, done
        return max(now - began, 1e-9), first, new


def progress_lines(
    to: TextIO,
    clock: Callable[[], float] = monotonic,
    *,
    first: float | None = None,
    tip: Callable[[float | None], str] = lambda left: "",
) -> Progress:
    """A Progress that writes a line every ten seconds, and nothing for shorter work.

    Parameters
    ----------
    to : file
        Where it writes.
    clock : callable
        The time in seconds.
    first : float, optional
        Seconds until the first line, if they are fewer.
    tip : callable
        What a line says at its end, from the seconds that are left.
    """
    stages = Clock(clock)
    next_line = clock() + (EVERY if first is None else min(first, EVERY))

    def show(stage: str, done: int, total: int, /, **rates: float) -> None:
        nonlocal next_line
        seconds, before, _ = stages(stage, done)
        now = clock()
        if now < next_line:
            return
        next_line = now + EVERY
        left = remaining(seconds, done - before, total - done)
        parts = [f"{stage}: {done:,} of {total:,} ({100 * done / max(total, 1):.0f} %)"]
        if seconds > 1e-6:
            parts += [f"{value / seconds:,.0f} {name}/s" for name, value in rates.items() if value]
        parts += [] if left is None else [time_left(left)]
        print(shown(", ".join(filter(None, [*parts, tip(left)]))), file=to, flush=True)

    return show


def cores() -> int:
    """Number of cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """The bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processes() -> tuple[int, int]:
    """This process's rank and the number of processes, as set by torchrun; (0, 1) for a single process."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def own_device(device: str) -> str:
    """The device of this process: for "cuda", of several processes of torchrun on a machine, each its own GPU."""
    import torch

    rank = os.environ.get("LOCAL_RANK")
    return f"cuda:{int(rank) % torch.cuda.device_count()}" if device == "cuda" and rank else device


class Inherited:
    """An open file that worker processes inherit with its locks, as an argument of their ``begin``."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Callable[[Any], Inherited], tuple[Any]]:
        from multiprocessing.reduction import DupFd

        return _inherited, (DupFd(self.fd),)


def _inherited(handle: Any) -> Inherited:
    return Inherited(handle.detach())


def devices(device: str, workers: int) -> list[str]:
    """The device of each of several processes: for "cuda" the GPUs in turn, otherwise the same for all."""
    import torch

    count = torch.cuda.device_count() if device == "cuda" else 0
    return [f"cuda:{k % count}" if count else device for k in range(workers)]


@contextmanager
def dask_client(address: str, *, seconds: float = 20.0) -> Iterator[Any]:
    """A ``distributed.Client`` of a Dask cluster with workers, closed at the end of the block.

    Parameters
    ----------
    address
        Address of the scheduler, such as "tcp://host:8786".
    seconds
        Seconds to wait for an answer.

    Raises
    ------
    ProbekitError
        If the scheduler does not answer or has no workers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--backend dask needs the package distributed: pip install 'probekit-lm[dask]'.") from None
    try:
        client = Client(address, timeout=seconds)
    except (OSError, TimeoutError, ValueError) as error:
        raise ProbekitError(f"no Dask scheduler answers at {address} ({error}); check --scheduler.") from error
    try:
        if not client.nthreads():
            raise ProbekitError(f"the Dask scheduler at {address} has no workers; start some.")
        yield client
    finally:
        client.close()


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
    """Worker processes on this machine during the block.

    They end with this process even if it is killed with SIGKILL, so none continues to write. A worker that dies breaks
    the executor, whose futures raise ``concurrent.futures.process.BrokenProcessPool``. Scripts that use it need no
    ``if __name__ == "__main__"``.

    Parameters
    ----------
    workers
        Number of workers.
    threads
        Threads of each worker, in BLAS, OpenMP and numba; None for an equal share of the cores. A single worker has the
        same settings as this process.
    gpus
        Names as in ``CUDA_VISIBLE_DEVICES``, assigned in turn: each worker sees one.
    environment
        Environment variables that differ from this process's.
    begin, given
        A function that each worker calls first, and its arguments.
    """
    from loky.process_executor import ProcessPoolExecutor

    # a worker is restarted when it has grown too large, which is fine
    warnings.filterwarnings("ignore", message="A worker was restarted", category=UserWarning)
    environment = {"PROBEKIT_PROGRESS": "0", **(environment or {})}  # this process shows the progress of all
    if threads or workers > 1:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment |= dict.fromkeys(names, str(threads or max(1, cores() // workers)))
    with ExitStack() as stack:
        slots = stack.enter_context(tempfile.TemporaryDirectory(prefix="probekit-workers-"))
        leash = _Leash(f"{slots}/leash")
        os.mkfifo(leash.path)
        stack.callback(os.close, os.open(leash.path, os.O_RDWR | os.O_NONBLOCK))  # held by this process only
        pool = ProcessPoolExecutor(
            workers, env=environment, initializer=_begin, initargs=(leash, slots, workers, tuple(gpus), begin, given),
            timeout=None,
        )  # fmt: skip
        stack.callback(pool.shutdown, wait=True, kill_workers=True)
        yield pool


class _Leash:
    """Ends a worker when its parent ends; pickled first of its arguments, it works before the others are read.

    It is a named pipe, so that each worker opens its own end: for an inherited pipe the system signals only the last
    owner.
    """

    def __init__(self, path: str) -> None:
        from multiprocessing import current_process

        self.path, self.parent = path, int(current_process().pid or 0)

    def __reduce__(self) -> tuple[Callable[[str, int], None], tuple[str, int]]:
        return _follow, (self.path, self.parent)


def _follow(path: str, parent: int) -> None:
    """End this process at once when the other end of a pipe is closed, for instance because the parent was killed."""
    import select

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        os._exit(1)
    signal_when_closed(fd)
    if os.getppid() != parent:  # the parent ended before the pipe was opened
        os._exit(1)

    def wait() -> None:
        poll = select.poll()
        poll.register(fd, select.POLLHUP)
        poll.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def end_with_parent() -> None:
    """End this process within a second after its parent, however the parent ends.

    On Linux the system does this, even during a long call into C; elsewhere a thread watches the parent's id.
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


def _begin(
    leash: None, slots: str, workers: int, gpus: Sequence[str], begin: Callable[..., None] | None, given: Any
) -> None:
    """A worker's first call: choose a GPU and call ``begin``; ``leash`` already works."""
    _may_grow(workers)
    if gpus:  # CUDA is not initialised in this process yet, and will see one GPU
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[_slot(Path(slots)) % len(gpus)]
    if begin is not None:
        begin(*given)


def _may_grow(workers: int) -> None:
    """Let a worker grow by a quarter of its share of memory, at most 2 GiB, before it is restarted.

    With psutil, loky restarts one that has grown by 300 MB: after almost every step, which then imports torch again and
    reads its data again.
    """
    with suppress(ImportError):
        import psutil
        from loky import process_executor

        process_executor._MAX_MEMORY_LEAK_SIZE = min(psutil.virtual_memory().total // (4 * workers), 2 << 30)


def _slot(folder: Path) -> int:
    """The first number that no running worker holds; held until this process ends."""
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
    """Let torch use ``count`` threads within an operation; yields the previous number. Also a decorator.

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
    """Let BLAS use one thread: several would slow down other threads, and sum in another order.

    The limit holds for the whole process; the last of several threads that use it removes it.
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
    """The controller of loaded libraries, created once because it is slow."""
    import numpy  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


def resolve_device(device: str = "auto") -> str:
    """The torch device string to use: "auto" takes CUDA, then MPS, then the CPU.

    Raises
    ------
    UsageError
        If the device is not available.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind = device.partition(":")[0]
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in available:
        raise UsageError(f"unknown device {device!r}; expected auto, cpu, cuda, cuda:N or mps.")
    if not available[kind]:
        raise UsageError(f"the device is {device!r}, but torch finds none on this machine; use --device cpu.")
    return device
