"""Where the steps of a study run: processes on this machine, or the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from probekit.errors import ProbekitError, UsageError
from probekit.runtime import local_executor

__all__ = ["Pool", "dask_pool", "here_pool", "local_pool"]


@dataclass(frozen=True, slots=True)
class Pool:
    """An executor, made again where it broke.

    Attributes
    ----------
    jobs : int, default 1
        Steps at a time.
    gpus : int, default 0
        How many there are for them.
    elsewhere : bool, default False
        Whether workers have another folder.
    """

    make: Callable[[], AbstractContextManager[Executor]]
    jobs: int = 1
    gpus: int = 0
    elsewhere: bool = False


def local_pool(jobs: int) -> Pool:
    """Worker processes on this machine, which share its cores, and its GPUs if there are several."""
    if jobs < 1:
        raise UsageError(f"--jobs is {jobs}; it must be 1 or more.")
    import torch

    quiet = dict.fromkeys(("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS"), "1")
    return Pool(partial(local_executor, jobs, environment=quiet), jobs, torch.cuda.device_count())


class _Here(Executor):
    """Does what is submitted at once, in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


def here_pool() -> Pool:
    """This process, one step after another: nothing is imported twice."""
    return Pool(_Here)


def dask_pool(address: str, *, seconds: float = 20.0) -> Pool:
    """The workers of a Dask cluster, which see the folders of this machine under the same names.

    Parameters
    ----------
    address : str
        Of its scheduler, such as "tcp://host:8786", which has so many seconds to answer.

    Raises
    ------
    ProbekitError
        Where none answers, and where it has no workers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--backend dask wants the package distributed: pip install 'probekit[dask]'.") from None
    try:
        client = Client(address, timeout=seconds)
    except (OSError, TimeoutError, ValueError) as error:
        raise ProbekitError(f"no Dask scheduler answers at {address} ({error}).") from error
    jobs = len(client.nthreads())  # a step uses the cores of a worker, if it can
    if not jobs:
        raise ProbekitError(f"the Dask scheduler at {address} has no workers.")

    @contextmanager
    def workers() -> Iterator[Executor]:
        try:
            yield client.get_executor(pure=False, retries=0)
        finally:
            client.close()

    return Pool(workers, jobs, elsewhere=True)
