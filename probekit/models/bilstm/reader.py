"""Texts as the BiLSTM reads them: words, by their characters or by their rows in a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from probekit.errors import ModelError, UsageError
from probekit.files import read_json, read_lines
from probekit.models.bilstm.config import Input
from probekit.models.elmo.characters import BEGIN, END, CharacterReader
from probekit.models.encoder import Text, Tokens
from probekit.models.words import NO_LIMIT, Splitting, read_splitting, read_words

MARKERS = ("<unk>", "<s>", "</s>")
"""The first words of vocab.txt: any word that the vocabulary lacks, the beginning and the end of a sequence."""


class CharactersWithEnds(CharacterReader):
    """ELMo's reader, with ELMo's markers before and after each sentence as special pieces."""

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """The markers and words of each text, and their characters; raises UsageError if an item is not a text."""
        inner = CharacterReader(self.splitting, max(self.max_length - 2, 1))(texts)
        assert inner.characters is not None
        ends = np.stack([BEGIN, END])
        shifted = replace(inner, token_ids=inner.token_ids + 2, characters=np.concatenate([ends, inner.characters]))
        return _with_ends(shifted, 0, 1)


class VocabularyReader:
    """Texts to rows of the embeddings, with markers before and after each as special pieces.

    Attributes
    ----------
    rows : dict[str, int]
        The row of each word, with :data:`MARKERS` first.
    lower_case : bool
        Whether words are converted to lower case before they are looked up.
    """

    type_ids = False
    padding_id = 0

    def __init__(
        self, rows: dict[str, int], splitting: Splitting, max_length: int = NO_LIMIT, *, lower_case: bool, name: str
    ) -> None:
        self.rows, self.splitting, self.max_length = rows, splitting, max_length
        self.lower_case, self.name = lower_case, name

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """The markers and words of each text.

        Raises
        ------
        UsageError
            If an item is not a text, or the vocabulary has no word of any text.
        """
        found = read_words(texts, self.splitting, self.max_length - 2)
        words = [word.lower() for word in found.words] if self.lower_case else found.words
        ids = np.fromiter((self.rows.get(word, 0) for word in words), np.int32, len(words))
        if len(ids) and not ids.any():
            raise UsageError(
                f"{self.name} has none of the {len(ids)} words of the texts, the first of which is {words[0]!r:.80}; "
                "are vocabulary and texts of the same language, and split and lower-cased in the same way?"
            )
        t = len(ids)
        inner = Tokens(
            ids, found.length, np.zeros(t, np.bool_), np.zeros(t, np.uint8), found.word_index,
            found.char_start, found.char_end, found.truncated,
        )  # fmt: skip
        return _with_ends(inner, 1, 2)


def bilstm_reader(folder: Path, config: Any, max_length: int | None = None) -> Any:
    """The reader for a model folder; it truncates sequences at ``max_length`` pieces.

    Raises
    ------
    ModelError
        If the tokenizer's files do not fit the model.
    UsageError
        If ``max_length`` leaves no room for a word.
    """
    if config.input == Input.PIECES:
        from probekit.models.transformers.encoder import text_reader

        return text_reader(folder, config, max_length)
    least = 1 if config.input == Input.ELMO else 3
    if max_length is not None and max_length < least:
        raise UsageError(f"{folder} reads {least} or more pieces, but max_length is {max_length}.")
    splitting, longest = read_splitting(folder), max_length or NO_LIMIT
    if config.input == Input.ELMO:  # which adds the markers itself and removes them
        return CharacterReader(splitting, longest)
    if config.input == Input.CHARACTERS:
        return CharactersWithEnds(splitting, longest)
    path, settings = folder / "vocab.txt", read_json(folder / "tokenizer_config.json")
    words = check_vocabulary(path)
    if (*words[:3],) != MARKERS or len(words) != config.vocab_size:
        raise ModelError(
            f"{path} has {len(words)} words, the first of which are {', '.join(words[:3])}; expected "
            f"{config.vocab_size}, beginning with {', '.join(MARKERS)}. Do the files belong together?"
        )
    rows = {word: row for row, word in enumerate(words)}
    return VocabularyReader(
        rows, splitting, longest, lower_case=bool(settings.get("lower_case", False)), name=str(path)
    )


def check_vocabulary(path: Path) -> list[str]:
    """The words of a vocabulary, one on each line.

    Raises
    ------
    DataError
        If it cannot be read.
    ModelError
        If it is empty, or has a word twice, an empty line, or white space in a word.
    """
    words = read_lines(path)
    if not words:
        raise ModelError(f"{path} is empty; expected a vocabulary, one word per line.")
    first: dict[str, int] = {}
    for line, word in enumerate(words, 1):
        if not word or word.split() != [word]:
            raise ModelError(f"{path}, line {line}: {word!r:.80} is not a word; expected one word per line.")
        if first.setdefault(word, line) != line:
            raise ModelError(f"{path}, line {line}: {word!r:.80} is on line {first[word]} too; delete one of them.")
    return words


def _with_ends(tokens: Tokens, first: int, last: int) -> Tokens:
    """Sequences between two special pieces with these ids."""
    ends = np.cumsum(tokens.length)
    at = np.stack([ends - tokens.length, ends], 1).ravel()

    def put(column: np.ndarray, value: Any) -> np.ndarray:
        return np.insert(column, at, value)

    return replace(
        tokens,
        token_ids=put(tokens.token_ids, np.tile([first, last], len(ends))),
        length=tokens.length + 2,
        special=put(tokens.special, 1),
        type_ids=put(tokens.type_ids, 0),
        word_index=put(tokens.word_index, -1),
        char_start=put(tokens.char_start, 0),
        char_end=put(tokens.char_end, 0),
    )
