"""The steps of a study, done: what is missing, in the order of their needs, in worker processes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from probekit.errors import ProbekitError, UsageError
from probekit.files import digest_of_content, lock, remove, slug, write
from probekit.studies.steps import OUT, Step

__all__ = ["Outcome", "Pool", "dask_pool", "local_pool", "open_study", "run_steps", "state_of"]

Main = Callable[[Sequence[str]], int]
WHOLE = 1 << 24
"""Bytes of a file up to which its content is compared with what a step left; of larger ones the size."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended: "done", "reused", "failed", or "skipped" because another that it needs failed."""

    step: Step
    state: str
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """Where steps run: an executor, made again where it broke, how many steps at a time, and their GPUs."""

    make: Callable[[], Executor]
    jobs: int = 1
    gpus: int = 0
    close: Callable[[Executor], None] = lambda executor: executor.shutdown(wait=False, cancel_futures=True)


def state_of(steps: Sequence[Step], out: Path) -> dict[str, tuple[str, str, float | None]]:
    """By step "done", "again" (done once, of something else or not whole) or "new"; its digest; its seconds then."""
    digests: dict[str, str] = {}
    for step in steps:
        digests[step.name] = step.digest(digests)
    records = {step.name: _record(out, step) for step in steps}
    same = {name for name, record in records.items() if record.get("digest") == digests[name]}
    whole = {step.name for step in steps if step.name in same and _is_whole(out, step, records[step.name])}
    gone = {step.name for step in steps if step.between and not any((out / leaf).exists() for leaf in step.leaves)}
    spared = same & gone  # what is gone may stay so, until a step that is not done needs it
    while True:
        done: set[str] = set()
        for step in steps:
            if (step.name in whole or step.name in spared) and done.issuperset(step.needs):
                done.add(step.name)
        wanted = {need for step in steps if step.name not in done for need in step.needs}
        if not spared & wanted:
            break
        spared -= wanted
    words = {name: "done" if name in done else "again" if record else "new" for name, record in records.items()}
    return {name: (words[name], digests[name], records[name].get("seconds")) for name in digests}


def _is_whole(out: Path, step: Step, record: Mapping[str, Any]) -> bool:
    """Whether all is there that a step left, and as it left it."""
    left = record.get("left")
    return (
        isinstance(left, dict)
        and all((out / path).exists() for path in step.leaves)
        and all(_mark(out / path) == mark for path, mark in left.items())
    )


