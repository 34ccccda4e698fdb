"""Files: where they go, that they appear whole, who holds them, what they are known by, and what is never replaced."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import time
from typing import Any

from probekit.errors import DataError, UsageError

__all__ = [
    "DATA_CACHE",
    "FIGURES",
    "MARK",
    "FileKind",
    "beside",
    "cache_path",
    "check_folder",
    "digest",
    "digest_of_content",
    "held",
    "in_words",
    "is_running",
    "is_sealed",
    "lock",
    "new_folder",
    "open_to_write",
    "parse_json",
    "read_json",
    "read_lines",
    "remove",
    "remove_unfinished",
    "seal",
    "signal_when_closed",
    "slug",
    "whole",
    "without_mark",
    "write",
    "writer_of",
]

DATA_CACHE = Path("data_cache")
FIGURES = Path("figures")
"""Where caches and figures go by default, below the working directory."""


# names and texts ------------------------------------------------------------------------------------------------------


def slug(text: str) -> str:
    """``text`` as part of a file name: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.") or "unnamed"


def cache_path(task: str, split: str, model: str, spec_id: str, root: Path = DATA_CACHE) -> Path:
    """The default path of a cache: task, split, model and the first eight digits of its spec_id."""
    return root / f"{slug(task)}.{slug(split)}.{slug(model)}.{spec_id[:8]}.h5"


def in_words(size: float) -> str:
    """Bytes in words: 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def read_lines(path: Path, *, fallback: str | None = None) -> list[str]:
    """The lines of a text file of UTF-8, without their ends; a missing final newline does not matter.

    Parameters
    ----------
    path
        The file; a byte-order mark is skipped.
    fallback
        Encoding to use where the file is not UTF-8 (old files with single Latin-1 bytes).

    Raises
    ------
    DataError
        The file is missing, is not UTF-8 (line and byte offset) or holds a NUL.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}.", file=path) from error
    check_text(path, raw)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if fallback is None:
            start = error.start + (3 if raw.startswith(b"\xef\xbb\xbf") else 0)
            raise DataError(
                f"byte 0x{raw[start]:02x} at offset {start} is not UTF-8. Save the file as UTF-8.",
                file=path,
                line=raw.count(b"\n", 0, start) + 1,
            ) from error
        text = raw.decode(fallback)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError("holds a NUL character. Is the file UTF-16, or damaged?", file=path, line=line)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


NO_TEXT = {
    b"PK\x03\x04": "is an Excel workbook or a ZIP file. Save the sheet as CSV (UTF-8), or unpack it, and give that.",
    b"\xd0\xcf\x11\xe0": "is an old Excel or Word file. Save the sheet as CSV (UTF-8), and give that.",
    b"\x1f\x8b": "is compressed with gzip. Unpack it (gunzip FILE), and give the unpacked file.",
    b"PAR1": "is a Parquet file. Let its name end in .parquet.",
    b"\x89HDF": "is an HDF5 file, not text.",
    b"\xff\xfe": "is UTF-16. Save it as UTF-8 (in Excel: CSV UTF-8).",
    b"\xfe\xff": "is UTF-16. Save it as UTF-8 (in Excel: CSV UTF-8).",
}
"""By first bytes, what a file is that people take for text, and what to do."""


def check_text(path: Path, raw: bytes | None = None) -> None:
    """Raise DataError for a file that its first bytes (``raw``, read where they are not given) show not to be text."""
    if raw is None:
        with path.open("rb") as file:
            raw = file.read(8)
    for mark, what in NO_TEXT.items():
        if raw.startswith(mark):
            raise DataError(what.replace("FILE", path.name), file=path)


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; a ValueError where it is none, also where it is nested deeper than can be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_json(path: str | Path) -> Any:
    """The value of a JSON file; an OSError or a ValueError where there is none."""
    return parse_json(Path(path).read_text(encoding="utf-8"))


# appearing whole ------------------------------------------------------------------------------------------------------


