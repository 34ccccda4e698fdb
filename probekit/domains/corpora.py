"""Text to count, read as a stream: files, folders, gzip, JSON lines, a data set of the hub, or any strings.

Text files are UTF-8 (a byte-order mark is skipped). Documents are the units of resampling, so their definition affects
the width of intervals: a document should be a text written as a whole. The default is a paragraph, which ends at a
blank line: the lines of a wrapped paragraph are not independent, and intervals over them would be too narrow. For files
with one sentence or text per line, use ``unit="line"``.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any, NoReturn

import xxhash

from probekit.addresses import check_data_card
from probekit.errors import DataError, UsageError, reading
from probekit.files import digest, parse_json

CHUNK = 1 << 18
"""Bytes that are read and counted at a time."""

LONGEST = 1 << 26
"""A file with more bytes without white space (for JSON lines: in a line) is not treated as text."""

JSON_LINES = (".jsonl", ".ndjson")

HUB = "hub:"
BY_NAME = {"digested": "by name"}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of text that consists of whole words.

    Attributes
    ----------
    source : str
        The file, relative to the corpus, or another name of the source; documents are numbered within it.
    data : bytes
        Valid UTF-8 without NUL; if ``marked``, each document is followed by a NUL.
    read : int, default 0
        Bytes of the corpus's files read so far; for other text, the bytes of its characters.
    """

    source: str
    data: bytes
    marked: bool
    read: int = 0


@dataclass(frozen=True, slots=True)
class Corpus:
    """Text to be read once, in chunks; ``size`` is that of its files in bytes, 0 if unknown."""

    chunks: Iterator[Chunk]
    size: int = 0


def read_files(path: str | Path, *, field: str = "text") -> Corpus:
    """Read a file or pipe, the files of a pattern (``wiki/*.raw``), or all visible files below a folder, in the order
    of their paths.

    Files ending in .gz are unpacked; in .jsonl and .ndjson files, ``field`` of each line is a document. Links to files
    are followed, links to folders within a folder are not.

    Raises
    ------
    DataError
        Immediately or during reading: for a missing path, a folder without files or with broken links or special files,
        bytes that are not UTF-8 or not gzip, and a line that is not a JSON object with a text in ``field``. The message
        gives the file and the byte or line.
    """
    top, files = corpus_files(path)
    sizes = [f.stat().st_size for f in files]

    def chunks() -> Iterator[Chunk]:
        done = 0
        for file, size in zip(files, sizes, strict=True):
            source = file.relative_to(top).as_posix() if file.is_file() else "pipe"  # its name differs in each run
            if Path(file.name.removesuffix(".gz")).suffix in JSON_LINES:
                yield from _marked(_json_lines(file, field), source, done)
            else:
                for data, at in _blocks(file, b"\n \t"):
                    yield Chunk(source, data, marked=False, read=done + at)
            done += size

    return Corpus(chunks(), sum(sizes))


def corpus_files(path: str | Path) -> tuple[Path, list[Path]]:
    """The folder to which names are relative, and the files that :func:`read_files` reads; raises DataError."""
    path = Path(path).expanduser()
    if path.is_dir():
        return path, _files_of(path)
    if path.exists():
        return path.parent, [path]
    if has_magic(str(path)) and (found := sorted(Path(name) for name in glob(str(path)) if Path(name).is_file())):  # noqa: PTH207
        return Path(os.path.commonpath([f.parent for f in found])), found
    link = "is a broken link." if path.is_symlink() else "there is no such file or folder."
    raise DataError(link, file=path)


def _files_of(folder: Path) -> list[Path]:
    """The files below a folder that are not hidden, in the order of their paths."""

    def fail(error: OSError) -> NoReturn:
        raise DataError(f"cannot be read: {error.strerror or error}.", file=error.filename) from error

    files = [Path(top) / name for top, _, names in os.walk(folder, onerror=fail) for name in names]
    files = sorted(f for f in files if not any(part.startswith(".") for part in f.relative_to(folder).parts))
    if not files:
        raise DataError("contains no visible file; give a folder of text files.", file=folder)
    for file in files:
        if not file.is_file():
            problem = "is not a regular file" if file.exists() else "is a broken link"
            raise DataError(f"{problem}; remove it from the folder.", file=file)
    return files


