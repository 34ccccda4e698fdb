"""What can go wrong, as a tree.

    ProbekitError
    ├── UsageError            wrong arguments: an unknown name, options that exclude each other
    ├── DataError             a data file or table is not what it should be (file, line, column)
    ├── ModelError            a model folder cannot be loaded, or loads as something else
    ├── NonFiniteError        an activation is NaN or infinite (example, layer)
    ├── TruncationError       a text is longer than the model can read, and that was not allowed
    └── CacheError
        ├── CacheMismatch     the file holds other activations than those asked for
        ├── CacheIncomplete   the file was never finished
        ├── CacheCorrupt      the file's bytes are not those that were written
        └── CacheBusy         another process is writing the same cache

Every message says what was wanted, what came and what to do. The command line turns each of them into one
sentence on standard error and exit status 2; what is no ProbekitError, nor an OSError, is a fault of ours, status 3.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "CacheBusy",
    "CacheCorrupt",
    "CacheError",
    "CacheIncomplete",
    "CacheMismatch",
    "DataError",
    "Faults",
    "ModelError",
    "NonFiniteError",
    "ProbekitError",
    "TruncationError",
    "UsageError",
    "close_names",
    "did_you_mean",
    "first_line",
    "reading",
]


class ProbekitError(Exception):
    """The root of every error that probekit raises on purpose."""


class UsageError(ProbekitError, ValueError):
    """Wrong arguments: an unknown name, a value out of range, options that exclude each other."""


class DataError(ProbekitError, ValueError):
    """A data file is not what it should be; the message begins with the file, the line and the column."""

    def __init__(
        self, message: str, *, file: str | Path | None = None, line: int | None = None, column: str | int | None = None
    ) -> None:
        self.file, self.line, self.column = file, line, column
        where = [] if file is None else [str(file)]
        where += [] if line is None else [f"line {line}"]
        where += [] if column is None else [f"column {column}" if isinstance(column, int) else f"column {column!r}"]
        super().__init__(f"{', '.join(where)}: {message}" if where else message)


class Faults:
    """Faults of a data file, which are gathered and told together: ``with faults:`` around what reads one row.

    Examples
    --------
    >>> faults = Faults()
    >>> for line, cell in enumerate(["1", "x", "2", "y"], start=1):
    ...     with faults:
    ...         if not cell.isdigit():
    ...             raise DataError(f"{cell!r} is not a number.", file="a.csv", line=line)
    >>> faults.check()
    Traceback (most recent call last):
    probekit.errors.DataError: a.csv: 2 rows cannot be read.
      line 2: 'x' is not a number.
      line 4: 'y' is not a number.
    """

    MOST = 20
    """How many are told one by one."""

    def __init__(self) -> None:
        self.found: list[DataError] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        if not isinstance(error, DataError) or error.line is None:
            return False
        self.found.append(error)
        return True

    def check(self) -> None:
        """Raise DataError where there are faults: the one that there is, or all, in the order of files and lines."""
        if len(self.found) == 1:
            raise self.found[0]
        if not self.found:
            return
        files = list(dict.fromkeys(str(error.file) for error in self.found))
        ordered = sorted(self.found, key=lambda error: (files.index(str(error.file)), error.line or 0))
        name = files[0] if len(files) == 1 else None
        told = [str(error).removeprefix(f"{name}, ") for error in ordered[: self.MOST]]
        more = [f"and {len(ordered) - self.MOST:,} more"] if len(ordered) > self.MOST else []
        rows = len({(error.file, error.line) for error in ordered})
        lines = "".join(f"\n  {one}" for one in (*told, *more))
        raise DataError(f"{rows:,} rows cannot be read.{lines}", file=name)


class ModelError(ProbekitError):
    """A model cannot be loaded, or is not what its folder says."""


class NonFiniteError(ProbekitError, ArithmeticError):
    """An activation is NaN or infinite."""


class TruncationError(ProbekitError):
    """A text is longer than the model can read."""


class CacheError(ProbekitError):
    """The root of the errors about cache files."""


class CacheMismatch(CacheError):
    """The file holds other activations than those asked for."""


class CacheIncomplete(CacheError):
    """The file was never finished."""


class CacheCorrupt(CacheError):
    """The file's bytes are not those that were written."""


class CacheBusy(CacheError):
    """Another process is writing the same cache."""


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its kind where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def reading(file: str | Path, what: str) -> Iterator[None]:
    """Tell whatever a damaged file makes of the code that reads it as a DataError; our own errors stay as they are.

    For the reading alone: an analysis within would have its own faults told as the file's.

    Parameters
    ----------
    file
        The file.
    what
        As what it is read: ``"Parquet"``.
    """
    try:
        yield
    except (ProbekitError, MemoryError):
        raise
    except Exception as error:
        told = f"{type(error).__name__} {error}" if isinstance(error, LookupError | TypeError) else first_line(error)
        raise DataError(f"cannot be read as {what} ({told:.300}). Is the file whole?", file=file) from error


def close_names(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """The known names that are most like a name, capitals aside, the closest first; none where none is like it.

    Examples
    --------
    >>> close_names("MiniLM", ["minilm", "bert"]), close_names("gpt2", ["minilm", "bert"])
    (['minilm'], [])
    """
    by_lower = {one.lower(): one for one in known}
    return [by_lower[one] for one in difflib.get_close_matches(name.lower(), by_lower, n=most, cutoff=0.5)]


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1, show: Callable[[str], str] = str) -> str:
    """What an error says of a name that there is not: those that are like it, or else all there are.

    Examples
    --------
    >>> did_you_mean("acuracy", ["accuracy", "f1"])
    'did you mean accuracy?'
    >>> did_you_mean("bleu", ["accuracy", "f1"])
    'there are accuracy, f1.'
    """
    known = list(known)
    close = close_names(name, known, most=most)
    return f"did you mean {' or '.join(map(show, close))}?" if close else f"there are {', '.join(known)}."
