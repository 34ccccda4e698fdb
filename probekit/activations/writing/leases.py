"""Who works on which shard: lease files in a folder that several processes, also on several machines, share.

A lease is a hint, the name of the finished file is the truth: two workers on one shard waste time, and harm nothing.
A lease appears complete, by a hard link to a file that its holder has written and keeps open. The holder counts in that
file, so it cannot revive a lease that was taken away. Others watch: a lease whose bytes have not changed for
``patience`` seconds of *their* clock is stale. No two machines' clocks are compared. On the holder's own machine, a
lock that the system releases tells at once that the holder is dead.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from probekit.activations.manifest import shard_name
from probekit.errors import CacheError
from probekit.files import held, lock, machine, open_to_write, parse_json, remove

BEATS = 6
"""Times that a holder counts within the patience of the others."""
_FIRST = b'{"lease": "'
_BEGUN = r"(\.partial|\.journal|\.new|\.zstd)*"


@dataclass
class Leases:
    """The leases of one worker in a folder.

    Attributes
    ----------
    folder : Path
        The folder of the shards.
    patience : float
        Seconds after which a lease that has not changed is taken away.
    token : str
        A name that no other worker has.
    """

    folder: Path
    patience: float
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    _seen: dict[Path, tuple[bytes, float]] = field(default_factory=dict)

    def path(self, number: int) -> Path:
        """The lease of a shard."""
        return self.folder / f".lease-{number:05d}"

    @contextmanager
    def claim(self, number: int) -> Iterator[bool]:
        """Whether the shard is this worker's during the block; a stale lease is taken away first.

        Raises
        ------
        CacheError
            If something else than a lease is in its place.
        """
        lease = self.path(number)
        if os.path.lexists(lease) and not is_of_worker(lease) and os.path.lexists(lease):
            raise CacheError(
                f"{lease} is not a lease of probekit, and is not replaced; remove it, or choose another --out."
            )
        if lease.exists() and not (self._stale(lease) and self._take_away(number, self._seen[lease][0])):
            yield False
            return
        own = self.folder / f".own-{number:05d}.{self.token}"
        with lock(own, CacheError(f"{own} is in use."), ours=_is_lease):
            try:
                fd = open_to_write(own, os.O_RDWR)  # the lock's own descriptor only appends
            except FileNotFoundError:  # all is finished, and another worker has tidied up
                yield False
                return
            try:
                mine = False
                try:
                    _count(fd, self.token, number, 0)
                    with suppress(FileNotFoundError):  # as above
                        mine = linked(own, lease)
                finally:
                    own.unlink(missing_ok=True)
                if not mine:
                    yield False
                    return
                with _counting(fd, self.token, number, self.patience / BEATS):
                    try:
                        yield True
                    finally:
                        if self.holds(number):
                            self._take_away(number, None)
            finally:
                os.close(fd)

    def holds(self, number: int) -> bool:
        """Whether the lease of a shard is this worker's, as far as its name says."""
        with suppress(FileNotFoundError):
            return _token_of(self.path(number).read_bytes()) == self.token
        return False

    def _stale(self, lease: Path) -> bool:
        """Whether the holder of a lease is dead, as far as can be told from here."""
        try:
            text = lease.read_bytes()  # opened anew: NFS asks the server
        except FileNotFoundError:
            self._seen[lease] = b"", 0.0
            return False
        if self._seen.get(lease, (None, 0.0))[0] != text:
            self._seen[lease] = text, monotonic()
        if _machine_of(text) == machine():
            with held(lease) as alive:
                return not alive
        return monotonic() - self._seen[lease][1] > self.patience

    def _take_away(self, number: int, stale: bytes | None) -> bool:
        """Remove a lease if its bytes are still ``stale`` (None: if it is this worker's); says whether it is gone.

        With a stale one goes what its holder had begun.
        """
        lease = self.path(number)
        private = lease.with_name(f".taken{lease.name}.{secrets.token_hex(8)}")
        try:
            lease.rename(private)
            text = private.read_bytes()
        except FileNotFoundError:  # gone, or all is finished, and another worker has tidied up
            return True
        good = _token_of(text) == self.token if stale is None else text == stale
        if good and stale is not None:
            for left in unfinished(self.folder, number, _token_of(text)):
                remove(left)
        if not good:  # it lives after all, and goes back, unless another has claimed the shard meanwhile
            with suppress(FileExistsError, FileNotFoundError):
                os.link(private, lease)
        private.unlink(missing_ok=True)
        return good