def read_texts(texts: Iterable[str], source: str = "texts") -> Corpus:
    """Strings, each a document, such as the sentences of a task. Raises UsageError during reading for other types."""
    return Corpus(_marked(((text, None) for text in texts), source))


@dataclass(frozen=True, slots=True)
class HubName:
    """A data set on the Hugging Face hub, or a local folder of data files, given as ``hub:REPO@SPLIT`` or
    ``hub:REPO:CONFIG@SPLIT``."""

    repository: str
    split: str
    config: str | None = None

    @classmethod
    def parse(cls, place: str) -> HubName | None:
        """Parse a hub name; None for other places, UsageError if the split is missing."""
        if not place.startswith(HUB):
            return None
        name, _, split = place.removeprefix(HUB).rpartition("@")
        if not name or not split:
            raise UsageError(f"{place!r} lacks a split; write hub:REPO@SPLIT or hub:REPO:CONFIG@SPLIT.")
        repository, _, config = name.partition(":")
        return cls(repository, split, config or None)

    @property
    def revision(self) -> str | None:
        """The current commit on the hub, or without a network the last one fetched; None if unknown."""
        import huggingface_hub as hub
        from huggingface_hub.constants import HF_HUB_CACHE

        if Path(self.repository).is_dir():
            return None
        try:
            return hub.HfApi().dataset_info(self.repository, timeout=10).sha
        except Exception:  # offline, private, unknown: the hub raises various errors
            ref = (
                Path(HF_HUB_CACHE)
                / hub.file_download.repo_folder_name(repo_id=self.repository, repo_type="dataset")
                / "refs"
                / "main"
            )
            return ref.read_text(encoding="utf-8").strip() if ref.is_file() else None


def read_hub(
    name: str, split: str, *, config: str | None = None, field: str = "text", revision: str | None = None
) -> Corpus:
    """Stream a data set from the Hugging Face hub or a local folder of data files; a row's ``field`` is a document.

    No code of the data set is run. ``revision`` is a commit on the hub (default: the newest).

    Raises
    ------
    DataError
        If the data set cannot be loaded or lacks the field.
    """
    import datasets

    where = f"{name}, {config}" if config else name
    check_data_card(name, revision)
    try:
        rows = datasets.load_dataset(name, config, split=split, streaming=True, revision=revision)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"the {split} split could not be loaded from the Hugging Face hub ({where}): {reason[:300].rstrip('.')}. "
            "Without a network, give a file or a folder."
        ) from error

    def texts() -> Iterator[tuple[str, None]]:
        file = f"{where}, {split}"
        try:
            for number, row in enumerate(rows, 1):
                yield _text(row, field, file=file, line=number), None
        except OSError:  # such as a connection that ended
            raise
        except MemoryError as error:
            raise DataError("a row takes more than the memory that there is.", file=file) from error
        except Exception:
            with reading(file, "a data set"):
                raise

    return Corpus(_marked(texts(), f"{name}/{split}"))


def corpus_digest(place: str | Path) -> tuple[str, dict[str, str]]:
    """The digest of a corpus's content, and how it was obtained.

    Parameters
    ----------
    place : path
        A file, a folder, a pattern, or ``hub:REPO@SPLIT``.

    Returns
    -------
    digest : str
        xxh3 of the names and bytes of the files; for the hub, of the revision (a commit), config and split.
    about : dict
        ``revision`` for the hub; ``{"digested": "by name"}`` if the content is not available, as for a pipe, or for the
        hub without a network: then the digest is the name.

    Raises
    ------
    DataError
        For a missing path.
    """
    name = HubName.parse(str(place))
    if name is not None and (revision := name.revision):
        identity = json.dumps([name.repository, revision, name.config, name.split])
        return xxhash.xxh3_128_hexdigest(identity.encode()), {"revision": revision}
    if name is not None and not Path(name.repository).is_dir():
        return str(place), dict(BY_NAME)
    top, found = corpus_files(place if name is None else name.repository)
    if not all(file.is_file() for file in found):
        return str(place), dict(BY_NAME)
    return digest(found, top), {}


