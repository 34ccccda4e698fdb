"""Files as the disk knows them: their sizes, whether they have changed, and who is writing them."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["cache_of", "held", "in_words", "pieces", "runs", "size_of", "state", "written_by"]

PIECES = (".partial.zstd", ".partial.new", ".partial", ".journal")
"""What follows the name of a cache while it is made."""

BESIDE = re.compile(
    r"\..+\.(?:parquet|csv|json)\.(?P<file>\d+)(?:-card)?|\.step-\d+\.(?P<step>\d+)|\..+\.(?P<model>\d+)-\d+"
)
"""Under which names files, checkpoints and models are written before they are renamed, by which process."""


def cache_of(name: str) -> str:
    """The name of the cache that a file is, or is a piece of in the making; "" of any other file."""
    for piece in PIECES:
        if name.endswith(f".h5{piece}"):
            return name.removesuffix(piece)
    return name if name.endswith(".h5") else ""


def pieces(cache: Path) -> list[Path]:
    """The files there are of the making of a cache. Links are none."""
    paths = [cache.with_name(cache.name + piece) for piece in PIECES]
    return [p for p in paths if p.is_file() and not p.is_symlink()]


def written_by(name: str) -> int | None:
    """The process that was to rename what has this name; None where the name is no such name."""
    match = BESIDE.fullmatch(name)
    return None if match is None else int(match["file"] or match["step"] or match["model"])


def runs(pid: int) -> bool:
    """Whether there is such a process on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def held(lock: Path) -> Iterator[bool]:
    """Whether another process holds this lock, to write what lies beside it; none begins to in the meantime."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            taken = False
        except BlockingIOError:
            taken = True
        yield taken
    finally:
        os.close(fd)


def state(path: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced; empty where it is gone."""
    try:
        status = path.lstat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def size_of(path: Path) -> int:
    """Bytes of a file, or of a folder with all that is in it. Links are not followed."""
    try:
        status = path.lstat()
        return sum(map(size_of, path.iterdir())) if stat.S_ISDIR(status.st_mode) else status.st_size
    except OSError:  # gone meanwhile, or not for us to see
        return 0


def in_words(size: float) -> str:
    """Bytes in words: 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