@contextmanager
def whole(path: str | Path, kind: FileKind) -> Iterator[Path]:
    """A name to write a file under, which replaces ``path`` at the end of the block.

    Whoever looks at ``path`` sees what was there before or all of what is new: also where the block fails, and where
    the process is killed.

    Parameters
    ----------
    path
        The file to be; the folders above it are made.
    kind
        What it is. Only a file of this kind that we wrote is replaced.

    Yields
    ------
    Path
        A hidden name in the same folder, nothing there yet. It is removed where the block fails; what a killed
        process leaves is told by :func:`writer_of`.

    Raises
    ------
    UsageError
        Something else is at ``path``, before the block or at its end.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with whole(folder / "numbers.txt", FileKind("a text of numbers", is_sealed)) as new:
    ...     _ = new.write_bytes(seal(f"1 2 3 # {MARK}".encode()))
    >>> [p.name for p in folder.iterdir()]
    ['numbers.txt']
    """
    path = Path(path)
    kind.check(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with beside(path) as new:
        yield new
        kind.check(path)
        new.replace(path)


def write(path: str | Path, content: str | bytes, kind: FileKind) -> Path:
    """Write a text (UTF-8) or bytes to ``path``, which appears whole; where it holds ``MARK``, sealed."""
    with whole(path, kind) as new:
        new.write_bytes(seal(content if isinstance(content, bytes) else content.encode()))
    return Path(path)


def check_folder(folder: Path) -> None:
    """Make a folder; UsageError, before the work is done, where no file can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"nothing can be written in {folder} ({error.strerror}).") from None


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``path`` at the end of the block, or is removed where that fails.

    What processes left that were killed meanwhile is removed.

    Raises
    ------
    UsageError
        Something is at ``path`` already.
    """
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} is there already; give another folder.")
    remove_unfinished(path.parent, lambda name: name == path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with beside(path) as new:
        new.mkdir()
        yield new
        new.replace(path)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A hidden name in the folder of ``path``, of this thread alone; what is there at the end is removed."""
    new = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    remove(new)  # of a process that was killed and had the same number
    try:
        yield new
    finally:
        remove(new)


def writer_of(name: str) -> tuple[str, int] | None:
    """What a hidden name was to become, and the process that chose it; None of names that :func:`beside` never gives.

    A name alone proves little: who deletes by it looks into the file, too.
    """
    found = re.fullmatch(r"\.(.+)\.(\d+)-\d{9,}", name)  # the last is the number of a thread
    return (found[1], int(found[2])) if found else None


def remove_unfinished(folder: Path, ours: Callable[[str], bool], *, held: bool = False) -> None:
    """Remove what processes that were killed were writing in a folder.

    Parameters
    ----------
    folder
        Where they were, if it is there.
    ours
        Whether what was to have this name is ours.
    held
        Nobody else can be writing it, so that a process of the same number is another.
    """
    for left in folder.iterdir() if folder.is_dir() else ():
        own = writer_of(left.name)
        if own and ours(own[0]) and (held or not is_running(own[1])) and not left.is_symlink():
            remove(left)


def remove(path: Path) -> None:
    """Delete a file, a link or a folder with all that is in it; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# what is ours ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file that we write, and may replace where it is one that we wrote.

    Attributes
    ----------
    what
        With its article: ``"an evidence card"``.
    ours
        Whether the file at a path is one that we wrote; one that cannot be read is not.
    instead
        What to do where it is not.
    """

    what: str
    ours: Callable[[Path], bool]
    instead: str = "give another --out"

    def check(self, path: Path) -> None:
        """Raise UsageError where something is at ``path`` that is none of ours, a link or a folder among them."""
        if path.is_symlink():
            raise UsageError(f"{path} is a link, and a link is neither followed nor replaced; {self.instead}.")
        if path.is_dir():
            raise UsageError(f"{path} is a folder, not {self.what}; {self.instead}.")
        if path.exists():
            with suppress(OSError, ValueError, TypeError, AttributeError, DataError):
                found = path.stat()
                if stat.S_ISREG(found.st_mode) and (not found.st_size or self.ours(path)):  # a pipe has no size either
                    return
            raise UsageError(f"{path} is there already and is not {self.what}, so it is not replaced; {self.instead}.")


_MADE = b"made by probekit, xxh3 "
MARK = f"{_MADE.decode()}{0:032x}"
"""What :func:`seal` turns into the mark of a file; it stands where the format has room for a remark."""
_SEAL = re.compile(re.escape(_MADE) + rb"([0-9a-f]{32})")
_AFTER = 4
"""Bytes after the mark that are not under its digest: in a PNG they are a checksum of the mark."""


def seal(data: bytes) -> bytes:
    """``data`` with the digest of all its other bytes in the place of ``MARK``; as it is where it holds none."""
    head, mark, rest = data.partition(MARK.encode())
    return head + _MADE + _digest_around(head, rest) + rest if mark else data


def is_sealed(path: Path) -> bool:
    """Whether a file is as we wrote it: it carries the digest of its own bytes."""
    data = path.read_bytes()
    found = itertools.islice(_SEAL.finditer(data), 16)  # a page holds the marks of its figures, too
    return any(one[1] == _digest_around(data[: one.start()], data[one.end() :]) for one in found)


def _digest_around(head: bytes, rest: bytes) -> bytes:
    import xxhash

    state = xxhash.xxh3_128(head)
    state.update(rest[_AFTER:])
    return state.hexdigest().encode()


def without_mark(text: str) -> str:
    """A text without the line that holds its mark."""
    return "".join(line for line in text.splitlines(keepends=True) if not _SEAL.search(line.encode()))


# who holds a file -----------------------------------------------------------------------------------------------------


def open_to_write(path: Path, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> int:
    """A descriptor to write a file through; UsageError for a link, which may lead to what is not ours, and for a pipe.

    Parameters
    ----------
    path
        Its last part is not followed where it is a link; folders above it are.
    flags
        Of ``os.open``; truncates and makes the file without them.
    """
    try:
        fd = os.open(path, (flags & ~os.O_TRUNC) | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise UsageError(f"{path} is a link, and nothing is written through a link; remove it.") from None
        if error.errno == errno.ENXIO:
            raise UsageError(f"{path} is no file; remove it.") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UsageError(f"{path} is no file; remove it.")
    if flags & os.O_TRUNC:
        os.ftruncate(fd, 0)
    return fd


@contextmanager
def lock(
    path: Path,
    busy: Exception,
    *,
    wait: Callable[[], None] | None = None,
    ours: Callable[[bytes], bool] = lambda start: not start,
) -> Iterator[int]:
    """Hold the file ``path`` alone for the time of the block.

    The system gives it back when its holder dies, however it dies. A child that inherits the descriptor holds it, too.

    Parameters
    ----------
    path
        Made where it is not there; what it holds stays as it is, and so does the file.
    busy
        Raised where another holds it.
    wait
        Called once instead, before waiting for the other to end.
    ours
        Whether the file is ours that begins with these bytes (64 at most); an empty one where nothing is told.

    Yields
    ------
    int
        The open descriptor, to read and to append to.

    Raises
    ------
    UsageError
        The file is a link, or not ours.
    """
    from filelock import lock_descriptor

    told = False
    while True:
        fd = open_to_write(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            if not lock_descriptor(fd, blocking=False):
                if wait is None:
                    raise busy
                if not told:
                    wait()
                    told = True
                lock_descriptor(fd)
            if _is_at(fd, path):
                if not ours(os.pread(fd, 64, 0)):
                    raise UsageError(f"{path} is a file of somebody else's, which is in the way; give another --out.")
                yield fd
                return
        finally:
            os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    """Whether an open file still has its name: the holder before us may have removed the one we waited for."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Whether another process holds the file ``path``; in the block none begins to. Nothing is made or changed."""
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, which filelock cannot: two may look at once
            taken = False
        except BlockingIOError:
            taken = True
        yield taken
    finally:
        os.close(fd)


def signal_when_closed(fd: int) -> None:
    """Let the system end this process when nobody holds the other end of a pipe, also amid a long call into C."""
    import fcntl

    if hasattr(os, "O_ASYNC") and hasattr(fcntl, "F_SETOWN"):
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def is_running(pid: int) -> bool:
    """Whether there is such a process on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


# what files are known by ----------------------------------------------------------------------------------------------


def digest(files: Iterable[Path], root: Path | None = None) -> str:
    """xxh3 digest (32 hex digits) of names, sizes and bytes of files.

    Files are read once in the life of the process, as long as their sizes, times and inodes stay as they are.

    Parameters
    ----------
    files
        In this order.
    root
        Folder below which they are named; without it, the last part of each path is its name.
    """
    stats = [(file, file.stat()) for file in files]
    told = tuple(
        (file.name if root is None else str(file.relative_to(root)), file, s.st_size, s.st_mtime_ns, s.st_ino)
        for file, s in stats
    )
    settled = max((s.st_mtime for _, s in stats), default=0) < time() - SETTLED
    return _digest(told) if settled else _digest.__wrapped__(told)


SETTLED = 2.0
"""Seconds after which a file that changes again has another time, on any file system."""


@lru_cache(maxsize=1024)
def _digest(told: tuple[tuple[str, Path, int, int, int], ...]) -> str:
    import xxhash

    state = xxhash.xxh3_128()
    for name, file, size, *_ in told:
        state.update(f"{name}\0{size}\0".encode())
        _feed(state.update, file)
    return state.hexdigest()


def digest_of_content(path: Path) -> str:
    """xxh3 digest (32 hex digits) of the bytes of a file, whatever its name."""
    import xxhash

    _feed((state := xxhash.xxh3_128()).update, path)
    return state.hexdigest()


def _feed(update: Callable[[bytes], object], file: Path) -> None:
    with file.open("rb") as stream:
        while piece := stream.read(1 << 22):
            update(piece)
