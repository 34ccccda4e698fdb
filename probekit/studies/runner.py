"""Run the missing steps of a study in a pool of workers, each after the steps it needs."""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

from probekit.addresses import no_addresses
from probekit.errors import ProbekitError
from probekit.files import open_to_write
from probekit.functions import parameters
from probekit.notes import each_time
from probekit.recipe import Recipe
from probekit.runtime import progress_lines
from probekit.studies.pools import Pool
from probekit.studies.records import State, log_path, make_room, remove_record, state_of, tidy, write_record
from probekit.studies.steps import Step
from probekit.tasks.kept import keeping_tasks

LOGGERS = ("", "transformers", "datasets", "huggingface_hub")
"""The root logger, and library loggers that do not propagate to it."""

_at_work: set[int] = set()
_changing = threading.Lock()


@dataclass(frozen=True, slots=True)
class Ended:
    """The time that a step took, the reason of its failure, or "", and the warnings of probekit."""

    seconds: float
    error: str = ""
    warnings: tuple[str, ...] = ()


def perform(recipe: Recipe, log: str, more: Mapping[str, Any], run: str = "", *, allow_remote: bool = False) -> Ended:
    """Run a recipe with additional arguments. Several may run at once, in processes or threads.

    Parameters
    ----------
    recipe : Recipe
        The recipe to run.
    log : str
        The log file: progress every ten seconds, messages, warnings, and the reason of a failure.
    more : mapping
        Additional arguments, such as the ``device`` of the worker.
    run : str, default ""
        What all steps of a run have in common; see :func:`probekit.tasks.kept.keeping_tasks`.
    allow_remote : bool, default False
        Whether the step may open addresses.
    """
    began = monotonic()
    path = Path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        os.fdopen(open_to_write(path), "w", encoding="utf-8") as stream,
        _logged(stream) as warned,
        each_time(),
        keeping_tasks(run),
    ):
        with no_addresses(allowed=allow_remote):
            error = _run_and_explain(recipe, more, stream)
        if error:
            stream.write(f"{error}\n")
    return Ended(monotonic() - began, error.removeprefix("probekit: "), tuple(dict.fromkeys(warned)))


def _run_and_explain(recipe: Recipe, more: Mapping[str, Any], stream: Any) -> str:
    """Run a recipe; returns the error as shown on the command line, or ""."""
    try:
        known = parameters(recipe.function)
        result = recipe.run(**more, **({"progress": progress_lines(stream)} if "progress" in known else {}))
        if hasattr(result, "close"):
            result.close()
    except (ProbekitError, OSError) as error:
        return f"probekit: {' '.join(str(error).split())}"
    except Exception as error:
        traceback.print_exc(file=stream)
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


class _Warnings(logging.Handler):
    """The warnings of probekit; those of libraries are in the log only."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("probekit."):
            self.texts.append(" ".join(record.getMessage().split()))


@contextmanager
def _logged(stream: Any) -> Iterator[list[str]]:
    """Write this thread's log and warnings to a file, and yield probekit's warnings.

    Threads that a step starts appear in the logs of all steps.
    """
    thread = threading.get_ident()
    handler, warned = logging.StreamHandler(stream), _Warnings()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    for one in (handler, warned):
        one.addFilter(lambda record: record.thread == thread or record.thread not in _at_work)
    # a new list each time: another thread may be in a loop over the old one, and would skip a handler
    listening: list[tuple[str, logging.Handler]] = [*((name, handler) for name in LOGGERS), ("", warned)]
    with _changing:
        _at_work.add(thread)
        if len(_at_work) == 1:
            logging.captureWarnings(capture=True)
        for name, own in listening:
            logging.getLogger(name).handlers = [*logging.getLogger(name).handlers, own]
    try:
        yield warned.texts
    finally:
        with _changing:
            for name, own in listening:
                logging.getLogger(name).handlers = [h for h in logging.getLogger(name).handlers if h is not own]
            _at_work.discard(thread)
            if not _at_work:
                logging.captureWarnings(capture=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a step: "done", "reused", "failed", or "skipped" because a step that it needs failed.

    ``warnings`` of a reused step are those from when it was done.
    """

    step: Step
    state: str
    seconds: float = 0.0
    message: str = ""
    warnings: tuple[str, ...] = ()