def unfinished(folder: Path, number: int, token: str) -> list[Path]:
    """What a worker, whose lease was read, has begun of a shard."""
    names = re.escape(private_name(number, token)) + _BEGUN
    return [path for path in sorted(folder.iterdir()) if re.fullmatch(names, path.name) and _begins(path, _SHARD)]


def tidy(folder: Path) -> None:
    """Remove what workers have begun in a folder, then their leases: all that they leave when they are killed."""
    found = [path for path in sorted(folder.iterdir()) if is_of_worker(path)]
    for path in sorted(found, key=lambda path: (_LEASE.fullmatch(path.name) is not None, ".journal" in path.name)):
        path.unlink(missing_ok=True)  # what proves that others are a worker's comes last


_LEASE = re.compile(r"\.(lease-\d{5,}|(own|taken\.lease)-\d{5,}\.[0-9a-f]{16})")
_PRIVATE = re.compile(rf"(\.shard-\d{{5,}}\.h5\.([0-9a-f]{{16}})){_BEGUN}")
_JOURNAL = b'{"structure": "'
_SHARD = (_JOURNAL, b"\x89HDF\r\n\x1a\n", bytes(8))
"""How what workers begin of a shard begins: a journal, HDF5, and HDF5 whose beginning is not written yet."""


def of_workers(name: str) -> bool:
    """Whether a file with this name is a lease, or a shard that a worker has begun."""
    return (_LEASE.fullmatch(name) or _PRIVATE.fullmatch(name)) is not None


def is_of_worker(path: Path) -> bool:
    """Whether a worker wrote a file; its name is not proof.

    A lease says so itself. What was begun of a shard is a worker's if the shard's journal, or a lease with the token of
    its name, is beside it.
    """
    if _LEASE.fullmatch(path.name):
        return _begins(path, (_FIRST,))
    found = _PRIVATE.fullmatch(path.name)
    if found is None or not _begins(path, _SHARD):
        return False
    journal = path.with_name(f"{found[1]}.journal")
    with suppress(FileNotFoundError):
        if journal.stat().st_size and _begins(journal, (_JOURNAL,)):
            return True
    return found[2] in _tokens(path.parent)


def _tokens(folder: Path) -> Iterator[str]:
    """The tokens of the leases in a folder."""
    for lease in folder.iterdir():
        if _LEASE.fullmatch(lease.name) and _begins(lease, (_FIRST,)):
            with suppress(OSError):  # gone meanwhile
                yield _token_of(lease.read_bytes())
                yield lease.suffix[1:]  # of one that was cut off


def _begins(path: Path, starts: tuple[bytes, ...]) -> bool:
    """Whether a regular file begins in one of these ways, or was cut off while it did."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        with path.open("rb") as file:
            start = file.read(16)
    except OSError:  # gone meanwhile, or not for us to see
        return False
    return any(start.startswith(one) or one.startswith(start) for one in starts)


def private_name(number: int, token: str) -> str:
    """The name under which a worker writes a shard."""
    return f".{shard_name(number)}.{token}"


def linked(own: Path, name: Path) -> bool:
    """Give a complete file its shared name; False if another had it first.

    Raises
    ------
    CacheError
        If the file system has no hard links.
    """
    try:
        os.link(own, name)
    except FileExistsError:
        return own.stat().st_nlink == 2  # made after all; the answer was lost
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise CacheError(
                f"cannot write shards to {name.parent}: its file system has no hard links (SMB has none), by which "
                "workers share the work. Choose an --out on a local disk, NFS or a parallel file system, and copy the "
                "finished folder."
            ) from error
        raise
    return True


@contextmanager
def _counting(fd: int, token: str, number: int, every: float) -> Iterator[None]:
    """Count in the open file of a lease during the block."""
    done = threading.Event()

    def count() -> None:
        beat = 0
        while not done.wait(every):
            beat += 1
            with suppress(OSError):  # a full disk; others may take the lease, and the first finished file counts
                _count(fd, token, number, beat)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _count(fd: int, token: str, number: int, beat: int) -> None:
    text = {"lease": token, "shard": number, "machine": machine(), "beat": f"{beat:012d}"}
    os.pwrite(fd, json.dumps(text).encode() + b"\n", 0)
    os.fsync(fd)


def _is_lease(start: bytes) -> bool:
    return start.startswith(_FIRST) or _FIRST.startswith(start)


def _read(text: bytes) -> dict[str, Any]:
    try:
        return dict(parse_json(text))
    except (ValueError, TypeError):
        return {}


def _token_of(text: bytes) -> str:
    return str(_read(text).get("lease"))


def _machine_of(text: bytes) -> str:
    return str(_read(text).get("machine") or "unknown")
