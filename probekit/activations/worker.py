"""A worker process: reads its job from standard input, runs its blocks, ends when its parent does."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TextIO

from probekit.activations.extract import run_blocks
from probekit.activations.job import Loading, _same_path, load
from probekit.activations.partial import Journal, open_partial
from probekit.errors import ProbekitError


def main() -> int:
    """Run one job; what there is to tell goes to standard output as lines of JSON, and nothing else does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends us
    tell, sys.stdout = _Teller(sys.stdout), sys.stderr
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(job["threads"])
    try:
        partial = open_partial(Path(job["out"]))
        encoder = load(Loading(**job["loading"]))
        _same_path(Path(job["out"]), partial, encoder)
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


if __name__ == "__main__":
    sys.exit(main())
