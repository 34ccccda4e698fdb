"""Notes: what an analysis says of its data. Each is shown once a session, by ``logging``, and stays in the result."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_shown: set[str] = set()
_collecting: list[list[str]] = []
_each_time = 0


class _Once(logging.Filter):
    """Lets a warning pass once in a session, and keeps it for the results that are being made."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        text = " ".join(record.getMessage().split())
        for notes in _collecting:
            notes.append(text)
        known = text in _shown
        _shown.add(text)
        vars(record)["again"] = known
        return bool(_each_time) or not known


_ONCE = _Once()


def is_new(record: logging.LogRecord) -> bool:
    """Whether a message is no note that was logged before: a filter for what a person sees."""
    return not getattr(record, "again", False)


def logger(name: str) -> logging.Logger:
    """The logger of a module whose warnings are notes."""
    found = logging.getLogger(name)
    found.addFilter(_ONCE)
    return found


@contextmanager
def collected() -> Iterator[list[str]]:
    """The notes made during the block, also those that are not shown again."""
    notes = list[str]()
    _collecting.append(notes)
    try:
        yield notes
    finally:
        _collecting[:] = [one for one in _collecting if one is not notes]


@contextmanager
def each_time() -> Iterator[None]:
    """Log each note again during the block: steps of a study have a log each. :func:`is_new` tells which are."""
    global _each_time
    _each_time += 1
    try:
        yield
    finally:
        _each_time -= 1
