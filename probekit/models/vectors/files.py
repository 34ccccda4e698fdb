"""Published files of word vectors as a model folder, a part at a time: word2vec's, GloVe's and fastText's.

Which format a file has follows from its content. The table in the folder is mapped, never read whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from probekit.errors import DataError, ModelError
from probekit.files import new_folder
from probekit.models.vectors.fasttext import MAGIC, read_fasttext
from probekit.models.words import Splitting

MODEL_TYPE = "vectors"

_CHUNK = 1 << 14
"""Rows that are in memory at a time."""
_WIDEST = 1 << 16
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b]")
"""Characters that no text has, but nearly every binary number."""


@dataclass
class Source:
    """Vectors that are about to be written.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns of the table; the first rows are those of the words.
    rows : iterator
        Words, and float32 (k, columns), a part at a time; parts of further rows have no words.
    subwords : dict
        "least", "most" and "buckets" of the character n-grams of fastText; {} without.
    line : int, optional
        The line of the first vector; None in a binary file.
    """

    shape: tuple[int, int]
    rows: Iterator[tuple[list[str], np.ndarray]]
    subwords: dict[str, int] = field(default_factory=dict)
    line: int | None = None


def convert_vectors(file: str | Path, out: str | Path, *, splitting: Splitting | str = Splitting.TREEBANK) -> Path:
    """Write the model folder ``out``, which appears when it is complete.

    Parameters
    ----------
    file : path
        word2vec as text or binary, GloVe's text, or fastText as text (.vec) or binary (.bin, with its sub-words).
    out : path
        The folder.
    splitting : Splitting | str, default Splitting.TREEBANK
        How plain text is split into words.

    Raises
    ------
    DataError
        If the file is damaged, or a line is not valid; the message names file and line.
    UsageError
        If ``out`` exists.
    """
    path = Path(file)
    with path.open("rb") as stream:
        source = _source(stream, path)
        with new_folder(Path(out)) as folder, (folder / "vocab.txt").open("wb") as vocabulary:
            words = 0
            with (folder / "model.safetensors").open("wb") as table:
                table.write(_header(source.shape))
                found = 0
                for names, rows in source.rows:
                    _check(names, rows, found, source.line, path)
                    vocabulary.write("".join(f"{name}\n" for name in names).encode())
                    table.write(np.ascontiguousarray(rows, "<f4").data)
                    words, found = words + len(names), found + len(rows)
            if found != source.shape[0]:
                raise DataError(f"holds {found} vectors; {source.shape[0]} were expected. Is it truncated?", file=path)
            config = {
                "model_type": MODEL_TYPE,
                "vocab_size": words,
                "hidden_size": source.shape[1],
                "num_hidden_layers": 0,
                "subwords": source.subwords,
            }
            for name, content in (("config.json", config), ("tokenizer_config.json", {"words": Splitting(splitting)})):
                (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return Path(out)


def _check(names: list[str], rows: np.ndarray, before: int, line: int | None, path: Path) -> None:
    """Refuse words and numbers that no model has; ``before`` counts the rows before them."""

    def wrong(row: int, what: str) -> DataError:
        return DataError(f"the {what}", file=path, line=None if line is None else line + before + row)

    for row, name in enumerate(names):
        if _CONTROL.search(name):
            raise wrong(row, f"word in row {before + row + 1} ({name[:20]!r}) has a control character.")
    sizes = np.abs(rows)
    odd = ((sizes > 0) & (sizes < np.finfo(np.float32).tiny)) | ((sizes > 1e15) & (sizes < np.inf))
    if odd.sum() > 0.1 * np.count_nonzero(sizes):
        row = int(odd.any(1).argmax())
        raise wrong(row, f"vector in row {before + row + 1} has numbers such as {rows[odd][0]:.0e}. Is it big-endian?")
    if not np.isfinite(rows).all():
        row = int(np.argwhere(~np.isfinite(rows))[0, 0])
        raise wrong(row, f"vector in row {before + row + 1} is not finite.")


def mapped_table(folder: Path) -> np.ndarray:
    """The table of a model folder, float32 (rows, columns), mapped; raises ModelError if it is damaged."""
    path = folder / "model.safetensors"
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            about = json.loads(file.read(min(size, _WIDEST)))["words"]
        if about["dtype"] != "F32" or about["data_offsets"][0] != 0:
            raise ValueError("it is no table of float32")
        shape = int(about["shape"][0]), int(about["shape"][1])
        return np.memmap(path, "<f4", "r", 8 + size, shape)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelError(f"{path} cannot be read as a table of vectors ({error}); convert it again.") from error


def _header(shape: tuple[int, int]) -> bytes:
    about: dict[str, Any] = {
        "__metadata__": {"format": "pt"},
        "words": {"dtype": "F32", "shape": list(shape), "data_offsets": [0, 4 * shape[0] * shape[1]]},
    }
    text = json.dumps(about).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _source(stream: IO[bytes], path: Path) -> Source:
    """The vectors in a file, by its content."""
    head = stream.read(1 << 16)
    stream.seek(0)
    if head[:2] == b"\x1f\x8b" or head[:4] == b"PK\x03\x04":
        raise DataError("is packed; unpack it first.", file=path)
    if head[:4] == MAGIC:
        shape, rows, subwords = read_fasttext(stream, path, _CHUNK)
        return Source(shape, rows, subwords)
    first, _, second = head.partition(b"\n")
    sizes = first.split()
    if len(sizes) == 2 and all(part.isdigit() for part in sizes):
        count, width = int(sizes[0]), int(sizes[1])
        _check_sizes(count, width, path)
        stream.seek(len(first) + 1)
        if _is_binary(second):
            return Source((count, width), _binary(stream, count, width, path))
        return Source((count, width), _text(stream, width, path, 1, count), line=2)
    if _is_binary(head):
        raise DataError(
            "is neither text nor a binary file of word2vec, whose first line is two numbers, or of fastText.", file=path
        )
    width = len(first.rstrip().split(b" ")) - 1
    _check_sizes(1, width, path)
    return Source((_lines(stream), width), _text(stream, width, path, 0, None), line=1)


def _check_sizes(count: int, width: int, path: Path) -> None:
    if count < 1 or not 1 <= width <= _WIDEST or 4 * count * width > 1 << 44:
        raise DataError(f"says that it holds {count} vectors of {width} numbers.", file=path, line=1)


def _is_binary(data: bytes) -> bool:
    """Whether bytes are no text: control characters, which nearly every binary number has."""
    return any(byte < 32 and byte not in b"\t\r\n\x1c\x1d\x1e\x1f\x0b\x0c" for byte in data[: 1 << 12])


def _lines(stream: IO[bytes]) -> int:
    """The number of lines that are not empty at the end; the stream is then at its beginning."""
    count, last = 0, b"\n"
    while part := stream.read(1 << 22):
        count, last = count + part.count(b"\n"), part[-1:]
    stream.seek(0)
    return count + (last != b"\n")


def _text(
    stream: IO[bytes], width: int, path: Path, before: int, count: int | None
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Words and vectors of lines; a word may contain spaces, as in GloVe."""
    words: list[str] = []
    rows = np.empty((_CHUNK, width), np.float32)
    for number, raw in enumerate(stream, start=before + 1):
        try:
            line = raw.decode().rstrip(" \r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"byte 0x{raw[error.start]:02x} is not UTF-8.", file=path, line=number) from error
        word, *cells = line.rsplit(" ", width)
        if len(cells) != width or (" " in word and _NUMBER.fullmatch(word.rpartition(" ")[2])):
            raise DataError(
                f"found {line.count(' ') + 1} columns, expected a word and {width} numbers.", file=path, line=number
            )
        try:
            if "_" in line[len(word) :]:  # float("1_0") is 10
                raise ValueError(f"not a number: {next(cell for cell in cells if '_' in cell)!r}")
            rows[len(words)] = cells
        except ValueError as error:
            raise DataError(
                f"{_problem(error)}; expected a word and {width} numbers.", file=path, line=number
            ) from None
        words.append(word)
        if count is not None and number - before > count:
            raise DataError(f"its first line says {count} words, but there are more.", file=path, line=number)
        if len(words) == _CHUNK:
            yield words, rows
            words = []
    yield words, rows[: len(words)]


def _problem(error: Exception) -> str:
    """What numpy says of a cell that is no number, without what it was about to do."""
    return str(error).replace("could not convert string to float: ", "not a number: ")[:80]


def _binary(stream: IO[bytes], count: int, width: int, path: Path) -> Iterator[tuple[list[str], np.ndarray]]:
    """Words and vectors of word2vec's binary format: the word, a space, its numbers."""
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        words, rows = [], np.empty((size, width), np.float32)
        for i in range(size):
            words.append(_word(stream, path, start + i))
            data = stream.read(4 * width)
            if len(data) != 4 * width:
                raise DataError(f"ends in word {start + i + 1} of {count}; it is truncated.", file=path)
            rows[i] = np.frombuffer(data, "<f4")
        yield words, rows
    if stream.read(2) not in (b"", b"\n"):
        raise DataError(f"its first line says {count} words, but there is more after them.", file=path, line=1)


def _word(stream: IO[bytes], path: Path, number: int) -> str:
    letters = bytearray()
    while (letter := stream.read(1)) != b" ":
        if not letter or len(letters) > _WIDEST:
            raise DataError(f"has no word {number + 1}; it is truncated, or its first line is wrong.", file=path)
        letters += letter
    try:
        return letters.lstrip(b"\n").decode().replace("\n", " ")
    except UnicodeDecodeError as error:
        raise DataError(f"word {number + 1} is not UTF-8 ({error}).", file=path) from error
