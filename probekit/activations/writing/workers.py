"""Several processes on one cache: each loads the model, runs its share of the blocks, and ends when its parent does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.activations.writing.extract import run_blocks
from probekit.activations.writing.journal import Journal
from probekit.activations.writing.loading import Loading, load
from probekit.activations.writing.partial import open_partial
from probekit.activations.writing.prepare import check_environment
from probekit.errors import CacheError
from probekit.runtime import Inherited, cores, devices, local_executor

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
    threads = max(1, min(cores() // workers, int(os.environ.get("OMP_NUM_THREADS") or cores())))
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
    import torch

    _GIVEN = journal.fd, parent
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
