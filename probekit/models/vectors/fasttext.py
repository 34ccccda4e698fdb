"""fastText's binary files (Bojanowski et al. 2017), and the character n-grams of its words.

They are read as ``fasttext.cc`` and ``dictionary.cc`` of github.com/facebookresearch/fastText write them, version 12:
arguments, dictionary, and a matrix with a row for each word and for each bucket of n-grams.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from probekit.errors import DataError

MAGIC = struct.pack("<i", 793712314)
_ARGUMENTS = (
    "dim",
    "ws",
    "epoch",
    "least_count",
    "neg",
    "word_ngrams",
    "loss",
    "model",
    "bucket",
    "minn",
    "maxn",
    "rate",
)


def read_fasttext(
    stream: IO[bytes], path: Path, chunk: int
) -> tuple[tuple[int, int], Iterator[tuple[list[str], np.ndarray]], dict[str, int]]:
    """The shape of the table, its rows a part at a time, and its n-grams ("least", "most", "buckets").

    Raises
    ------
    DataError
        If the file is of another version, quantised or truncated.
    """

    def take(form: str) -> tuple[int, ...]:
        data = stream.read(struct.calcsize(form))
        if len(data) != struct.calcsize(form):
            raise DataError("is truncated.", file=path)
        return struct.unpack(form, data)

    _, version = take("<2i")
    if version != 12:
        raise DataError(f"has version {version} of fastText's format; expected 12. Save it again.", file=path)
    given = dict(zip(_ARGUMENTS, take("<12i"), strict=True))
    take("<d")
    size, count, labels, _, pruned = take("<3i2q")
    if pruned > 0 or not (0 < count <= size == count + labels):
        raise DataError("has a pruned or damaged dictionary; give a model that is not quantised.", file=path)
    words = []
    for _ in range(size):
        name = _until_zero(stream, path)
        _, kind = take("<qb")
        if kind == 0:
            words.append(name)
    (quantised,) = take("<b")
    if quantised:
        raise DataError("is quantised (.ftz); give the .bin file.", file=path)
    rows, width = take("<2q")
    if len(words) != count or width != given["dim"] or rows != count + given["bucket"]:
        raise DataError(f"has {rows} rows of {width} numbers for {count} words; it is damaged.", file=path)
    parts = given["maxn"] > 0 and given["bucket"] > 0
    kept = rows if parts else count
    subwords = {"least": given["minn"], "most": given["maxn"], "buckets": given["bucket"]} if parts else {}
    return (kept, width), _rows(stream, path, words, (kept, width), chunk), subwords


def _rows(
    stream: IO[bytes], path: Path, words: list[str], shape: tuple[int, int], chunk: int
) -> Iterator[tuple[list[str], np.ndarray]]:
    for start in range(0, shape[0], chunk):
        size = min(chunk, shape[0] - start)
        data = stream.read(4 * size * shape[1])
        if len(data) != 4 * size * shape[1]:
            raise DataError(f"ends in row {start + 1} or after it of {shape[0]}; it is truncated.", file=path)
        yield words[start : start + size], np.frombuffer(data, "<f4").reshape(size, shape[1])


def _until_zero(stream: IO[bytes], path: Path) -> str:
    letters = bytearray()
    while (letter := stream.read(1)) != b"\0":
        if not letter or len(letters) > 1 << 16:
            raise DataError("is truncated in its dictionary.", file=path)
        letters += letter
    try:
        return letters.decode().replace("\n", " ")
    except UnicodeDecodeError as error:
        raise DataError(f"a word of its dictionary is not UTF-8 ({error}).", file=path) from error


def ngrams(word: bytes, least: int, most: int) -> list[bytes]:
    """The n-grams of a word between "<" and ">", in UTF-8, as fastText counts them.

    Examples
    --------
    >>> ngrams("né".encode(), 3, 3)
    [b'<n\\xc3\\xa9', b'n\\xc3\\xa9>']
    """
    text = b"<" + word + b">"
    begins = [i for i, byte in enumerate(text) if byte & 0xC0 != 0x80] + [len(text)]
    found = []
    for i in range(len(begins) - 1):
        for n in range(1, most + 1):
            if i + n >= len(begins):
                break
            if n >= least and not (n == 1 and (i == 0 or i + n == len(begins) - 1)):
                found.append(text[begins[i] : begins[i + n]])
    return found


def bucket(gram: bytes, buckets: int) -> int:
    """The row of an n-gram after those of the words: FNV-1a of its signed bytes (``Dictionary::hash``)."""
    value = 2166136261
    for byte in gram:
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619) & 0xFFFFFFFF
    return value % buckets
