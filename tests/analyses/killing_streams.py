"""Kill passes over texts at random moments, go on, and compare with one that was left alone: MODEL FOLDER KILLS.

Prints one line of JSON. Run in a process of its own: it forks after loading the model, with one thread.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

torch.set_num_threads(1)

from builders import word_task

import probekit
from probekit.analyses.stream.state import read_state
from probekit.models import load_encoder

HOW = {
    "analysis": ("mass-mean", "cka"), "resamples": 0, "controls": 0, "chunk": 20, "save_every": 1, "sample": 100,
    "part": "1/1",
}  # fmt: skip


TASK = word_task(sizes={"train": 2000, "dev": 60})


def child(encoder: object, state: Path, kill_after: float | None) -> int:
    """The status of a child that reads the task into ``state``; it may be killed after so many seconds."""
    if not (pid := os.fork()):
        try:
            probekit.stream(encoder, TASK, state=state, **HOW)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def main(model: str, folder: Path, kills: int) -> None:
    encoder, rng = load_encoder(model, device="cpu"), random.Random(0)
    began = time.monotonic()
    statuses = [child(encoder, folder / "whole.npz", None)]
    duration, stages = time.monotonic() - began, set()
    while len(statuses) <= kills:
        statuses.append(child(encoder, state := folder / "killed.npz", rng.uniform(0, 0.6 * duration)))
        if state.exists():
            found = read_state(state)
            stages.add(found.chunks)
            if found.complete:
                state.unlink()
    statuses.append(child(encoder, state, None))
    a, b = (read_state(folder / name) for name in ("whole.npz", "killed.npz"))
    same = all((a.sums.arrays[name] == value).all() for name, value in b.sums.arrays.items())
    same &= all((a.sample.columns[name] == value).all() for name, value in b.sample.columns.items())
    print(
        json.dumps({
            "kills": statuses.count(signal.SIGKILL), "errors": sum(s not in (0, signal.SIGKILL) for s in statuses),
            "stages": len(stages), "equal": bool(same and a.counts == b.counts),
        })
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
