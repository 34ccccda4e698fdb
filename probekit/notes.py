"""Notes: what an analysis says of its data. Each is shown once a session, by ``logging``, and stays in the result."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from probekit.recipe import current

_shown: set[tuple[str, str]] = set()
_collecting: ContextVar[tuple[list[str], ...]] = ContextVar("notes", default=())
_each_time = 0


class Notes(logging.LoggerAdapter[logging.Logger]):
    """Shows a warning once in a session, and keeps it for the results that are being made, whatever the level is."""

    def __init__(self, name: str, *, by_input: bool) -> None:
        super().__init__(logging.getLogger(name), {})
        self.by_input = by_input

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Keep a warning, and log it unless it was shown before."""
        if level >= logging.WARNING:
            text = " ".join((str(msg) % args if args else str(msg)).split())
            for notes in _collecting.get():
                notes.append(text)
            if not self.isEnabledFor(level):
                return
            recipe = current() if self.by_input else None
            note = (text, json.dumps(recipe.arguments, sort_keys=True, default=str) if recipe else "")
            kwargs["extra"] = {"note": note, "again": note in _shown}
            if not _each_time:
                if note in _shown:
                    return
                _shown.add(note)
        super().log(level, msg, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})


def is_new(record: logging.LogRecord) -> bool:
    """Whether a message is no note that was shown before: a filter for what a person sees, which they then have seen.

    What only the log of a step has taken, nobody has seen.
    """
    if getattr(record, "again", False):
        return False
    if note := getattr(record, "note", None):
        _shown.add(note)
    return True


def logger(name: str, *, by_input: bool = False) -> Notes:
    """The logger of a module whose warnings are notes.

    Parameters
    ----------
    name : str
        The name of the module.
    by_input : bool
        Whether its texts do not name the data: then a note is shown again for a call with other arguments.
    """
    return Notes(name, by_input=by_input)


@contextmanager
def collected() -> Iterator[list[str]]:
    """The notes made during the block, also those that are not shown again, and not those of other threads."""
    notes = list[str]()
    token = _collecting.set((*_collecting.get(), notes))
    try:
        yield notes
    finally:
        _collecting.reset(token)


@contextmanager
def each_time() -> Iterator[None]:
    """Log each note again during the block: steps of a study have a log each. :func:`is_new` tells which are."""
    global _each_time
    _each_time += 1
    try:
        yield
    finally:
        _each_time -= 1
