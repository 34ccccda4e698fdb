"""How progress is shown: a bar in a notebook or terminal, lines where standard error is a file, nothing for short work.

``PROBEKIT_PROGRESS=0`` in the environment, or ``progress=False`` in a call, shows none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape
from time import monotonic
from typing import Any

from probekit.display import shown
from probekit.runtime import Clock, Progress, no_progress, progress_lines, remaining, time_left

SHORT = 2.0
"""Seconds of work for which a function shows nothing."""
LONG = 60.0
"""Seconds that are left from which on a line says what would be faster."""
HELP = (
    "By default a bar in a notebook or a terminal, and lines where standard error is a file, for work of more than two "
    "seconds. False for none; a function is called with stage, done and total."
)
"""What the docstring of every public function says of its argument ``progress``."""
_reporting = 0


@contextmanager
def reported(arguments: dict[str, Any], faster: str = "") -> Iterator[None]:
    """Replace the argument ``progress`` of a public function, if it has one, by what it reports to.

    Parameters
    ----------
    arguments : dict
        Its arguments, which change.
    faster : str
        The argument that would make long work faster.
    """
    if "progress" not in arguments:
        yield
        return
    with reporting(arguments["progress"], faster) as arguments["progress"]:
        yield


def is_given(faster: str, arguments: Mapping[str, Any]) -> bool:
    """Whether an argument as :func:`probekit.public.public` names it, "controls=0", is already given."""
    name, _, value = faster.partition("=")
    return str(arguments.get(name)) == value


@contextmanager
def reporting(given: Any, faster: str = "") -> Iterator[Progress]:
    """What a public function reports to: what the caller gave, or a display; none within another public function.

    Parameters
    ----------
    given : callable or bool
        The argument ``progress``; ``no_progress``, its default, and True stand for a display.
    faster : str
        The option that would make long work faster.
    """
    global _reporting
    chosen = given is not no_progress and given is not True
    inside = bool(_reporting)
    _reporting += 1
    try:
        if chosen or inside:
            yield given if chosen and given else no_progress
        else:
            with display(faster, after=SHORT) as progress:
                yield progress
    finally:
        _reporting -= 1


def display(faster: str = "", *, after: float = 0.0) -> AbstractContextManager[Progress]:
    """A Progress that shows a bar for each stage, or prints lines if nobody watches.

    Parameters
    ----------
    faster : str
        The option that would make long work faster, as it is given.
    after : float
        Seconds for which nothing is shown; 0 shows at once that work begins.
    """
    if os.environ.get("PROBEKIT_PROGRESS") == "0" or sys.stderr is None:  # a service has no standard error
        return nullcontext(no_progress)
    if in_notebook():
        return _notebook(faster, after)
    is_terminal = getattr(sys.stderr, "isatty", bool)()
    return _terminal(faster, after) if is_terminal else _lines(faster, after)


def in_notebook() -> bool:
    """Whether this is a kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def _tip(faster: str, left: float | None) -> str:
    return f"faster with {faster}" if faster and (left or 0) > LONG else ""


@contextmanager
def _lines(faster: str, after: float) -> Iterator[Progress]:
    yield progress_lines(sys.stderr, first=after or None, tip=lambda left: _tip(faster, left))


@contextmanager
def _terminal(faster: str, after: float) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description:<11}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        MofNCompleteColumn(), TextColumn("{task.fields[rates]}", markup=False), TimeRemainingColumn(),
    )  # fmt: skip
    bars = Bars(*columns, console=Console(stderr=True))
    clock, began, stages = Clock(), monotonic(), dict[str, TaskID]()
    waiting = bars.add_task("starting", total=None, rates="")

    def show(stage: str, done: int, total: int, /, **rates: float) -> None:
        seconds, first, new = clock(stage, done)
        if monotonic() - began < after:
            return
        bars.start()
        bars.update(waiting, visible=False)
        if stage not in stages:
            stages[stage] = bars.add_task(shown(stage), total=total, rates="")
        elif new:
            bars.reset(stages[stage], total=total, rates="")
        text = "  ".join(f"{value / max(seconds, 0.1):,.0f} {name}/s" for name, value in rates.items() if value)
        tip = _tip(faster, remaining(seconds, done - first, total - done))
        bars.update(stages[stage], completed=done, total=total, rates="  ".join(filter(None, (text, tip))))

    try:
        if not after:
            bars.start()
        yield show
    finally:
        if bars.live.is_started:
            bars.stop()


@contextmanager
def _notebook(faster: str, after: float) -> Iterator[Progress]:
    from IPython.display import HTML
    from IPython.display import display as put

    clock, began, lines = Clock(), monotonic(), dict[str, str]()
    handle, last = None, began

    def show(stage: str, done: int, total: int, /, **rates: float) -> None:
        nonlocal handle, last
        seconds, first, _ = clock(stage, done)
        left = remaining(seconds, done - first, total - done)
        words = [f"{shown(stage)}: {done:,} of {total:,}", *([time_left(left)] if left else []), _tip(faster, left)]
        lines[stage] = (
            f'<div><progress value="{done}" max="{max(total, 1)}"></progress> '
            f"{escape(', '.join(filter(None, words)))}</div>"
        )
        now = monotonic()
        if now - began < after or (handle is not None and now - last < 0.2):
            return
        page, last = HTML("".join(lines.values())), now
        if handle is None:
            handle = put(page, display_id=True)
        else:
            handle.update(page)

    try:
        yield show
    finally:
        if handle is not None:
            handle.update(HTML(""))
