"""Progress on standard error, as a bar or as lines: rates, and the remaining time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from probekit.display import shown
from probekit.runtime import Progress, progress_lines


@contextmanager
def bar() -> Iterator[Progress]:
    """A Progress that draws one bar per stage, or prints lines if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield progress_lines(sys.stderr)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<11}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        MofNCompleteColumn(), TextColumn("{task.fields[rates]}"), TimeRemainingColumn(),
    )  # fmt: skip
    console = Console(stderr=True)
    bars = Bars(*columns, console=console)
    stages: dict[str, tuple[TaskID, float, int, int]] = {}
    waiting = bars.add_task("starting", total=None, rates="")

    def show(stage: str, done: int, total: int, /, **rates: float) -> None:
        bars.update(waiting, visible=False)
        stage = shown(stage)
        if stage not in stages:
            stages[stage] = bars.add_task(stage, total=total, rates=""), monotonic(), done, total
        task, began, *last = stages[stage]
        if done < last[0] or total != last[1]:  # the same stage begins again, on other data
            bars.reset(task, total=total, rates="")
            began = monotonic()
        stages[stage] = task, began, done, total
        seconds = max(monotonic() - began, 0.1)
        text = "  ".join(f"{value / seconds:,.0f} {name}/s" for name, value in rates.items() if value)
        bars.update(task, completed=done, total=total, rates=text)

    with bars:
        yield show
