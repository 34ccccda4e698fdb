"""Several processes on a cache, or on its shards: each loads the model, does its share, and ends with its parent."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.activations.writing.extract import run_blocks
from probekit.activations.writing.journal import Journal
from probekit.activations.writing.loading import Loading, load
from probekit.activations.writing.partial import open_partial
from probekit.activations.writing.prepare import check_environment
from probekit.activations.writing.request import Request
from probekit.errors import CacheError, ProbekitError, UsageError
from probekit.runtime import Inherited, cores, dask_client, devices, local_executor

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def run_workers(
    path: Path,
    loading: Loading,
    todo: Sequence[int],
    workers: int,
    fd: int,
    *,
    batch_tokens: int | None,
    allow_nonfinite: bool,
    on_batch: Callable[[int, int], None],
) -> None:
    """Run blocks of the cache ``path`` in separate processes.

    They inherit ``fd``, the journal's descriptor, and with it the lock: no other process can begin while one of them
    runs. Raises what a worker raised, or CacheError if a worker was killed.
    """
    workers = min(workers, len(todo))
    threads = _threads(workers)
    receiver, sender = Pipe(duplex=False)  # messages are short enough to be atomic, so processes need no lock

    def listen() -> None:
        while (message := receiver.recv()) is not None:
            on_batch(*message)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    begin_arguments = (Inherited(fd), sender, threads)
    job = partial(_run, path, batch_tokens=batch_tokens, allow_nonfinite=allow_nonfinite)
    loadings = [loading.on(device) for device in devices(loading.options.device, workers)]
    with receiver, sender:
        try:
            with local_executor(workers, threads=threads, begin=_begin, given=begin_arguments) as pool:
                for done in as_completed([pool.submit(job, loadings[k], todo[k::workers]) for k in range(workers)]):
                    done.result()
        except BrokenProcessPool as error:
            raise CacheError(
                f"a worker died while writing {path}, perhaps because memory ran out. Finished blocks are kept: run "
                "the same command again with fewer --workers."
            ) from error
        finally:
            sender.send(None)
            listener.join()


_GIVEN: tuple[int, Connection]
"""In a worker: the journal's descriptor, and the connection for progress."""


def _begin(journal: Inherited, parent: Connection, threads: int) -> None:
    global _GIVEN
    _GIVEN = journal.fd, parent
    _settle(threads)


def _threads(workers: int) -> int:
    """Threads of each of several processes on this machine."""
    return max(1, min(cores() // workers, int(os.environ.get("OMP_NUM_THREADS") or cores())))


def _settle(threads: int) -> None:
    """What a process does before it works."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends the workers
    os.dup2(2, 1)  # output of libraries (also from C) must not mix with that of the command
    torch.set_num_threads(threads)


def _run(path: Path, loading: Loading, todo: Sequence[int], *, batch_tokens: int | None, allow_nonfinite: bool) -> None:
    """Run a worker's share of the blocks."""
    fd, parent = _GIVEN
    written = open_partial(path)
    encoder = load(loading)
    check_environment(written, encoder)
    run_blocks(
        written, encoder, todo, Journal(fd), batch_tokens=batch_tokens, allow_nonfinite=allow_nonfinite,
        on_batch=lambda sequences, pieces: parent.send((sequences, pieces)),
    )  # fmt: skip


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
    threads = _threads(workers)
    requests = [replace(request, model=loading.on(device)) for device in devices(loading.options.device, workers)]
    with local_executor(workers, threads=threads, begin=_settle, given=(threads,)) as pool:
        try:
            yield [pool.submit(job, one) for one in requests]
        except BrokenProcessPool as error:
            raise CacheError(str(error)) from error


@contextmanager
def _on_dask(request: Request, loading: Loading, job: Callable[[Request], None]) -> Iterator[list[Future[None]]]:
    """One job on each worker of a Dask cluster, which sees the folders of this machine under the same names."""
    model = str(Path(loading.model).absolute()) if Path(loading.model).exists() else loading.model
    there = replace(request, path=request.path.absolute(), model=replace(loading, model=model))
    with dask_client(str(request.options.scheduler)) as client:
        places = list(client.nthreads())
        executors = [client.get_executor(workers=[place], pure=False, retries=0) for place in places]
        yield [executor.submit(job, there) for executor in executors]
