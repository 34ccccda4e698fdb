"""Words as ELMo reads them: their UTF-8 bytes between markers for the beginning and end of the word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.models.encoder import Text, Tokens
from probekit.models.words import NO_LIMIT, Splitting, read_splitting, read_words

MAX_CHARACTERS = 50
"""Characters per word, including two markers; words of more than 48 bytes are truncated."""

PADDING = 261
"""Fills up a word's characters."""

_WORD_BEGINS, _WORD_ENDS = 258, 259
_ENDS = {"<S>": [256], "</S>": [257]}


def character_ids(words: Sequence[str]) -> np.ndarray:
    """Characters of words, int16 (n, 50).

    0 to 255 are bytes, 256 and 257 the beginning and end of a sentence (the only characters of the words ``<S>`` and
    ``</S>``), 258 and 259 the beginning and end of a word, and 260 padding; all are stored plus 1, since 0 means that
    there is no word (Peters et al. 2018; the numbers are those of bilm-tf and AllenNLP). Surrogates, for which UTF-8
    has no bytes, are left out.
    """
    return _rows([_ENDS.get(word) or word.encode("utf-8", "ignore")[: MAX_CHARACTERS - 2] for word in words])


def _rows(words: Sequence[bytes | Sequence[int]]) -> np.ndarray:
    out = np.full((len(words), MAX_CHARACTERS), PADDING - 1, dtype=np.int16)
    out[:, 0] = _WORD_BEGINS
    for row, word in zip(out, words, strict=True):
        row[1 : len(word) + 1] = np.frombuffer(word, np.uint8) if isinstance(word, bytes) else word
        row[len(word) + 1] = _WORD_ENDS
    return out + np.int16(1)


BEGIN, END = _rows(list(_ENDS.values()))
"""The characters of the words before and after a sentence, ``<S>`` and ``</S>``."""


class CharacterReader:
    """Texts to words and their characters: ELMo's tokenizer.

    Attributes
    ----------
    splitting : Splitting, default Splitting.TREEBANK
        How to split plain text into words.
    max_length : int, default NO_LIMIT
        Maximum number of words in a sentence.
    """

    type_ids = False
    padding_id = 0

    def __init__(self, splitting: Splitting = Splitting.TREEBANK, max_length: int = NO_LIMIT) -> None:
        self.splitting, self.max_length = splitting, max_length

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """The words of each text, numbered in order of first occurrence, and the characters of each.

        Raises UsageError if an item is not a text.
        """
        found = read_words(texts, self.splitting, self.max_length)
        seen: dict[str, int] = {}
        ids = np.fromiter((seen.setdefault(word, len(seen)) for word in found.words), np.int32, len(found.words))
        t = len(ids)
        return Tokens(
            ids, found.length, np.zeros(t, np.bool_), np.zeros(t, np.uint8), found.word_index,
            found.char_start, found.char_end, found.truncated, character_ids(list(seen)),
        )  # fmt: skip


def character_reader(folder: Path, config: Any = None, max_length: int | None = None) -> CharacterReader:
    """The reader of a model folder, cutting sentences at ``max_length`` words.

    Raises
    ------
    ModelError
        If its tokenizer_config.json was not written by probekit.
    UsageError
        If ``max_length`` is below 1.
    """
    if max_length is not None and max_length < 1:
        raise UsageError(f"{folder} reads 1 or more pieces, but max_length is {max_length}.")
    return CharacterReader(read_splitting(folder), NO_LIMIT if max_length is None else max_length)
