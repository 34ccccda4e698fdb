"""Files: default paths, atomic writing, locks, digests, and protection of other files."""

from __future__ import annotations

import errno
import gzip
import itertools
import json
import os
import re
import shutil
import signal
import stat
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import time
from typing import Any

from probekit.errors import DataError, UsageError

DATA_CACHE = Path("data_cache")
FIGURES = Path("figures")
"""Default folders for caches and figures, below the working directory."""
LONGEST = 120
"""Letters of the names of tasks in the default names of files."""


# names and texts ------------------------------------------------------------------------------------------------------


def slug(text: str) -> str:
    """``text`` as part of a file name: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.") or "unnamed"


def is_path(text: str) -> bool:
    """Whether a file or folder has this name; False for a text that cannot be a name, such as one that is too long."""
    try:
        return Path(text).exists()
    except OSError:
        return False


def cache_path(task: str, split: str, model: str, spec_id: str, root: Path = DATA_CACHE) -> Path:
    """The default path of a cache: task, split, model and the first eight digits of its spec_id."""
    return root / f"{slug(task)[:LONGEST]}.{slug(split)}.{slug(model)}.{spec_id[:8]}.h5"


def in_words(size: float) -> str:
    """A number of bytes with its unit: 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def read_lines(path: Path, *, fallback: str | None = None, ends: bool = False) -> list[str]:
    """The lines of a UTF-8 text file, without line ends; the final newline may be missing.

    Parameters
    ----------
    path
        The file; a byte-order mark is skipped.
    fallback
        Encoding to use if the file is not UTF-8 (old files with single Latin-1 bytes).
    ends
        Whether the lines keep their ends.

    Raises
    ------
    DataError
        If the file is missing, is not UTF-8 (line and byte offset) or contains a NUL.
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
        raise DataError("contains a NUL character. Is the file UTF-16, or damaged?", file=path, line=line)
    lines = text.split("\n")
    if ends:
        lines[:-1] = [f"{line}\n" for line in lines[:-1]]
    if not lines[-1]:
        lines.pop()
    if ends:
        return lines
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def stream_lines(path: Path) -> Iterator[str]:
    """The lines of :func:`read_lines`, read one by one; a file whose name ends in ``.gz`` is unpacked.

    Raises
    ------
    DataError
        As :func:`read_lines`, when the line in question is read.
    """
    packed, offset, number = path.suffix == ".gz", 0, 0
    try:
        if not packed:
            check_text(path)
        with gzip.open(path) if packed else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if b"\0" in line:
                    message = "contains a NUL character. Is the file UTF-16, or damaged?"
                    raise DataError(message, file=path, line=number)
                raw = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if raw:
                    yield raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
                offset += len(line)
    except UnicodeDecodeError as error:
        offset += error.start + len(line) - len(raw)
        message = f"byte 0x{error.object[error.start]:02x} at offset {offset} is not UTF-8. Save the file as UTF-8."
        raise DataError(message, file=path, line=number) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read: {getattr(error, 'strerror', None) or error}.", file=path) from error


NO_TEXT = {
    b"PK\x03\x04": "is a ZIP file. Unpack it, and write the name of the unpacked file in your task file, if any.",
    b"\xd0\xcf\x11\xe0": "is an old Excel or Word file. Save the sheet as CSV (UTF-8), and give that.",
    b"\x1f\x8b": "is compressed with gzip. Unpack it (gunzip FILE), and write the new name in your task file, if any.",
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
            if path.suffix.lower() in (".xlsx", ".xlsm", ".xls", ".ods"):
                what = "is a spreadsheet. Save the sheet as CSV (UTF-8), and give the CSV file."
            raise DataError(what.replace("FILE", path.name), file=path)


def parse_json(text: str | bytes, *, unique: bool = False) -> Any:
    """The value of a JSON text; raises ValueError if it is not valid or nested too deeply.

    Parameters
    ----------
    text
        The text.
    unique
        Whether a key that an object has twice is an error; otherwise the last value counts.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique if unique else None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in [k for k, _ in pairs[:i]])
        raise ValueError(f"the key {twice!r} occurs twice in an object")
    return found


