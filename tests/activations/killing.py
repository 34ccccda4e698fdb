"""Make a cache in child processes that are killed, go on, and compare with one that was left alone.

    python killing.py MODEL FOLDER every N     kill at the 1st system call that writes, at the N + 1st, …
    python killing.py MODEL FOLDER random N    kill N times at random moments

Prints one line of JSON. Run in a process of its own: it forks after loading the model, with one thread.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["SOURCE_DATE_EPOCH"] = "0"

import torch

torch.set_num_threads(1)

import h5py
from toys import toy_task

from probekit.activations import cache_activations, verify
from probekit.activations.writing import partial, plan
from probekit.errors import ProbekitError
from probekit.models import load_encoder

plan.LEAST_TOKENS = 500  # so that the toy has some blocks
os.fsync = os.fdatasync = lambda fd: None  # what was written outlives a kill
WRITERS = [(os, "pwrite"), (os, "write"), (os, "fsync"), (os, "fdatasync"), (os, "ftruncate"), (os, "posix_fallocate"),
           (os, "open"), (Path, "replace"), (Path, "unlink"), (h5py.File, "__init__"), (h5py.File, "close"),
           (partial, "digest_structure"), (h5py.AttributeManager, "modify")]  # fmt: skip


def counted(limit: int) -> None:
    """Die just before the ``limit``-th call of a writer."""
    calls = 0

    def wrap(owner: object, name: str, inner: Callable) -> None:
        def outer(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return inner(*args, **kwargs)

        setattr(owner, name, outer)

    for owner, name in WRITERS:
        wrap(owner, name, getattr(owner, name))


def in_child(work: Callable[[], object], kill_after: float | None = None) -> int:
    """Run ``work`` in a forked child; returns the signal that ended it, or 0."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert not (os.WIFEXITED(status) and os.WEXITSTATUS(status)), "the child failed, see above"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(model: str, folder: str, mode: str, count: str = "30") -> None:
    out, lonely = Path(folder) / "killed.h5", Path(folder) / "lonely.h5"
    encoder, task = load_encoder(model, device="cpu"), toy_task(120)

    def make(path: Path) -> None:
        cache_activations(encoder, task, pooling=["mean", "max"], tokens=True, out=path).close()

    def whole(path: Path) -> bool:
        return digest(path) == truth and verify(path).ok and os.listdir(folder).count(path.name + ".partial") == 0

    make(lonely)  # here, so that no child loads what is loaded at the first use
    lonely.unlink()
    began = time.monotonic()
    in_child(lambda: make(lonely))
    seconds, truth = time.monotonic() - began, digest(lonely)
    blocks = len(partial_blocks(lonely))
    report = {"blocks": blocks, "trials": 0, "kills": 0, "finished": 0, "wrong": 0, "taken for whole": 0}
    limit, rng = 0, random.Random(0)
    while True:
        out.unlink(missing_ok=True)
        report["trials"] += 1
        limit += 1 if mode == "random" or report["trials"] == 1 else int(count)
        if mode == "every":
            killed = in_child(lambda limit=limit: (counted(limit), make(out)))
        else:
            killed = in_child(lambda: make(out), kill_after=rng.uniform(0, 1.1 * seconds))
        report["kills"] += bool(killed)
        if out.exists() and not whole(out):
            report["taken for whole"] += 1
        for _ in range(3 if mode == "random" else 0):  # killed again while it goes on
            report["kills"] += bool(in_child(lambda: make(out), kill_after=rng.uniform(0, seconds)))
        in_child(lambda: make(out))
        report["finished"] += out.exists()
        report["wrong"] += not whole(out)
        leftovers = [x for x in os.listdir(folder) if x.startswith("killed.h5.")]
        assert not leftovers, (limit, leftovers)
        if (mode == "every" and not killed) or (mode == "random" and report["kills"] >= int(count)):
            break
    print(json.dumps(report))


def partial_blocks(path: Path) -> list:
    with h5py.File(path, "r") as f:
        return list(f["/pieces/blocks"][...])


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ProbekitError as error:
        sys.exit(repr(error))
