"""Streams of pairs, and the share of a stream that is held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

import xxhash

from probekit.adaptation.pretraining.corpora.kinds import Row
from probekit.errors import DataError
from probekit.files import stream_lines

__all__ = ["HELD_OUT", "aligned", "count_up_to", "is_held_out"]

HELD_OUT = 20
"""One unit in this many is held out where a corpus has no official dev split."""


def aligned(source: Path, target: Path, read: Callable[[Path], Iterator[str]] = stream_lines) -> Iterator[Row]:
    """The pairs of lines of two files whose lines correspond; pairs with an empty line are left out.

    Raises
    ------
    DataError
        If one file has more lines than the other, with its first line that has no counterpart.
    """
    for number, (first, second) in enumerate(zip_longest(read(source), read(target)), start=1):
        if first is None or second is None:
            longer, shorter = (target, source) if first is None else (source, target)
            message = f"this line has no counterpart: {shorter} has only {number - 1:,} lines. Each line of one file "
            raise DataError(f"{message}must translate the same line of the other.", file=longer, line=number)
        if first.strip() and second.strip():
            yield first.strip(), second.strip()


def is_held_out(index: int, units: int, seed: int) -> bool:
    """Whether a unit (a document, passage, conversation or pair) belongs to the held-out share.

    One unit of each :data:`HELD_OUT` consecutive ones is held out, chosen by a hash of the seed.

    Parameters
    ----------
    index : int
        The place of the unit, from 0.
    units : int
        Number of units, if it is smaller than :data:`HELD_OUT`; one of them is then held out.
    """
    size = min(units, HELD_OUT)
    return index % size == xxhash.xxh3_64_intdigest(f"{seed}:{index // size}".encode()) % size


def count_up_to(items: Iterable[object], most: int) -> int:
    """The number of items, or ``most`` if there are at least as many; no more than these are read."""
    count = 0
    for count, _ in enumerate(items, start=1):
        if count == most:
            break
    return count
