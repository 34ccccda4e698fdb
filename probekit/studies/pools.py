"""Worker pools for the steps of a study: processes on this machine, or the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from probekit.runtime import dask_client, local_executor


@dataclass(frozen=True, slots=True)
class Pool:
    """A factory of executors; a broken one is replaced.

    Attributes
    ----------
    jobs : int, default 1
        Steps that run in parallel.
    gpus : int, default 0
        Number of GPUs for them.
    elsewhere : bool, default False
        Whether workers run in another working directory.
    """

    make: Callable[[], AbstractContextManager[Executor]]
    jobs: int = 1
    gpus: int = 0
    elsewhere: bool = False


def local_pool(jobs: int) -> Pool:
    """Worker processes on this machine, which share its cores, and its GPUs if there are several."""
    import torch

    quiet = dict.fromkeys(("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS"), "1")
    return Pool(partial(local_executor, jobs, environment=quiet), jobs, torch.cuda.device_count())


class _Here(Executor):
    """An executor that runs submitted calls immediately in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


def here_pool() -> Pool:
    """A pool that runs the steps one after another in this process, which avoids importing modules again."""
    return Pool(_Here)


def dask_pool(address: str, *, seconds: float = 20.0) -> Pool:
    """The workers of a Dask cluster, which see the folders of this machine under the same names.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as "tcp://host:8786".
    seconds : float
        Seconds to wait for an answer.

    Raises
    ------
    ProbekitError
        If the scheduler does not answer or has no workers.
    """
    with ExitStack() as stack:
        client = stack.enter_context(dask_client(address, seconds=seconds))
        jobs = len(client.nthreads())  # a step uses the cores of a worker, if it can
        closing = stack.pop_all()

    @contextmanager
    def workers() -> Iterator[Executor]:
        with closing:
            yield client.get_executor(pure=False, retries=0)

    return Pool(workers, jobs, elsewhere=True)
