"""Files: where they go, that they appear whole, who holds them, what they are known by, and what is never replaced."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from time import time
from typing import Any

from probekit.errors import DataError, UsageError

__all__ = [
    "DATA_CACHE",
    "FIGURES",
    "beside",
    "cache_path",
    "check_ours",
    "digest",
    "digest_of_content",
    "held",
    "in_words",
    "is_running",
    "lock",
    "new_folder",
    "parse_json",
    "read_json",
    "read_lines",
    "remove",
    "slug",
    "whole",
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
def whole(path: str | Path) -> Iterator[Path]:
    """A name to write a file or a folder under, which replaces ``path`` at the end of the block.

    Whoever looks at ``path`` sees what was there before or all of what is new: also where the block fails, and where
    the process is killed.

    Parameters
    ----------
    path
        The file or folder to be; the folders above it are made.

    Yields
    ------
    Path
        A hidden name in the same folder, nothing there yet. It is removed where the block fails; what a killed
        process leaves is told by :func:`writer_of`.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with whole(folder / "numbers.txt") as new:
    ...     _ = new.write_text("1 2 3")
    >>> [p.name for p in folder.iterdir()]
    ['numbers.txt']
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with beside(path) as new:
        yield new
        new.replace(path)


def write(path: str | Path, content: str | bytes) -> Path:
    """Write a text (UTF-8) or bytes to ``path``, which appears whole; returns the path."""
    with whole(path) as new:
        new.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Path(path)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``path`` at the end of the block, or is removed where that fails.

    What processes left that were killed meanwhile is removed.

    Raises
    ------
    UsageError
        Something is at ``path`` already.
    """
    if path.exists():
        raise UsageError(f"{path} is there already; give another folder.")
    for left in path.parent.iterdir() if path.parent.is_dir() else ():
        if (own := writer_of(left.name)) and own[0] == path.name and not is_running(own[1]):
            remove(left)
    with whole(path) as new:
        new.mkdir()
        yield new


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


def remove(path: Path) -> None:
    """Delete a file, a link or a folder with all that is in it; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def check_ours(path: Path, ours: Callable[[Path], bool], what: str, instead: str = "give another --out") -> None:
    """Refuse to replace what somebody else wrote.

    Parameters
    ----------
    path
        What is about to be replaced; there need not be anything.
    ours
        Whether what is at a path was made by the function that asks; one that cannot be read is not.
    what
        What would stand there, with its article: ``"an evidence card"``.
    instead
        What to do.

    Raises
    ------
    UsageError
        Something is there, and is not ours.
    """
    if path.exists() or path.is_symlink():
        with suppress(OSError, ValueError):
            if ours(path):
                return
        raise UsageError(f"{path} is there already and is not {what}, so it is not replaced; {instead}.")


# who holds a file -----------------------------------------------------------------------------------------------------


@contextmanager
def lock(path: Path, busy: Exception, *, wait: Callable[[], None] | None = None) -> Iterator[int]:
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

    Yields
    ------
    int
        The open descriptor, to read and to append to.
    """
    from filelock import lock_descriptor

    told = False
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if not lock_descriptor(fd, blocking=False):
                if wait is None:
                    raise busy
                if not told:
                    wait()
                    told = True
                lock_descriptor(fd)
            if _is_at(fd, path):
                yield fd
                return
        finally:
            os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    """Whether an open file still has its name: the holder before us may have removed the one we waited for."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
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
