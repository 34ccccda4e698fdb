"""Split text into terms and number them: bytes with kernels, strings with any function."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import xxhash

from probekit.domains import _term_kernels
from probekit.domains.corpora import Chunk
from probekit.domains.options import DocumentUnit, Tokenization
from probekit.errors import UsageError

FORM: Final = "NFC"
"""The normal form of terms, so that an é is the same however it was typed; terms from a function stay unchanged."""


Tokenize = Callable[[Sequence[str]], Sequence[Sequence[str]]]
"""Another tokenizer: the terms of each text. Texts are lines of files, or documents of other sources."""


def hugging_face(name: str | Path) -> Tokenize:
    """The terms of a Hugging Face tokenizer, without special ones: a folder, a tokenizer.json or an id of the hub.

    The function's name consists of the tokenizer's name and a hash of its content.

    Raises
    ------
    UsageError
        If it cannot be read.
    """
    import tokenizers

    path = Path(name).expanduser()
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        exists = path.is_file()
        backend = (
            tokenizers.Tokenizer.from_file(str(path)) if exists else tokenizers.Tokenizer.from_pretrained(str(name))
        )
    except Exception as error:  # tokenizers raises bare Exception
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise UsageError(
            f"{str(name)!r} is not a tokenizer ({reason}); expected {', '.join(Tokenization)}, a folder with "
            "tokenizer.json, or a hub id."
        ) from error
    backend.no_truncation()
    backend.no_padding()
    called = {number: term for term, number in backend.get_vocab(with_added_tokens=True).items()}

    def tokenize(texts: Sequence[str]) -> list[list[str]]:
        found = backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [[called[number] for number in encoding.ids] for encoding in found]

    tokenize.__name__ = f"{Path(name).name} {xxhash.xxh3_64_hexdigest(backend.to_str().encode())}"
    return tokenize


class Bytes:
    """Numbers of words, found in bytes by a kernel."""

    def __init__(self, tokenizer: Tokenization) -> None:
        self.kinds = _kinds(tokenizer)
        self._forget()

    def _forget(self) -> None:
        self.known = 0
        self.slots, self.hashes = np.full(1 << 12, -1, dtype=np.int32), np.empty(1 << 11, dtype=np.uint64)
        self.bounds, self.arena = np.zeros((1 << 11) + 1, dtype=np.int64), np.empty(0, dtype=np.uint8)

    def cut(self, chunk: Chunk, unit: DocumentUnit, place: np.ndarray) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """The words of a chunk, and the document of each, int32, counted from ``place[0]``, where the last one was."""
        end = 0 if chunk.marked else -1 if unit is DocumentUnit.FILE else ord("\n")
        paragraphs = unit is DocumentUnit.PARAGRAPH and not chunk.marked
        before = place.copy()
        words, documents, doubtful = self._cut(chunk.data, end, place, paragraphs=paragraphs)
        if doubtful and not unicodedata.is_normalized(FORM, text := chunk.data.decode()):
            place[:] = before
            words, documents, _ = self._cut(
                unicodedata.normalize(FORM, text).encode(), end, place, paragraphs=paragraphs
            )
        return words, documents

    def _cut(
        self, text: bytes, end: int, place: np.ndarray, *, paragraphs: bool
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray, bool]:
        """Words and documents, and whether the text may be in another normal form."""
        data = np.frombuffer(text, dtype=np.uint8)
        most = len(data) // 2 + 1
        starts, sizes, documents = np.empty((3, most), dtype=np.int32)
        codes = np.empty(most, dtype=np.uint64)
        out = (starts, sizes, codes, documents)
        found, doubtful = _term_kernels.cut(data, self.kinds, end, paragraphs, place, *out)
        return (data, starts[:found], sizes[:found], codes[:found]), documents[:found], doubtful

    def number(self, words: tuple[np.ndarray, ...]) -> np.ndarray:
        """The number of each word, int32."""
        data, codes = words[0], words[-1]
        ids, done = np.empty(len(codes), dtype=np.int32), 0
        self.arena = _longer(self.arena, int(self.bounds[self.known]) + len(data))
        while True:
            tables = self.slots, self.hashes, self.bounds, self.arena
            done, self.known = _term_kernels.number(*words, done, self.known, *tables, ids)
            if done == len(codes):
                return ids
            self.slots = np.full(2 * len(self.slots), -1, dtype=np.int32)
            _term_kernels.rehash(self.hashes[: self.known], self.slots)
            self.hashes = _longer(self.hashes, len(self.slots) // 2)
            self.bounds = _longer(self.bounds, len(self.slots) // 2 + 1)

    def codes(self, words: tuple[np.ndarray, ...]) -> np.ndarray:
        """A hash of each word, uint64, the same in every text."""
        return words[-1]

    def _spelled(self) -> list[bytes]:
        data = self.arena.tobytes()
        return [data[a:b] for a, b in pairwise(self.bounds[: self.known + 1].tolist())]

    def terms(self) -> list[str]:
        """The words by number."""
        return [piece.decode() for piece in self._spelled()]

    def keep(self, words: np.ndarray) -> None:
        """Forget all but ``words``, which are numbered anew in that order."""
        pieces = self._spelled()
        data = b" ".join(pieces[word] for word in words)
        self._forget()
        self.number(self._cut(data, -1, np.array([-1, 0, 1]), paragraphs=False)[0])


class Strings:
    """Numbers of terms that a function finds; the twin of ``Bytes``."""

    def __init__(self, tokenize: Tokenize) -> None:
        self.tokenize = tokenize
        self.known: dict[str, int] = {}

    def cut(self, chunk: Chunk, unit: DocumentUnit, place: np.ndarray) -> tuple[list[str], np.ndarray]:
        """As of ``Bytes``; the function is given the lines of a file, or the documents of other sources."""
        texts = chunk.data.decode().split("\0" if chunk.marked else "\n")
        first = int(place[0])
        found: list[str] = []
        documents: list[int] = []
        for i, (text, terms) in enumerate(zip(texts, self.tokenize(texts), strict=True), 1):
            if terms:
                place[:2] = place[0] + (not place[1]), 1
                found += terms
                documents += [int(place[0]) - first] * len(terms)
            place[2] = place[2] and not text.strip(" \t\v\f\r")
            if i < len(texts):
                if chunk.marked or unit is DocumentUnit.LINE or (unit is DocumentUnit.PARAGRAPH and place[2]):
                    place[1] = 0
                place[2] = 1
        return found, np.array(documents, dtype=np.int32)

    def number(self, words: list[str]) -> np.ndarray:
        """The number of each term, int32."""
        return np.array([self.known.setdefault(word, len(self.known)) for word in words], dtype=np.int32)

    def codes(self, words: list[str]) -> np.ndarray:
        """A hash of each term, uint64, the same in every text."""
        return np.array([xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass")) for word in words], np.uint64)

    def terms(self) -> list[str]:
        """The terms by number."""
        return list(self.known)

    def keep(self, words: np.ndarray) -> None:
        """Forget all but ``words``, which are numbered anew in that order."""
        terms = self.terms()
        self.known = {terms[word]: i for i, word in enumerate(words)}


def _longer(array: np.ndarray, length: int) -> np.ndarray:
    """``array``, or a copy with room for ``length`` and as much again."""
    if len(array) >= length:
        return array
    longer = np.empty(2 * length, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


@cache
def _kinds(tokenizer: Tokenization) -> np.ndarray:
    """For each code point 1 if it belongs to a term, and 2 more if text that holds it may not be in normal form C.

    uint8 (0x110000,). Text without such characters is: each is its own normal form, is no mark that has its place among
    others, and is not the second of two that are one character (Unicode Standard Annex 15, sections 1.3 and 9.1).
    """
    characters = [chr(code) for code in range(sys.maxunicode + 1)]
    if tokenizer is Tokenization.WHITESPACE:
        inside = [not c.isspace() and c != "\0" for c in characters]
    else:
        inside = [(name := unicodedata.category(c))[0] in "LMN" or name == "Pc" for c in characters]
    decomposed = [unicodedata.normalize("NFD", c) for c in characters]
    second = {c for letters in decomposed for c in letters[1:]}
    doubtful = [
        c in second or unicodedata.combining(c) or (c != d and unicodedata.normalize(FORM, c) != c)
        for c, d in zip(characters, decomposed, strict=True)
    ]
    return np.array(inside, dtype=np.uint8) + 2 * np.array(doubtful, dtype=bool).astype(np.uint8)