def read_json(path: str | Path) -> Any:
    """The value of a JSON file; raises OSError or ValueError if it cannot be read."""
    return parse_json(Path(path).read_text(encoding="utf-8"))


# appearing whole ------------------------------------------------------------------------------------------------------


@contextmanager
def whole(path: str | Path, kind: FileKind) -> Iterator[Path]:
    """A temporary path to write a file to, which replaces ``path`` at the end of the block.

    Readers of ``path`` see either the old file or the complete new one, even if the block fails or the process is
    killed.

    Parameters
    ----------
    path
        The final path; parent folders are created.
    kind
        The kind of file. Only a file of this kind that probekit wrote is replaced.

    Yields
    ------
    Path
        A hidden path in the same folder, where no file exists yet. It is removed if the block fails; what a killed
        process left there goes when the file is next written.

    Raises
    ------
    UsageError
        If another file is at ``path``, before the block or at its end.

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
    """Write a text (UTF-8) or bytes to ``path`` atomically; sealed if it contains ``MARK``."""
    with whole(path, kind) as new:
        new.write_bytes(seal(content if isinstance(content, bytes) else content.encode()))
    return Path(path)


def check_folder(folder: Path) -> None:
    """Create a folder; raises UsageError, before the computation, if no file can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"cannot write to {folder} ({error.strerror}); choose another folder.") from None


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``path`` at the end of the block, or is removed if the block fails.

    Files that killed processes left behind are removed.

    Raises
    ------
    UsageError
        If ``path`` exists.
    """
    remove_unfinished(path.parent, path.name.__eq__)
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists; choose another folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft(path) as new:
        yield new
        new.replace(path)


@contextmanager
def draft(path: Path) -> Iterator[Path]:
    """A new folder :func:`beside` a path, to fill; whatever is there at the end is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with beside(path) as new:
        new.mkdir()
        yield new


DRAFT = ".draft"
"""What the final name behind the note of a draft ends in."""


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A hidden path in the folder of ``path``, where nothing is yet; whatever is there at the end is removed.

    A note beside it, written before, proves that the draft is probekit's if the process is killed: it goes when
    another is made of the same path, see :func:`remove_unfinished`.
    """
    remove_unfinished(path.parent, path.name.__eq__)
    new, note = next(pair for pair in _hidden(path) if not any(map(os.path.lexists, pair)))
    try:
        _write_at_once(note, _note(new.name))
        yield new
    except OSError as error:  # of the final name, which the user knows; and a full disk names no file
        if type(error) is OSError and not error.filename and error.errno in FULL:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        remove(new)
        remove(note)


def _write_at_once(path: Path, data: bytes) -> None:
    """A new small file that, where the system can, is never seen empty or in part."""
    with suppress(OSError, AttributeError), ExitStack() as opened:
        opened.callback(os.close, folder := os.open(path.parent, os.O_RDONLY))
        opened.callback(os.close, new := os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666))
        os.write(new, data)
        os.link(f"/proc/self/fd/{new}", path.name, dst_dir_fd=folder)  # with a folder, the link itself is followed
        return
    path.write_bytes(data)


def _hidden(path: Path) -> Iterator[tuple[Path, Path]]:
    """Names of drafts of this thread for a path, each with the name of its note."""
    for k in itertools.count():
        ending = f"{os.getpid()}-{threading.get_ident()}{f'{k:03d}' if k else ''}"
        yield path.with_name(f".{path.name}.{ending}"), path.with_name(f".{path.name}{DRAFT}.{ending}")


def _note(name: str, where: str | None = None) -> bytes:
    """What the note of a draft of this name says, written on this machine or ``where``."""
    content = {"draft": name, "machine": machine() if where is None else where, "probekit": MARK}
    return seal(json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogateescape"))


def draft_of(note: Path, *, here: bool = False) -> Path | None:
    """The draft that a note is of; None for a file that is no such note, or, with ``here``, not of this machine."""
    found = writer_of(note.name)
    if found is None or not found[0].endswith(DRAFT):
        return None
    name = f".{found[0].removesuffix(DRAFT)}{note.name.removeprefix(f'.{found[0]}')}"
    with suppress(OSError, ValueError, KeyError, TypeError):
        if stat.S_ISREG(note.lstat().st_mode) and note.stat().st_size < 1 << 12:
            text = note.read_bytes()
            if text and _note(name).startswith(text):  # also if its process was killed while it wrote it
                return note.with_name(name)
            where = str(json.loads(text.decode("utf-8", "surrogateescape"))["machine"])
            if text == _note(name, where) and not here:
                return note.with_name(name)
    return None


def is_draft(path: Path) -> bool:
    """Whether a file or folder is a draft, as the note beside it says."""
    if (found := writer_of(path.name)) is None:
        return False
    ending = path.name.removeprefix(f".{found[0]}")
    return draft_of(path.with_name(f".{found[0]}{DRAFT}{ending}")) == path


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Why nothing more can be written: the disk, the quota or the file is full."""


