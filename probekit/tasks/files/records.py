"""Sources of records that are read a part at a time: JSON lines, lines of text, data sets of the hub."""

from __future__ import annotations

import gzip
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from probekit.errors import DataError
from probekit.files import check_text
from probekit.tasks.datasets.sources import from_hub
from probekit.tasks.files.readers import json_record

STEP = 1000
"""Records from one remembered place in a file to the next."""
Record = tuple[int, dict[str, Any]]
"""The line (from 1) and the fields of a record."""


@dataclass(frozen=True)
class FileRecords:
    """The lines of a file that are not blank: JSON objects, or texts; a file that ends in .gz is unpacked.

    Attributes
    ----------
    count : int
        Their number.
    identity : str
        A digest of the bytes that are read.
    places : np.ndarray
        int64 (k, 2), byte and line before every thousandth record.
    stamp : tuple[int, int]
        Size and time of change (ns) of the file when it was counted.
    """

    file: Path
    count: int
    identity: str
    places: np.ndarray
    plain: bool
    stamp: tuple[int, int]
    _open: dict[str, IO[bytes]] = field(default_factory=dict, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)

    def read(self, first: int, last: int) -> list[Record]:
        """The records ``first`` … ``last - 1``; fewer if there are no more; DataError if the file has changed."""
        if first >= min(last, self.count):
            return []
        if stamp_of(self.file) != self.stamp:
            raise DataError(
                "has changed since its records were counted. Run the command again: changed data are another job.",
                file=self.file,
            )
        at, line = self.places[first // STEP].tolist()
        if "file" not in self._open:  # kept open: a packed file is not unpacked from its beginning each time
            self._open["file"] = opened(self.file)
            weakref.finalize(self, self._open["file"].close)
        file = self._open["file"]
        file.seek(at)
        rows = islice(self._records(file, line), first % STEP, first % STEP + last - first)
        return [(number, self._parse(number, raw)) for number, raw in rows]

    def _records(self, file: IO[bytes], line: int) -> Iterator[tuple[int, bytes]]:
        for number, raw in enumerate(file, start=line + 1):
            if raw.strip():
                yield number, raw

    def _parse(self, number: int, raw: bytes) -> dict[str, Any]:
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            text = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            message = f"byte 0x{raw[error.start]:02x} of the line is not UTF-8. Save the file as UTF-8."
            raise DataError(message, file=self.file, line=number) from error
        if "\0" in text:
            message = "contains a NUL character. Is the file UTF-16, or damaged?"
            raise DataError(message, file=self.file, line=number)
        return {"text": text} if self.plain else json_record(text, self.file, number)


def opened(path: Path) -> IO[bytes]:
    """A file to read, unpacked if its name ends in .gz; raises DataError if it cannot be opened."""
    try:
        if path.suffix == ".gz":
            return gzip.open(path)  # type: ignore[return-value]
        check_text(path)
        return path.open("rb", buffering=1 << 20)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}.", file=path) from error


def stamp_of(path: Path) -> tuple[int, int]:
    """Size and time of change of a file; raises DataError if it is gone."""
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}.", file=path) from error
    return status.st_size, status.st_mtime_ns


def scan(path: Path, *, plain: bool) -> FileRecords:
    """Count and digest the records of a file in one pass; nothing is parsed.

    Parameters
    ----------
    plain : bool
        Whether a line is a text, not a JSON object.
    """
    state, places, count, at = xxhash.xxh3_128(), [], 0, 0
    stamp = stamp_of(path)
    try:
        with opened(path) as file:
            for number, raw in enumerate(file):
                state.update(raw)
                if raw.strip():
                    if count % STEP == 0:
                        places.append((at, number))
                    count += 1
                at += len(raw)
    except (OSError, EOFError) as error:
        raise DataError(f"cannot be read: {error}.", file=path) from error
    return FileRecords(path, count, state.hexdigest(), np.array(places, np.int64).reshape(-1, 2), plain, stamp)


class HubRecords:
    """The rows of a split of a data set of the hub, or of a folder in its layout, in streaming mode.

    Their number is known only at the end, and their identity is the name of the data set, not its bytes.
    """

    def __init__(self, task_file: Path, repository: str, config: str | None, split: str) -> None:
        self.what, self.repository, self.config, self.split = str(task_file), repository, config, split
        self.file: Path | str = f"{repository} ({split})"
        self.count: int | None = None
        self.identity = xxhash.xxh3_128_hexdigest(repr((repository, config, split)).encode())
        self._at, self._rows = 0, iter(dict[str, Any]() for _ in ())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_at": 0, "_rows": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _rows=iter(()))

    def data(self) -> Any:
        """The ``datasets.IterableDataset``."""
        data = from_hub(self.what, self.repository, self.config, streaming=True)
        if self.split not in data:
            raise DataError(f"{self.repository} has no split {self.split!r}; it has {', '.join(data)}.", file=self.what)
        return data[self.split]

    def names(self, column: str) -> tuple[str, ...]:
        """The names of the classes in a column, if the data set has them."""
        feature = (self.data().features or {}).get(column)
        return tuple(getattr(feature, "names", None) or ())

    def read(self, first: int, last: int) -> list[Record]:
        """The records ``first`` … ``last - 1``; fewer if there are no more."""
        at, self._at = self._at, 0  # after an error, the next call starts anew, and takes no wrong rows
        if not 0 < at <= first:
            at, self._rows = first, iter(self.data().skip(first))
        skipped = sum(1 for _ in islice(self._rows, first - at))
        found: list[dict[str, Any]] = (
            [dict(row) for row in islice(self._rows, last - first)] if skipped == first - at else []
        )
        self._at = max(1, first + len(found))
        return [(number, row) for number, row in enumerate(found, start=first + 1)]


Records = FileRecords | HubRecords
"""Records by number, each with its line."""
