"""Several processes on one cache: each loads the model, runs its share of the blocks, and ends when its parent does.

This file is both ends: :func:`run_workers` starts the processes, and :func:`main` is what each of them runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from probekit import errors
from probekit.activations.writing.extract import run_blocks
from probekit.activations.writing.journal import Journal
from probekit.activations.writing.partial import open_partial
from probekit.activations.writing.prepare import check_environment
from probekit.errors import CacheError, ProbekitError
from probekit.models.encoder import Encoder
from probekit.runtime import cores

__all__ = ["Loading", "load", "run_workers"]


@dataclass(frozen=True, slots=True)
class Loading:
    """How a model is loaded: everything that a worker needs to load the same one."""

    model: str
    revision: str | None = None
    dtype: str = "float32"
    device: str = "cpu"
    random_weights: int | None = None
    max_length: int | None = None
    compile: bool = False
    stateful: int = 0


def load(loading: Loading | None) -> Encoder:
    """The encoder that ``loading`` describes."""
    assert loading is not None
    from probekit.models import load_encoder

    how = {key: value for key, value in asdict(loading).items() if value is not None}
    return load_encoder(how.pop("model"), **how)


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
    """Run blocks of the cache that will be ``path`` in processes of their own.

    They inherit ``fd``, the journal's descriptor, and with it the lock: nobody else can begin while one of them lives.
    Raises what a worker raised, or CacheError where one was ended.
    """
    workers = min(workers, len(todo))
    threads = max(1, min(cores() // workers, int(os.environ.get("OMP_NUM_THREADS") or cores())))
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    failures: list[dict[str, str]] = []
    processes: list[subprocess.Popen[str]] = []
    lock = threading.Lock()

    def listen(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            with lock:
                if "error" in message:
                    failures.append(message)
                    for other in processes:
                        other.kill()
                else:
                    on_batch(message["sequences"], message["pieces"])

    with ExitStack() as stack:
        listeners = []
        for k in range(workers):
            job = {
                "out": str(path), "loading": asdict(loading), "todo": todo[k::workers], "fd": fd, "threads": threads,
                "batch_tokens": batch_tokens, "allow_nonfinite": allow_nonfinite,
            }  # fmt: skip
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", f"import sys, {__name__} as workers; sys.exit(workers.main())"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                    pass_fds=(fd,),
                )
            )
            stack.callback(process.kill)
            assert process.stdin is not None
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            processes.append(process)
            listeners.append(thread := threading.Thread(target=listen, args=(process,), daemon=True))
            thread.start()
        for thread in listeners:
            thread.join()
        codes = [process.wait() for process in processes]
    if failures:
        kind = getattr(errors, failures[0]["error"], CacheError)
        raise kind(failures[0]["message"])
    if any(codes):
        code = next(c for c in codes if c)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        raise CacheError(
            f"a worker {how} while writing {path}; out of memory, perhaps. "
            "What is finished is kept: run the same command again, with fewer --workers."
        )


def main() -> int:
    """Run one job; what there is to tell goes to standard output as lines of JSON, and nothing else does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends us
    tell = _Teller(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # whatever else is printed, by libraries in C too, goes to standard error
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(job["threads"])
    try:
        partial = open_partial(Path(job["out"]))
        encoder = load(Loading(**job["loading"]))
        check_environment(partial, encoder)
        run_blocks(
            partial, encoder, job["todo"], Journal(job["fd"]), batch_tokens=job["batch_tokens"],
            allow_nonfinite=job["allow_nonfinite"],
            on_batch=lambda sequences, pieces: tell(sequences=sequences, pieces=pieces),
        )  # fmt: skip
    except ProbekitError as error:
        tell(error=type(error).__name__, message=str(error))
        return 2
    return 0


class _Teller:
    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __call__(self, **message: object) -> None:
        self.stream.write(json.dumps(message) + "\n")
        self.stream.flush()


def _end_with_parent() -> None:
    """Our end of the pipe closes when the parent dies, however it dies."""
    sys.stdin.read()
    os._exit(1)
