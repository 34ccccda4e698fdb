"""The tree of errors.

    ProbekitError
    ├── UsageError            wrong arguments: an unknown name, options that exclude each other
    ├── DataError             a data file or table is not valid (file, line, column)
    ├── ModelError            a model folder cannot be loaded, or holds something else
    ├── NonFiniteError        an activation is NaN or infinite (example, layer)
    ├── TruncationError       a text is longer than the model can read, and truncation is not allowed
    └── CacheError
        ├── CacheMismatch     the file holds other activations than requested
        ├── CacheIncomplete   the file is unfinished
        ├── CacheCorrupt      the file was changed after it was written
        └── CacheBusy         another process is writing the same cache

Every message says what was expected, what was found and what to do. The command line prints it as one sentence on
standard error and exits with status 2. Any other exception except OSError is a bug in probekit, status 3.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class ProbekitError(Exception):
    """Base class of all errors that probekit raises deliberately."""


class UsageError(ProbekitError, ValueError):
    """Wrong arguments: an unknown name, a value out of range, options that exclude each other."""


class DataError(ProbekitError, ValueError):
    """A data file is not valid; the message begins with the file, the line and the column."""

    def __init__(
        self, message: str, *, file: str | Path | None = None, line: int | None = None, column: str | int | None = None
    ) -> None:
        self.file, self.line, self.column = file, line, column
        where = [] if file is None else [str(file)]
        where += [] if line is None else [f"line {line}"]
        where += [] if column is None else [f"column {column}" if isinstance(column, int) else f"column {column!r}"]
        super().__init__(f"{', '.join(where)}: {message}" if where else message)


class Faults:
    """Collects the errors of a data file to raise them together; use ``with faults:`` around the code for one row.

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
    """Maximum number of errors that are listed."""

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
        """Raise DataError if there are faults: a single one, or all in the order of files and lines."""
        if len(self.found) == 1:
            raise self.found[0]
        if not self.found:
            return
        files = list(dict.fromkeys(str(error.file) for error in self.found))
        ordered = sorted(self.found, key=lambda error: (files.index(str(error.file)), error.line or 0))
        name = files[0] if len(files) == 1 else None
        shown = [str(error).removeprefix(f"{name}, ") for error in ordered[: self.MOST]]
        more = [f"and {len(ordered) - self.MOST:,} more"] if len(ordered) > self.MOST else []
        rows = len({(error.file, error.line) for error in ordered})
        lines = "".join(f"\n  {line}" for line in (*shown, *more))
        raise DataError(f"{rows:,} rows cannot be read.{lines}", file=name)


class ModelError(ProbekitError):
    """A model cannot be loaded, or does not match its folder's description."""


class NonFiniteError(ProbekitError, ArithmeticError):
    """An activation is NaN or infinite."""


class TruncationError(ProbekitError):
    """A text is longer than the model can read."""


class CacheError(ProbekitError):
    """Base class of errors about cache files."""


class CacheMismatch(CacheError):
    """The file holds other activations than requested."""


class CacheIncomplete(CacheError):
    """The file is unfinished."""


class CacheCorrupt(CacheError):
    """The file was changed after it was written."""


class CacheBusy(CacheError):
    """Another process is writing the same cache."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def reading(file: str | Path, what: str) -> Iterator[None]:
    """Turn any error of code that reads a damaged file into a DataError; probekit's own errors pass unchanged.

    Use it only for reading: errors of an analysis inside would be reported as the file's.

    Parameters
    ----------
    file
        The file.
    what
        The format in which it is read: ``"Parquet"``.
    """
    try:
        yield
    except (ProbekitError, MemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__} {error}" if isinstance(error, LookupError | TypeError) else first_line(error)
        raise DataError(f"cannot be read as {what} ({reason:.300}). Is the file complete?", file=file) from error


@contextmanager
def naming(given: object) -> Iterator[None]:
    """Begin the UsageErrors of the block with a file, if ``given`` is the path of one."""
    try:
        yield
    except UsageError as error:
        if isinstance(given, str | Path):
            raise UsageError(f"{given}: {error}") from error
        raise


def close_names(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """The known names that resemble a name, ignoring case, closest first; only those about as close as the closest.

    Examples
    --------
    >>> close_names("MiniLM", ["minilm", "bert"]), close_names("gpt2", ["minilm", "bert"])
    (['minilm'], [])
    >>> close_names("metric", ["metrics", "train"], most=2)
    ['metrics']
    """
    by_lower, name = {one.lower(): one for one in known}, name.lower()
    close = difflib.get_close_matches(name, by_lower, n=most, cutoff=0.5)
    ratios = [difflib.SequenceMatcher(None, one, name).ratio() for one in close]
    return [by_lower[one] for one, ratio in zip(close, ratios, strict=True) if ratio > ratios[0] - 0.15]


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1, show: Callable[[str], str] = str) -> str:
    """The end of a message about an unknown name: similar names, or all known ones if none is similar.

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
