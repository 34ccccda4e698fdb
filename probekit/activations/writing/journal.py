"""The right to write a cache, the note of what is written, and what the system says when it cannot be."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from probekit.errors import CacheBusy, CacheError
from probekit.files import lock

__all__ = ["Journal", "journal_path", "locked", "partial_path", "sync", "sync_folder", "writing"]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's complaints about ``path`` into a CacheError that says what to do."""
    try:
        yield
    except OSError as error:
        reason = {
            errno.ENOSPC: f"the disk is full. What is finished is kept; make room in {path.parent} and run the same "
            "command again to go on",
            errno.EDQUOT: "your disk quota is used up. What is finished is kept; make room, run the same command again",
            errno.EFBIG: "the file is larger than this system allows. Use --limit, fewer poolings or --store float16",
            errno.EACCES: f"no permission to write in {path.parent}. Give another --out",
            errno.EROFS: f"{path.parent} is read-only. Give another --out",
            errno.EEXIST: f"{path.parent} is not a folder. Give another --out",
            errno.ENOTDIR: f"{path.parent} is not a folder. Give another --out",
        }.get(error.errno or 0)
        if reason is None:
            raise
        raise CacheError(f"cannot write {path}: {reason}.") from error


def partial_path(out: Path) -> Path:
    """Where the cache ``out`` grows."""
    return out.with_name(out.name + ".partial")


def journal_path(out: Path) -> Path:
    """Where the finished blocks of ``out`` are noted while it grows; its lock too."""
    return out.with_name(out.name + ".journal")


@contextmanager
def locked(out: Path, *, wait: Callable[[], None] | None) -> Iterator[int]:
    """Hold the right to write ``out``; yields the descriptor of its journal.

    The system gives the lock back when its holder dies. Children that inherit the descriptor hold it too.

    Parameters
    ----------
    wait : Callable[[], None] | None
        Called once if another process holds it, before waiting for that to end; None raises CacheBusy instead.
    """
    busy = CacheBusy(f"another process is writing {out}; wait for it, or give another --out.")
    with ExitStack() as stack:
        with writing(path := journal_path(out)):
            out.parent.mkdir(parents=True, exist_ok=True)
            fd = stack.enter_context(lock(path, busy, wait=wait, ours=_is_journal))
        yield fd


_FIRST = b'{"structure": "'


def _is_journal(start: bytes) -> bool:
    """Whether a file that begins so is a journal; one whose first line was torn is, too."""
    return start.startswith(_FIRST) or _FIRST.startswith(start)


class Journal:
    """The finished blocks, one line of JSON each: the block's number and the digest of each stream's part."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.structure = 0

    def read(self) -> dict[int, list[int]]:
        """Digests by block. A last line that a full disk or a power cut has torn is removed.

        The first line holds the digest of the file's structure, as it was made: see :func:`check_static`.
        """
        os.lseek(self.fd, 0, os.SEEK_SET)
        with os.fdopen(os.dup(self.fd), "rb") as file:
            text = file.read()
        done, good = {}, 0
        for line in text.splitlines(keepends=True):
            try:
                entry = json.loads(line)
                if not good:
                    self.structure = int(entry["structure"], 16)
                    good = len(line)
                    continue
                done[int(entry["block"])] = [int(x, 16) for x in entry["xxh3"]]
            except (ValueError, KeyError, TypeError):
                break
            if not line.endswith(b"\n"):
                break
            good += len(line)
        os.ftruncate(self.fd, good)
        return done

    def append(self, block: int, digests: Sequence[int]) -> None:
        """Note a finished block, and bring the note to the disk."""
        self._write({"block": block, "xxh3": [f"{x:016x}" for x in digests]})

    def _write(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry) + "\n"
        if os.write(self.fd, line.encode()) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self.fd)

    def clear(self, structure: int) -> None:
        """Forget every block; begin with the digest of the file's structure."""
        os.ftruncate(self.fd, 0)
        self._write({"structure": f"{structure:016x}"})


def sync(fd: int) -> None:
    """Bring the data of a file to the disk."""
    getattr(os, "fdatasync", os.fsync)(fd)


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
