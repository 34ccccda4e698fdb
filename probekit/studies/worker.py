"""A step, done where it is sent to: the function is called, and what it logs goes to the step's own file."""

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

from probekit.errors import ProbekitError
from probekit.files import open_to_write
from probekit.functions import parameters
from probekit.recipe import Recipe
from probekit.runtime import progress_lines

__all__ = ["Ended", "perform"]

LOGGERS = ("", "transformers", "datasets", "huggingface_hub")
"""The root, and loggers of libraries that do not tell it."""

_at_work: set[int] = set()
_changing = threading.Lock()


@dataclass(frozen=True, slots=True)
class Ended:
    """How long a step took, and why it failed, or ""."""

    seconds: float
    error: str = ""


def perform(recipe: Recipe, log: str, more: Mapping[str, Any]) -> Ended:
    """Run a recipe with further arguments. Several may run at once, in processes or threads.

    Parameters
    ----------
    recipe : Recipe
        What is run.
    log : str
        The log file: how far the work is, every ten seconds; messages, warnings, and the reason of a failure.
    more : mapping
        Further arguments, such as the worker's own ``device``.
    """
    began = monotonic()
    path = Path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(open_to_write(path), "w", encoding="utf-8") as stream, _logged(stream):
        error = _run_and_explain(recipe, more, stream)
        if error:
            stream.write(f"{error}\n")
    return Ended(monotonic() - began, error.removeprefix("probekit: "))


def _run_and_explain(recipe: Recipe, more: Mapping[str, Any], stream: Any) -> str:
    """Run a recipe; why it failed, as the command line says it, or ""."""
    try:
        known = parameters(recipe.function)
        made = recipe.run(**more, **({"progress": progress_lines(stream)} if "progress" in known else {}))
        if hasattr(made, "close"):
            made.close()
    except (ProbekitError, OSError) as error:
        return f"probekit: {' '.join(str(error).split())}"
    except Exception as error:
        traceback.print_exc(file=stream)
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""


@contextmanager
def _logged(stream: Any) -> Iterator[None]:
    """Let a file have what this thread logs, and warnings; a thread that a step starts is heard by all steps."""
    own = threading.get_ident()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: record.thread == own or record.thread not in _at_work)
    with _changing:
        _at_work.add(own)
        if len(_at_work) == 1:
            logging.captureWarnings(capture=True)
        for name in LOGGERS:
            logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        with _changing:
            for name in LOGGERS:
                logging.getLogger(name).removeHandler(handler)
            _at_work.discard(own)
            if not _at_work:
                logging.captureWarnings(capture=False)