def run_steps(
    steps: Sequence[Step],
    out: Path,
    pool: Pool,
    *,
    allow_remote: bool = False,
    begin: Callable[[Step], None] = lambda _: None,
    tell: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run the steps that are not done yet; if a step fails, only the steps that need it are skipped.

    Parameters
    ----------
    steps : sequence of Step
        Each after the steps it needs.
    out : Path
        The study's folder; the log of a step is ``OUT/logs/STEP.log``.
    pool : Pool
        The workers. A step whose process dies is tried once more, with no other step running.
    allow_remote : bool
        Whether steps may open addresses.
    begin, tell : callable
        Called with each step when it starts, and with its outcome when it ends.

    Returns
    -------
    list of Outcome
        In the order of the steps.
    """
    run = _Run(out, pool, allow_remote, begin, tell, {step.name: step for step in steps}, state_of(steps, out))
    order = TopologicalSorter({step.name: step.needs for step in steps})
    order.prepare()
    try:
        while order.is_active():
            new = sorted(order.get_ready(), key=run.is_training)
            slow = [name for name in new if run.is_slow(name)]
            run.ready = [*(name for name in new if name not in slow), *run.ready, *slow]  # depth first: rows early
            for name in run.begin_ready() or run.collect():
                order.done(name)
    finally:
        run.workers.close()
    return [run.outcomes[step.name] for step in steps]


@dataclass(slots=True)
class _Run:
    """The progress of a study: steps that are ready, running steps with their slots, and outcomes."""

    out: Path
    pool: Pool
    allow_remote: bool
    begin: Callable[[Step], None]
    tell: Callable[[Outcome], None]
    steps: dict[str, Step]
    states: dict[str, State]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    ready: list[str] = field(default_factory=list)
    running: dict[Future[Ended], tuple[str, int, Recipe]] = field(default_factory=dict)
    died: set[str] = field(default_factory=set)
    name: str = field(default_factory=lambda: uuid4().hex)
    executor: Executor | None = None
    workers: ExitStack = field(default_factory=ExitStack)

    def is_training(self, name: str) -> bool:
        return self.steps[name].function in ("train", "pretrain_encoder")

    def is_slow(self, name: str) -> bool:
        """Whether a step waits until no other can start: one worker shows probes before slow mutual information."""
        return self.pool.jobs == 1 and self.steps[name].function == "mi"

    def begin_ready(self) -> list[str]:
        """Start the steps that can start; return the names of steps that ended immediately."""
        ended = []
        while self.ready and len(self.running) < (1 if self.died else self.pool.jobs):
            step = self.steps[self.ready.pop(0)]
            if outcome := self._at_once(step):
                ended.append(self._end(outcome))
            else:
                self._submit(step)
        return ended

    def _at_once(self, step: Step) -> Outcome | None:
        """The outcome of a step that need not run."""
        if lacking := step.lost(self._broken(step)):
            return Outcome(step, "skipped", message=f"it needs {lacking}")
        if step.error:
            return Outcome(step, "failed", message=step.error)
        state = self.states[step.name]
        if state.word != "done":
            return None
        tidy(self.out, step)
        return Outcome(step, "reused", warnings=state.warnings)

    def _broken(self, step: Step) -> list[str]:
        return [name for name in step.needs if self.outcomes[name].state in ("failed", "skipped")]

    def _unused(self, step: Step) -> list[str]:
        broken = self._broken(step)
        return step.unused(broken) if broken else []

    def _submit(self, step: Step) -> None:
        without = [path for name in self._unused(step) for path in self.steps[name].leaves]
        recipe = step.recipe(self.out, without, absolute=self.pool.elsewhere)
        slot = min({*range(self.pool.jobs)} - {slot for _, slot, _ in self.running.values()})
        log = log_path(self.out, step)
        make_room(self.out, step, self.states[step.name].digest)
        self.begin(step)
        self.executor = self.executor or self.workers.enter_context(self.pool.make())
        done = partial(perform, run=self.name, allow_remote=self.allow_remote)
        future = self.executor.submit(done, recipe, str(log.absolute()), self._device(step, slot))
        self.running[future] = step.name, slot, recipe

    def _device(self, step: Step, slot: int) -> dict[str, Any]:
        """The GPU of a worker, if there are several and the function takes a device."""
        if self.pool.gpus < 2 or "device" not in parameters(step.function):
            return {}
        return {"device": f"cuda:{slot % self.pool.gpus}"}

    def collect(self) -> list[str]:
        """Wait for a step; return the names of those that ended."""
        return [name for future in wait(self.running, return_when=FIRST_COMPLETED).done for name in self._ended(future)]

    def _ended(self, future: Future[Ended]) -> list[str]:
        name, _, recipe = self.running.pop(future)
        step = self.steps[name]
        try:
            ended = future.result()
        except OSError as error:  # such as a full disk
            return [self._end(Outcome(step, "failed", message=str(error)))]
        except Exception as error:  # the process died or did not start; clusters raise various errors
            if isinstance(error, BrokenProcessPool):
                self.executor = None
                self.workers.close()
            if name not in self.died:
                self.died.add(name)
                self.ready.insert(0, name)
                return []
            self.died.discard(name)
            why = f"its process died twice, perhaps because of insufficient memory ({type(error).__name__}: {error})"
            return [self._end(Outcome(step, "failed", message=why))]
        self.died.discard(name)
        missing = [path for path in step.leaves if not (self.out / path).exists()]
        if message := ended.error or (f"it did not write {missing[0]}" if missing else ""):
            return [self._end(Outcome(step, "failed", ended.seconds, message, ended.warnings))]
        without = self._unused(step)
        write_record(self.out, step, self.states[name].digest, recipe, ended.seconds, without, ended.warnings)
        tidy(self.out, step)
        note = f"without {', '.join(without)}" if without else ""
        return [self._end(Outcome(step, "done", ended.seconds, note, ended.warnings))]

    def _end(self, outcome: Outcome) -> str:
        self.outcomes[outcome.step.name] = outcome
        if outcome.state in ("failed", "skipped"):
            remove_record(self.out, outcome.step)
        self.tell(outcome)
        return outcome.step.name
