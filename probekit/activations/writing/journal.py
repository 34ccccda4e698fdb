"""The lock of a cache, the journal of its finished blocks, and readable errors of the file system."""

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


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn system errors for ``path`` into a CacheError that says what to do."""
    try:
        yield
    except OSError as error:
        reason = {
            errno.ENOSPC: "the disk is full. What is finished is kept; free some space in "
            f"{path.parent} and run the same command again to continue",
            errno.EDQUOT: "your disk quota is used up. What is finished is kept; free some space and run the same "
            "command again",
            errno.EFBIG: "the file is larger than the system allows. Use --limit, fewer poolings or --store float16",
            errno.EACCES: f"no permission to write in {path.parent}. Choose another --out",
            errno.EROFS: f"{path.parent} is read-only. Choose another --out",
            errno.EEXIST: f"{path.parent} is not a folder. Choose another --out",
            errno.ENOTDIR: f"{path.parent} is not a folder. Choose another --out",
        }.get(error.errno or 0)
        if reason is None:
            raise
        raise CacheError(f"cannot write {path}: {reason}.") from error


def partial_path(out: Path) -> Path:
    """The unfinished file of the cache ``out``."""
    return out.with_name(out.name + ".partial")


def journal_path(out: Path) -> Path:
    """The journal of the finished blocks of ``out``, which is also its lock."""
    return out.with_name(out.name + ".journal")


@contextmanager
def locked(out: Path, *, wait: Callable[[], None] | None) -> Iterator[int]:
    """Hold the lock for writing ``out``; yields the descriptor of its journal.

    The system releases the lock when its holder dies. Children that inherit the descriptor hold it, too.

    Parameters
    ----------
    wait : Callable[[], None] | None
        Called once before waiting if another process holds the lock; None raises CacheBusy instead.
    """
    busy = CacheBusy(f"another process is writing {out}; wait for it, or choose another --out.")
    with ExitStack() as stack:
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            fd = stack.enter_context(lock(journal_path(out), busy, wait=wait, ours=_is_journal))
        yield fd


_FIRST = b'{"structure": "'


def _is_journal(start: bytes) -> bool:
    """Whether a file that begins with ``start`` is a journal, even if its first line is incomplete."""
    return start.startswith(_FIRST) or _FIRST.startswith(start)


class Journal:
    """The finished blocks, one line of JSON per block: its number and the digest of each stream's part."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.structure = 0

    def read(self) -> dict[int, list[int]]:
        """Digests by block; removes a last line that is incomplete after a full disk or a power cut.

        The first line holds the digest of the file's structure at its creation; see :func:`check_static`.
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
        """Append a finished block, and sync the journal to the disk."""
        self._write({"block": block, "xxh3": [f"{x:016x}" for x in digests]})

    def _write(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry) + "\n"
        if os.write(self.fd, line.encode()) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self.fd)

    def clear(self, structure: int) -> None:
        """Remove every block; write the digest of the file's structure."""
        os.ftruncate(self.fd, 0)
        self._write({"structure": f"{structure:016x}"})


def sync(fd: int) -> None:
    """Sync the data of a file to the disk."""
    getattr(os, "fdatasync", os.fsync)(fd)


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