def writer_of(name: str) -> tuple[str, int] | None:
    """The final name behind a hidden name, and the id of its process; None for names that :func:`beside` never gives.

    A name is not proof: check the contents, too, before you delete a file.
    """
    found = re.fullmatch(r"\.(.+)\.(\d+)-\d{9,}", name)  # the last number is a thread id
    return (found[1], int(found[2])) if found else None


def remove_unfinished(folder: Path, ours: Callable[[str], bool], *, held: bool = False) -> None:
    """Remove what killed processes left unfinished in a folder: drafts whose note is beside them, of this machine.

    Parameters
    ----------
    folder
        The folder, which may be missing.
    ours
        Whether to remove drafts with this final name.
    held
        Whether the caller holds the lock of the folder, which is probekit's: then a running process with the same id
        is an unrelated one, and what other machines left is unfinished.
    """
    for left in folder.iterdir() if folder.is_dir() else ():
        writer = writer_of(left.name)
        if not writer or not ours(writer[0].removesuffix(DRAFT)) or (is_running(writer[1]) and not held):
            continue
        if (unfinished := draft_of(left, here=not held)) is not None:
            if not unfinished.is_symlink():
                remove(unfinished)
            remove(left)


def remove(path: Path) -> None:
    """Delete a file, a link or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# files of probekit
# ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file that probekit writes, and replaces only if probekit wrote it.

    Attributes
    ----------
    what
        Description with article: ``"an evidence card"``.
    ours
        Whether probekit wrote the file at a path; False for one that cannot be read.
    instead
        What to do if it did not.
    """

    what: str
    ours: Callable[[Path], bool]
    instead: str = "choose another --out"

    def check(self, path: Path) -> None:
        """Raise UsageError if ``path`` exists and probekit did not write it, or it is a link or a folder."""
        if path.is_symlink():
            raise UsageError(f"{path} is a link, which probekit neither follows nor replaces; {self.instead}.")
        if path.is_dir():
            raise UsageError(f"{path} is a folder, not {self.what}; {self.instead}.")
        if path.exists():
            with suppress(OSError, ValueError, TypeError, AttributeError, DataError):
                found = path.stat()
                if stat.S_ISREG(found.st_mode) and (not found.st_size or self.ours(path)):  # a pipe has no size, either
                    return
            raise UsageError(f"{path} exists and is not {self.what}, so probekit does not replace it; {self.instead}.")


_MADE = b"made by probekit, xxh3 "
MARK = f"{_MADE.decode()}{0:032x}"
"""Placeholder that :func:`seal` turns into the mark of a file; it is in a place where the format allows comments."""
_SEAL = re.compile(re.escape(_MADE) + rb"([0-9a-f]{32})")
_AFTER = 4
"""Bytes after the mark that its digest leaves out: in a PNG they are a checksum of the mark."""


def seal(data: bytes) -> bytes:
    """``data`` with ``MARK`` replaced by the digest of all other bytes; unchanged if it contains no ``MARK``."""
    head, mark, rest = data.partition(MARK.encode())
    return head + _MADE + _digest_around(head, rest) + rest if mark else data


def is_sealed(path: Path) -> bool:
    """Whether a file is as probekit wrote it: it contains the digest of its other bytes."""
    return is_sealed_data(path.read_bytes())


def is_sealed_data(data: bytes) -> bool:
    """Whether bytes contain the digest of the others, as :func:`seal` makes them."""
    found = itertools.islice(_SEAL.finditer(data), 16)  # a page also contains the marks of its figures
    return any(match[1] == _digest_around(data[: match.start()], data[match.end() :]) for match in found)


