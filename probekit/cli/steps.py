"""The steps of a study or a suite, on the terminal: the plan, the running steps, the end, and what warned."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from probekit.cli.show import console, say, warn
from probekit.display import shown

if TYPE_CHECKING:
    from probekit.studies.planned import PlannedStudy, StudyRun
    from probekit.studies.pools import Pool
    from probekit.studies.runner import Outcome
    from probekit.studies.steps import Step


def run_planned(planned: PlannedStudy, pool: Pool, *, findings: bool = False) -> StudyRun:
    """Run the steps, with a line for each, and with what they find; then say how they ended."""
    from probekit.studies.planned import run_study

    with _terminable(), StepPrinter(planned, findings=findings) as printer:
        run = run_study(planned, pool, begin=printer.begin, tell=printer.end)
    show_end(run)
    return run


def show_plan(planned: PlannedStudy, jobs: int, *, commands: bool) -> int:
    """Print the steps with a forecast of their time, and what cannot be done; the exit status."""
    say(f"{planned.study.title}\n")
    forecast = planned.forecast()
    fails: dict[str, str] = {}
    for step in planned.steps:
        lost = step.lost(fails)
        if step.error or lost:
            fails[step.name] = "" if lost else step.error
            continue
        expected = forecast[step.name]
        say(f"{expected.word:<6} {step.name}{'' if expected.word == 'done' else f', {_time(expected.seconds)}'}")
        if commands:
            say(f"         {step.recipe(planned.folder)}")
    left = [step for step in planned.steps if forecast[step.name].word != "done" and step.name not in fails]
    seconds = sum(forecast[step.name].seconds for step in left)
    parallel = f", roughly {_time(seconds / jobs)} with {jobs} at a time" if jobs > 1 else ""
    none = len(fails) == len(planned.steps)
    if not none:
        say(f"\n{len(left)} of {len(planned.steps)} steps to do, roughly {_time(seconds)} one after another{parallel}")
        if any(step.work for step in left):
            say("(the time on an idle machine, within a factor of about two)")
        _show_space(planned.folder, sum(step.space for step in left))
    if fails:
        say(f"none of the {len(fails)} steps can be done:" if none else f"{len(fails)} steps cannot be done:")
        _show_failures(fails)
    return 0 if not fails else 2 if none else 1


def _show_failures(fails: Mapping[str, str]) -> None:
    """What cannot be done, once for each reason; steps that need such a step have none of their own."""
    for error in filter(None, dict.fromkeys(fails.values())):
        first, *more = [name for name, text in fails.items() if text == error]
        say(f"  {first}{f' and {len(more)} others' if more else ''}: {error}")
    if waiting := sum(not error for error in fails.values()):
        say(f"  and {waiting} steps that need one of these" if waiting > 1 else "  and 1 step that needs one of these")


def _show_space(folder: Path, space: float) -> None:
    """The disk space that caches take."""
    import shutil

    if space:
        existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(existing).free
        size = f"{space / 1e9:,.0f} GB" if space > 2e9 else f"{max(space / 1e6, 1):,.0f} MB"
        say(f"caches take roughly {size} of disk space; {free / 1e9:,.0f} GB are free")


@contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM like an interrupt, so that the workers are ended and cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class StepPrinter:
    """Prints how many steps are reused, each other step when it ends, and on a terminal the running steps.

    An interrupt gets the names of the running steps.
    """

    def __init__(self, planned: PlannedStudy, *, findings: bool = False) -> None:
        self.folder, self.findings = planned.folder, findings
        self.steps, self.ended = len(planned.steps), planned.reused()
        self.failures: set[str] = set()
        self.running: dict[str, str] = {}
        self.status = console().status("") if sys.stdout.isatty() else None

    def __enter__(self) -> Self:
        if self.ended:
            say(f"{self.ended} of {self.steps} steps are reused")
        if self.status:
            self.status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.status:
            self.status.stop()
        if kind is KeyboardInterrupt:
            raise KeyboardInterrupt(", ".join(self.running)) from None

    def begin(self, step: Step) -> None:
        self.running[step.name] = f"{step.name} (since {time.strftime('%H:%M')})"
        if not self.status:
            say(f"{step.name}: started at {time.strftime('%H:%M')}")
        self._show()

    def _show(self) -> None:
        from rich.markup import escape

        if self.status:
            now = escape(shown(", ".join(self.running.values()) or "…"))
            self.status.update(f"{self.ended} of {self.steps} steps ended; running: {now}")

    def end(self, outcome: Outcome) -> None:
        if outcome.state == "reused":
            return
        self.ended += 1
        self.running.pop(outcome.step.name, None)
        self._show()
        took = f", {_time(outcome.seconds)}" if outcome.state == "done" else ""
        known = outcome.message in self.failures
        message = f": {'as above' if known else outcome.message}" if outcome.message else ""
        self.failures |= {outcome.message} if outcome.state == "failed" else set()
        count = len(outcome.warnings)
        warned = f", {count} warning{'s' * (count > 1)}" if count else ""
        line = f"[{self.ended}/{self.steps}] {outcome.step.name}: {outcome.state}{took}{warned}{message}"
        for text in (line, *self._found(outcome)):
            if self.status:  # above the status line
                self.status.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                say(text)

    def _found(self, outcome: Outcome) -> Iterator[str]:
        """What there is to see by now: the first finding of a probe, and a figure."""
        from probekit.rows import read_card

        if not self.findings or outcome.state != "done":
            return
        if outcome.step.function == "probe":
            yield from (
                f"    {text}" for text in read_card(self.folder / outcome.step.leaves[0]).get("verdict", ())[:1]
            )
        elif outcome.step.function == "plot":
            yield f"    {self.folder / outcome.step.leaves[-1]}"


def show_end(run: StudyRun) -> None:
    from probekit.files import slug

    states = [outcome.state for outcome in run.outcomes]
    kinds = [state for state in ("done", "reused", "failed", "skipped") if state in states]
    say(", ".join(f"{states.count(state)} {state}" for state in kinds))
    failed: dict[str, list[Outcome]] = {}
    for outcome in run.outcomes:
        if outcome.state == "failed":
            failed.setdefault(outcome.message, []).append(outcome)
    for message, alike in failed.items():
        logs = [run.folder / "logs" / f"{slug(outcome.step.name)}.log" for outcome in alike if outcome.seconds]
        where = f" (see {', '.join(map(str, logs))})" if logs else ""
        warn(f"failed: {', '.join(outcome.step.name for outcome in alike)}: {message}{where}")
    for path in _pages(run.outcomes):
        say(run.folder / path)


def show_warnings(run: StudyRun) -> None:
    """Each warning once, with the steps that gave it: training first, caches last."""
    from probekit.adaptation.runs.constant import NOT_BETTER, WORSE

    warned = [outcome.step for outcome in run.outcomes if outcome.warnings]
    if not warned:
        return
    found: dict[str, list[Step]] = {}
    for outcome in run.outcomes:
        for text in outcome.warnings:
            found.setdefault(text, []).append(outcome.step)

    def rank(text: str) -> tuple[bool, ...]:
        functions = {step.function for step in found[text]}
        return WORSE not in text, NOT_BETTER not in text, "train" not in functions, functions == {"cache_activations"}

    warn(f"{len(warned)} step{'s' * (len(warned) > 1)} warned:")
    for text in sorted(found, key=rank):
        first, *others = found[text]
        more = f" and {len(others)} other{'s' * (len(others) > 1)}" if others else ""
        warn(f"  {first.name}{more}: {text}")


def _pages(outcomes: Sequence[Outcome]) -> list[str]:
    """The files to read: tables and the report."""
    done = [outcome.step for outcome in outcomes if outcome.state in ("done", "reused")]
    return [leaf for step in done for leaf in step.leaves if leaf.endswith((".md", ".html"))]


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
