"""Run a step in a worker: call the function, and write its log to the step's file."""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from probekit.addresses import no_addresses
from probekit.errors import ProbekitError
from probekit.files import open_to_write
from probekit.functions import parameters
from probekit.recipe import Recipe
from probekit.runtime import progress_lines
from probekit.tasks.kept import keeping_tasks

__all__ = ["Ended", "perform"]

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
    with os.fdopen(open_to_write(path), "w", encoding="utf-8") as stream, _logged(stream) as warned, keeping_tasks(run):
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