def run_steps(
    steps: Sequence[Step],
    out: Path,
    main: Main,
    pool: Pool,
    *,
    begin: Callable[[Step], None] = lambda _: None,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Do what is not done yet; a step that fails stops those alone that need it.

    steps : each after those that it needs; out : the study's folder
    main : runs the words of a command and returns its exit status; what it prints goes to OUT/logs/STEP.log
    begin : called with each step that is to be done now; tell : with each outcome, when it is there
    A step whose process dies is tried once more, alone.
    """
    state = state_of(steps, out)
    by_name, outcomes = {step.name: step for step in steps}, dict[str, Outcome]()
    order: TopologicalSorter[str] = TopologicalSorter({step.name: step.needs for step in steps})
    order.prepare()
    ready: list[str] = []
    running: dict[Future[tuple[int, float, str]], tuple[str, int]] = {}
    died: list[str] = []
    executor: Executor | None = None

    def end(outcome: Outcome) -> None:
        outcomes[outcome.step.name] = outcome
        if outcome.state in ("failed", "skipped"):
            _forget(out, outcome.step)
        order.done(outcome.step.name)
        tell(outcome)

    try:
        while order.is_active():
            ready += order.get_ready()
            while ready and len(running) < (1 if died else pool.jobs):
                step = by_name[name := ready.pop(0)]
                broken = [n for n in step.needs if outcomes[n].state in ("failed", "skipped")]
                if lacking := step.lost(broken):
                    end(Outcome(step, "skipped", message=f"it needs {lacking}"))
                elif step.error:
                    end(Outcome(step, "failed", message=step.error))
                elif state[name][0] == "done":
                    end(Outcome(step, "reused"))
                else:
                    executor = executor or pool.make()
                    slot = min({*range(pool.jobs)} - {slot for _, slot in running.values()})
                    lost = [path for n in broken for path in by_name[n].leaves]
                    _make_room(out, step, state[name][1])
                    begin(step)
                    running[executor.submit(_perform, main, *_orders(step, out, lost, slot, pool.gpus))] = name, slot
            if not running:
                continue
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name, _ = running.pop(future)
                step = by_name[name]
                try:
                    status, seconds, message = future.result()
                except OSError as error:  # a full disk, say
                    end(Outcome(step, "failed", message=str(error)))
                    continue
                except Exception as error:  # the process died, or never began; on a cluster of many kinds
                    if isinstance(error, BrokenProcessPool):
                        executor = None
                    if name in died:
                        end(
                            Outcome(
                                step, "failed", message=f"its process died twice, perhaps for lack of memory ({error})"
                            )
                        )
                    else:
                        died.append(name)
                        ready.append(name)
                    continue
                if status == 0 and (missing := [path for path in step.leaves if not (out / path).exists()]):
                    status, message = 1, f"it left no {missing[0]}"
                lost = [n for n in step.needs if outcomes[n].state in ("failed", "skipped")]
                if status == 0:
                    _write(out, step, f"without {lost}" if lost else state[name][1], seconds)
                    message = f"without {', '.join(lost)}" if lost else ""
                end(Outcome(step, "failed" if status else "done", seconds, message))
                died = [other for other in died if other != name]
    finally:
        if executor is not None:
            pool.close(executor)
    return [outcomes[step.name] for step in steps]


def _orders(step: Step, out: Path, lost: Sequence[str], slot: int, gpus: int) -> tuple[list[str], str, str]:
    """The words, with the study's folder in its place and without what is lost, the folder to run in, and the log."""
    gone = {f"{OUT}/{path}" for path in lost} | {f"{OUT}/{Path(path).parent}" for path in lost if path[:5] == "runs/"}
    words = [word.replace(OUT, str(out)) for word in step.words if word not in gone]
    if gpus > 1 and words[0] in ("cache-activations", "train", "evaluate"):
        words += ["--device", f"cuda:{slot % gpus}"]
    return words, str(Path.cwd()), str(out / "logs" / f"{slug(step.name)}.log")


def _perform(main: Main, words: list[str], folder: str, log: str) -> tuple[int, float, str]:
    """Run a command in this process, one at a time: exit status, seconds, and the last line that it said."""
    with ALONE:
        return _alone(main, words, folder, log)


ALONE = threading.Lock()
"""Folder, arguments and standard output are the whole process's; Dask runs steps in threads."""


def _alone(main: Main, words: list[str], folder: str, log: str) -> tuple[int, float, str]:
    began = time.monotonic()
    os.chdir(folder)
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    before, sys.argv = sys.argv, ["probekit", *words]
    try:
        with (
            Path(log).open("w", encoding="utf-8") as stream,
            contextlib.redirect_stdout(stream),
            contextlib.redirect_stderr(stream),
        ):
            try:
                status = main(words)
            except Exception as error:
                status = 1
                import traceback

                traceback.print_exc()
                stream.write(f"\n{type(error).__name__}: {error}\n")
    finally:
        sys.argv = before
    said = Path(log).read_text(encoding="utf-8").strip().splitlines()
    return status, time.monotonic() - began, said[-1].removeprefix("probekit: ") if said else ""


# what is done -----------------------------------------------------------------------------------------------------


def _record(out: Path, step: Step) -> dict[str, Any]:
    try:
        found = json.loads((out / "steps" / f"{slug(step.name)}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _begun(out: Path, step: Step) -> Path:
    """Holds the digest of what a step that is not done was begun as, or left before."""
    return out / "steps" / f"{slug(step.name)}.begun"


def _make_room(out: Path, step: Step, digest: str) -> None:
    """Remove what a step left of something else; what it began of the same it goes on with."""
    begun = _begun(out, step)
    before = begun.read_text(encoding="utf-8").strip() if begun.exists() else digest
    if before != digest or _record(out, step):
        for leaf in step.leaves:
            path = out / (Path(*Path(leaf).parts[:2]) if leaf.startswith("runs/") else leaf)
            remove(path)
    _forget(out, step)
    begun.parent.mkdir(parents=True, exist_ok=True)
    begun.write_text(digest, encoding="utf-8")


def _forget(out: Path, step: Step) -> None:
    """Take away the record of a step that is no longer done."""
    if digest := _record(out, step).get("digest"):
        _begun(out, step).write_text(str(digest), encoding="utf-8")
    (out / "steps" / f"{slug(step.name)}.json").unlink(missing_ok=True)


def _write(out: Path, step: Step, digest: str, seconds: float) -> None:
    path = out / "steps" / f"{slug(step.name)}.json"
    told = {
        "step": step.name, "digest": digest, "seconds": round(seconds, 1),
        "command": ["probekit", *(word.replace(OUT, str(out)) for word in step.words)],
        "left": {leaf: _mark(out / leaf) for leaf in step.leaves},
    }  # fmt: skip
    write(path, json.dumps(told, indent=1) + "\n")
    _begun(out, step).unlink(missing_ok=True)


def _mark(path: Path) -> str | None:
    """By what a file is known again: its size, and the digest of a small one."""
    try:
        size = path.stat().st_size
        return f"{size}" if size > WHOLE else f"{size} {digest_of_content(path)}"
    except OSError:
        return None


@contextlib.contextmanager
def open_study(out: Path) -> Iterator[None]:
    """Hold the folder of a study; raises UsageError where another process runs it."""
    out.mkdir(parents=True, exist_ok=True)
    busy = UsageError(f"another process runs the study in {out}; wait for it, or give another --out.")
    with lock(out / ".lock", busy):
        yield


# processes ----------------------------------------------------------------------------------------------------------


def local_pool(jobs: int) -> Pool:
    """Worker processes on this machine, which share its cores, and its GPUs if there are several."""
    if jobs < 1:
        raise UsageError(f"--jobs is {jobs}; it must be 1 or more.")
    import torch
    from loky.process_executor import ProcessPoolExecutor

    # a worker that has grown is replaced between two steps, which is well
    warnings.filterwarnings("ignore", message="A worker was restarted", category=UserWarning)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = {} if jobs == 1 else dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(max(1, cores // jobs)))

    def make() -> Executor:
        return ProcessPoolExecutor(jobs, env=threads, initializer=_follow, initargs=(os.getpid(),), timeout=None)

    def close(executor: Any) -> None:
        executor.shutdown(wait=True, kill_workers=True)

    return Pool(make, jobs, torch.cuda.device_count(), close)


def _follow(parent: int) -> None:
    """End with the process that runs the study, so that no worker goes on writing after it was killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def dask_pool(address: str, *, seconds: float = 20.0) -> Pool:
    """The workers of a Dask cluster, which see the folders of this machine under the same names.

    address : of its scheduler, such as "tcp://host:8786", which has so many seconds to answer
    Raises ProbekitError where none answers, and where it has no workers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--backend dask wants the package distributed: pip install 'probekit[dask]'.") from None
    try:
        client = Client(address, timeout=seconds)
    except (OSError, TimeoutError, ValueError) as error:
        raise ProbekitError(f"no Dask scheduler answers at {address} ({error}).") from error
    jobs = len(client.nthreads())
    if not jobs:
        raise ProbekitError(f"the Dask scheduler at {address} has no workers.")
    return Pool(lambda: client.get_executor(pure=False, retries=0), jobs, 0, lambda executor: client.close())
