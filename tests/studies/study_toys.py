"""Public functions that write files and do nothing else, and executors to run them: what a study is tested with."""

import logging
import os
import signal
import warnings
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from probekit.constraint import WRITTEN
from probekit.errors import UsageError
from probekit.functions import FUNCTIONS
from probekit.studies.pools import Pool
from probekit.studies.steps import Inside, Step

calls: list[tuple[str, dict]] = []
"""What was called in this process: names and arguments."""


def toy_write(
    *read: str, out: Annotated[str, WRITTEN], text: str = "x", fail: str = "", device: str = "auto", progress=None
) -> None:
    """Write a text, or fail in one of the ways in which functions do."""
    calls.append(("toy_write", {"read": list(read), "out": out, "text": text, "device": device}))
    match fail:
        case "usage":
            raise UsageError("the loss is\nno number")
        case "memory":
            raise MemoryError("no room")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "nothing":
            return
        case "slow":
            progress("training", 3, 9)
        case "talk":
            logging.getLogger("probekit.toy").warning("heard in %s", Path(out).name)
            warnings.warn(f"warned in {Path(out).name}", stacklevel=1)
    Path(out).write_text(f"{os.getpid()}" if text == "pid" else text)


def toy_train(*, out: Annotated[str, WRITTEN], text: str, progress=None) -> None:
    """Go on with what is there, if it was made with the same text."""
    folder = Path(out)
    there = (folder / "probekit.json").exists()
    calls.append(("toy_train", {"there": there, "text": text}))
    if there and (folder / "probekit.json").read_text() != text:
        raise UsageError("another run is there")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "probekit.json").write_text(text)
    if text == "fails":
        raise UsageError("it fails")
    (folder / "rows.parquet").write_text("x")


TOYS = dict.fromkeys(("toy_write", "toy_train"), "study_toys")


def register() -> None:
    """Put the toys among the public functions of this process."""
    FUNCTIONS.update(TOYS)


def with_toys(fn, *args):
    register()
    return fn(*args)


class Here(Executor):
    """Runs what it is given at once, in this process."""

    def submit(self, fn, /, *args):
        future = Future()
        try:
            future.set_result(fn(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **how):
        pass


class Registering(Executor):
    """Another executor, whose processes know the toys."""

    def __init__(self, inner):
        self.inner = inner

    def submit(self, fn, /, *args):
        return self.inner.submit(with_toys, fn, *args)


@contextmanager
def registering(pool):
    """The executor of a pool, with the toys."""
    with pool.make() as inner:
        yield Registering(inner)


HERE = Pool(Here)


def toy(name: str, *needs: str, leaves: tuple[str, ...] | None = None, text: str = "x", fail: str = "", **more) -> Step:
    """A step that writes a file of its name, of those that it needs."""
    told = {"read": [Inside(need) for need in needs], "out": Inside(name), "text": text, "fail": fail}
    return Step(name, "toy_write", told, needs, leaves or (name,), **more)