def _digest_around(head: bytes, rest: bytes) -> bytes:
    import xxhash

    state = xxhash.xxh3_128(head)
    state.update(rest[_AFTER:])
    return state.hexdigest().encode()


def without_mark(text: str) -> str:
    """A text without the line with its mark."""
    return "".join(line for line in text.splitlines(keepends=True) if not _SEAL.search(line.encode()))


# locks -----------------------------------------------------------------------------------------------------


def open_to_write(path: Path, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> int:
    """A descriptor for writing a file; raises UsageError for a pipe, and for a link, which may lead to another's file.

    Parameters
    ----------
    path
        The file; a link in its last part is not followed, links in parent folders are.
    flags
        Flags for ``os.open``; by default, creates or truncates the file.
    """
    try:
        fd = os.open(path, (flags & ~os.O_TRUNC) | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise UsageError(f"{path} is a link, and probekit does not write through links; remove it.") from None
        if error.errno == errno.ENXIO:
            raise UsageError(f"{path} is not a regular file; remove it.") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UsageError(f"{path} is not a regular file; remove it.")
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
    """Hold an exclusive lock on the file ``path`` during the block.

    The system releases the lock when its holder dies for any reason. A child that inherits the descriptor holds it,
    too.

    Parameters
    ----------
    path
        The file; created if it is missing, otherwise unchanged, and not removed.
    busy
        Raised if another process holds the lock.
    wait
        If given, called once instead, before waiting for the other process.
    ours
        Whether a file that begins with these bytes (at most 64) is probekit's; by default only an empty file.

    Yields
    ------
    int
        The open descriptor, to read and to append to.

    Raises
    ------
    UsageError
        If the file is a link, or not probekit's.
    """
    from filelock import lock_descriptor

    waited = False
    while True:
        fd = open_to_write(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            if not lock_descriptor(fd, blocking=False):
                if wait is None:
                    raise busy
                if not waited:
                    wait()
                    waited = True
                lock_descriptor(fd)
            if _is_at(fd, path):
                if not ours(os.pread(fd, 64, 0)):
                    raise UsageError(
                        f"{path} is needed as a lock file, but probekit did not write it; choose another --out."
                    )
                yield fd
                return
        finally:
            os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    """Whether an open file still has its name: the previous holder may have removed the one we waited for."""
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Whether another process locks the file ``path``; none can begin to during the block. Nothing is changed."""
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(
                fd, fcntl.LOCK_SH | fcntl.LOCK_NB
            )  # shared, which filelock does not offer: several processes may check at once
            taken = False
        except BlockingIOError:
            taken = True
        yield taken
    finally:
        os.close(fd)


def signal_when_closed(fd: int) -> None:
    """Let the system end this process when the other end of a pipe is closed, even during a long call into C."""
    import fcntl

    if hasattr(os, "O_ASYNC") and hasattr(fcntl, "F_SETOWN"):
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def is_running(pid: int) -> bool:
    """Whether a process with this id runs on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def machine() -> str:
    """A name of this machine since it was started; "" if the system gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


# digests ----------------------------------------------------------------------------------------------


def digest(files: Iterable[Path], root: Path | None = None) -> str:
    """xxh3 digest (32 hex digits) of names, sizes and bytes of files.

    Files are read once per process, as long as their sizes, times and inodes do not change.

    Parameters
    ----------
    files
        The files, in this order.
    root
        Folder to which their names are relative; without it, the last part of each path is its name.
    """
    stats = [(file, file.stat()) for file in files]
    states = tuple(
        (file.name if root is None else str(file.relative_to(root)), file, s.st_size, s.st_mtime_ns, s.st_ino)
        for file, s in stats
    )
    settled = max((s.st_mtime for _, s in stats), default=0) < time() - SETTLED
    return _digest(states) if settled else _digest.__wrapped__(states)


SETTLED = 2.0
"""Seconds after which another change gives a file a different time, on any file system."""


@lru_cache(maxsize=1024)
def _digest(states: tuple[tuple[str, Path, int, int, int], ...]) -> str:
    import xxhash

    state = xxhash.xxh3_128()
    for name, file, size, *_ in states:
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
