"""Reading text files line by line, and holding out a share of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

import xxhash

from probekit.adaptation.pretraining.corpora.kinds import Row
from probekit.errors import DataError
from probekit.files import check_text

__all__ = ["HELD_OUT", "aligned", "is_held_out", "lines"]

BOM = b"\xef\xbb\xbf"
HELD_OUT = 20
"""One unit in this many is held out where a corpus has no official dev split."""


def lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends, read one by one; a byte-order mark is skipped.

    Only ``\\n`` ends a line, and a final ``\\r`` is dropped.

    Raises
    ------
    DataError
        If the file cannot be read, or a line is not UTF-8 or has a NUL (with file and line).
    """
    try:
        check_text(path)
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if b"\0" in line:
                    raise DataError("contains a NUL character. Is the file UTF-16, or damaged?", file=path, line=number)
                raw = line.removeprefix(BOM) if number == 1 else line
                yield raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(f"byte 0x{byte:02x} is not UTF-8. Save the file as UTF-8.", file=path, line=number) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}.", file=path) from error


def aligned(source: Path, target: Path) -> Iterator[Row]:
    """The pairs of lines of two files whose lines correspond; pairs with an empty line are left out.

    Raises
    ------
    DataError
        If one file has more lines than the other, with its first line that has no counterpart.
    """
    for number, (first, second) in enumerate(zip_longest(lines(source), lines(target)), start=1):
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
