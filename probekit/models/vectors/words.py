"""Texts to the words of a table of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probekit.errors import ModelError, UsageError
from probekit.files import read_json
from probekit.models.encoder import Text, Tokens
from probekit.models.words import NO_LIMIT, Splitting, read_splitting, read_words
from probekit.notes import logger

log = logger(__name__, by_input=True)

WIDE = 128
"""Bytes of a word that are kept where sub-words are read; longer words are cut."""


class VectorReader:
    """Texts to rows of a table; the row after the last word is that of unknown ones.

    A word that is not in the table is looked up in lower case. If the table has sub-words, it is read by them as it is
    written; pieces then number the distinct words, whose bytes are their characters.

    Attributes
    ----------
    rows : dict[str, int]
        The row of each word.
    subwords : bool
        Whether unknown words are read by their n-grams.
    words, unknown : int
        How many words have been read, and how many of them are unknown.
    """

    type_ids = False
    padding_id = 0

    def __init__(
        self, rows: dict[str, int], count: int, splitting: Splitting, max_length: int, *, subwords: bool
    ) -> None:
        self.rows, self.count, self.splitting, self.max_length = rows, count, splitting, max_length
        self.subwords = subwords
        self.words = self.unknown = self.said = 0

    def row(self, word: str) -> int:
        """The row of a word; that of unknown words if it has none."""
        found = self.rows.get(word)
        if found is None and not self.subwords:
            found = self.rows.get(word.lower())
        return self.count if found is None else found

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """The words of each text; raises UsageError if an item is not a text."""
        found = read_words(texts, self.splitting, self.max_length)
        rows = np.fromiter(map(self.row, found.words), np.int32, len(found.words))
        self._count(found.words, rows == self.count)
        characters = None
        if self.subwords:
            seen: dict[str, int] = {}
            rows = np.fromiter((seen.setdefault(word, len(seen)) for word in found.words), np.int32, len(found.words))
            characters = np.zeros((len(seen), WIDE), np.int16)
            for line, word in zip(characters, seen, strict=True):
                letters = np.frombuffer(word.encode("utf-8", "ignore")[:WIDE], np.uint8)
                line[: len(letters)] = letters.astype(np.int16) + 1
        return Tokens(
            rows, found.length, np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.uint8), found.word_index,
            found.char_start, found.char_end, found.truncated, characters,
        )  # fmt: skip

    def _count(self, words: list[str], unknown: np.ndarray) -> None:
        """Count unknown words, and say how many there are, once for each ten times as many words."""
        self.words, self.unknown = self.words + len(words), self.unknown + int(unknown.sum())
        if not self.unknown or self.words < 10 * self.said:
            return
        self.said = self.words
        some = dict.fromkeys(word for word, new in zip(words, unknown.tolist(), strict=True) if new)
        log.warning(
            "%d of %d words are not among the vectors (%s): %s.",
            self.unknown,
            self.words,
            ", ".join(list(some)[:3]),
            "they are read by their sub-words" if self.subwords else "their vectors are zeros",
        )


def word_reader(folder: Path, config: Any = None, max_length: int | None = None) -> VectorReader:
    """The reader of a model folder; it cuts texts at ``max_length`` words.

    Raises
    ------
    ModelError
        If vocab.txt or a configuration does not fit.
    UsageError
        If ``max_length`` is below 1.
    """
    if max_length is not None and max_length < 1:
        raise UsageError(f"{folder} reads 1 or more pieces, but max_length is {max_length}.")
    path, rows, count = folder / "vocab.txt", dict[str, int](), 0
    try:
        about = read_json(folder / "config.json")
        with path.open(encoding="utf-8", newline="\n") as file:
            for row, line in enumerate(file):
                rows.setdefault(line.rstrip("\n"), row)
                count = row + 1
        if count != about["vocab_size"]:
            raise ValueError(f"it has {count} words, config.json says {about['vocab_size']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read ({error}); convert the vectors again.") from error
    return VectorReader(
        rows, count, read_splitting(folder), max_length or NO_LIMIT, subwords=bool(about.get("subwords"))
    )