def _marked(texts: Iterable[tuple[str, int | None]], source: str, before: int = 0) -> Iterator[Chunk]:
    """Gather documents, each with the bytes of its file read so far (if it comes from one), into chunks."""
    held: list[bytes] = []
    size = read = done = 0
    for number, (text, at) in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UsageError(f"{source}, document {number}: expected a string, got {text!r:.80}.")
        try:
            data = text.replace("\0", " ").encode()
        except UnicodeEncodeError as error:
            message = "contains half of a surrogate pair (\\ud800 to \\udfff), which is not a character."
            raise DataError(message, file=source, line=number) from error
        held += (data, b"\0")
        size, done = size + len(data) + 1, done + len(data)
        read = before + (done if at is None else at)
        if size >= CHUNK:
            yield Chunk(source, b"".join(held), marked=True, read=read)
            held, size = [], 0
    if held:
        yield Chunk(source, b"".join(held), marked=True, read=read)


def _json_lines(file: Path, field: str) -> Iterator[tuple[str, int]]:
    """The field of each line, and the number of bytes read."""
    number = 0
    for data, at in _blocks(file, b"\n"):
        for line in data.removesuffix(b"\n").split(b"\n"):
            number += 1
            if not line.strip():
                continue
            try:
                record = parse_json(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"is not JSON: {error}.", file=file, line=number) from error
            yield _text(record, field, file=file, line=number), at


def _text(record: Any, field: str, **where: Any) -> str:
    if not isinstance(record, dict):
        raise DataError(f"expected a JSON object, found a {type(record).__name__}.", **where)
    if field not in record:
        names = ", ".join(map(repr, record)) or "none"
        raise DataError(f"there is no field {field!r}; the fields are {names}. Choose one with --field.", **where)
    if not isinstance(record[field], str):
        raise DataError(f"the field {field!r} must hold a text, not {record[field]!r:.60}.", **where)
    return record[field]


def _blocks(file: Path, ends: bytes) -> Iterator[tuple[bytes, int]]:
    """The text of a file in blocks that end with one of ``ends`` (if possible the first), and the bytes read so far.

    Only the last block may end differently.
    """
    packed = file.suffix == ".gz"
    try:
        with file.open("rb") as raw, gzip.GzipFile(fileobj=raw) if packed else raw as stream:
            pending, offset, seeks = b"", 0, raw.seekable()
            while block := stream.read(CHUNK):
                cut = block.rfind(ends[:1])
                if cut < 0:
                    cut = max(block.rfind(end) for end in ends)
                if cut < 0:
                    pending += block
                    if len(pending) > LONGEST:
                        missing = "line end" if len(ends) == 1 else "white space"
                        message = f"no {missing} in {LONGEST >> 20} MB from byte {offset} on. Is it text?"
                        raise DataError(message, file=file)
                    continue
                whole = pending + block[: cut + 1]
                yield _checked(whole, file, offset), raw.tell() if seeks else offset
                offset, pending = offset + len(whole), block[cut + 1 :]
            if pending:
                yield _checked(pending, file, offset), raw.tell() if seeks else offset
    except gzip.BadGzipFile as error:
        raise DataError(f"is not gzip, though its name ends in .gz ({error}).", file=file) from error
    except (EOFError, zlib.error) as error:
        raise DataError(f"the gzip data are cut short or damaged ({error}).", file=file) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}.", file=file) from error


def _checked(data: bytes, file: Path, offset: int) -> bytes:
    """Check that ``data`` is text; a byte-order mark at the beginning of the file is removed."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            bad = data[error.start]
            hint = " It looks like gzip: rename it to end in .gz." if data[:2] == b"\x1f\x8b" and not offset else ""
            message = f"byte 0x{bad:02x} at offset {offset + error.start} is not UTF-8. Save the file as UTF-8.{hint}"
            raise DataError(message, file=file) from error
    if (nul := data.find(b"\0")) >= 0:
        message = f"contains a NUL at offset {offset + nul}. Is the file UTF-16, or not a text?"
        raise DataError(message, file=file)
    return data[3:] if not offset and data.startswith(b"\xef\xbb\xbf") else data
