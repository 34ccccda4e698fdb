"""Several processes on the shards of one cache, started here: on this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from probekit.activations.writing.loading import Loading
from probekit.activations.writing.request import Request
from probekit.errors import CacheError, ProbekitError, UsageError
from probekit.runtime import cores, dask_client, devices, local_executor

log = logging.getLogger(__name__)
LOOK = 1.0
"""Seconds between two looks at the shards of others."""


def run_shard_workers(request: Request, job: Callable[[Request], None], look: Callable[[], object]) -> None:
    """Run ``job`` in ``options.workers`` processes, or on each worker of a Dask cluster, until all have ended.

    One that fails leaves its work to the others.

    Parameters
    ----------
    job : callable
        Makes shards until all are there.
    look : callable
        Called every second.

    Raises
    ------
    ProbekitError
        What the first worker that failed raised, if no worker ended well.
    """
    if not isinstance(request.model, Loading):
        raise UsageError("each of several workers loads the model; give its name or folder, not a loaded encoder.")
    starting = _on_dask if request.options.backend == "dask" else _here
    failed: list[BaseException] = []
    with starting(request, request.model, job) as running:
        left = set(running)
        while left:
            ended, left = wait(left, timeout=LOOK)
            failed += [error for future in ended if (error := future.exception()) is not None]
            look()
    if len(failed) == len(running):
        if isinstance(failed[0], ProbekitError):
            raise failed[0]
        raise CacheError(
            f"workers died while writing {request.path}, perhaps because memory ran out ({failed[0]}). What is "
            "finished is kept: run the same command again with fewer --workers."
        ) from failed[0]
    for error in failed:
        log.warning("%s: a worker failed, and the others did its work: %s", request.path, error)


@contextmanager
def _here(request: Request, loading: Loading, job: Callable[[Request], None]) -> Iterator[list[Future[None]]]:
    """Processes on this machine, spread over its GPUs."""
    workers = request.options.workers
    threads = max(1, min(cores() // workers, int(os.environ.get("OMP_NUM_THREADS") or cores())))
    requests = [replace(request, model=loading.on(device)) for device in devices(loading.options.device, workers)]
    with local_executor(workers, threads=threads, begin=_begin, given=(threads,)) as pool:
        try:
            yield [pool.submit(job, one) for one in requests]
        except BrokenProcessPool as error:
            raise CacheError(str(error)) from error


def _begin(threads: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends the workers
    os.dup2(2, 1)  # output of libraries (also from C) must not mix with that of the command
    torch.set_num_threads(threads)


@contextmanager
def _on_dask(request: Request, loading: Loading, job: Callable[[Request], None]) -> Iterator[list[Future[None]]]:
    """One job on each worker of a Dask cluster, which sees the folders of this machine under the same names."""
    model = str(Path(loading.model).absolute()) if Path(loading.model).exists() else loading.model
    there = replace(request, path=request.path.absolute(), model=replace(loading, model=model))
    with dask_client(str(request.options.scheduler)) as client:
        places = list(client.nthreads())
        executors = [client.get_executor(workers=[place], pure=False, retries=0) for place in places]
        yield [executor.submit(job, there) for executor in executors]
