"""Sentences to words, for encoders trained on words as in the Penn Treebank: ELMo, Skip-thoughts, word vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import NoReturn

import numpy as np

from probekit.errors import ModelError, UsageError
from probekit.files import read_json
from probekit.models.encoder import Text

NO_LIMIT = 1 << 30
"""Number of words or pieces in a sequence that has no limit."""


class Splitting(StrEnum):
    """How to split plain text into words; given words do not change."""

    TREEBANK = "treebank"  # like NLTK's word tokenizer: "does", "n't", "like", "it", "."
    BLANKS = "blanks"  # at white space only: text that is already tokenized

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise UsageError(f"words is {value!r}; expected one of {', '.join(cls)}.")


def read_splitting(folder: Path) -> Splitting:
    """How a converted model splits plain text, from tokenizer_config.json; raises ModelError if it does not say."""
    path = folder / "tokenizer_config.json"
    try:
        return Splitting(read_json(path)["words"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f'{path} does not say how to split text into words ({error}); expected {{"words": ...}} with one of '
            f"{', '.join(Splitting)}, as probekit convert writes."
        ) from error


def versions(splitting: Splitting) -> dict[str, str]:
    """Versions of the libraries that determine the words."""
    return {"nltk": version("nltk")} if splitting is Splitting.TREEBANK else {}


@dataclass(frozen=True, slots=True)
class Words:
    """Concatenated words of several texts: t words in s texts.

    Attributes
    ----------
    words : list[str]
        (t,) strings.
    length, truncated : np.ndarray
        int64 and bool (s,).
    word_index, char_start, char_end : np.ndarray
        int32 (t,); see :class:`probekit.models.encoder.Tokens`.
    """

    words: list[str]
    length: np.ndarray
    word_index: np.ndarray
    char_start: np.ndarray
    char_end: np.ndarray
    truncated: np.ndarray


def read_words(texts: Sequence[Text], splitting: Splitting, max_length: int = NO_LIMIT) -> Words:
    """The words of each text, at most ``max_length`` per text; raises UsageError if an item is not a text."""
    if isinstance(texts, str):
        raise UsageError(f"expected a list of texts, got the text {texts!r:.120}; put it into a list.")
    found = [_spans(text, splitting) for text in texts]
    length = np.array([min(len(words), max_length) for words, _ in found], dtype=np.int64)
    words = [word for (words, _), n in zip(found, length, strict=True) for word in words[:n]]
    bounds = chain.from_iterable(spans[:n] for (_, spans), n in zip(found, length, strict=True))
    start_end = np.fromiter(chain.from_iterable(bounds), np.int32, 2 * len(words)).reshape(-1, 2)
    start = np.repeat(np.cumsum(length) - length, length)
    return Words(
        words,
        length,
        (np.arange(len(words)) - start).astype(np.int32),
        start_end[:, 0].copy(),
        start_end[:, 1].copy(),
        np.array([len(words) > n for (words, _), n in zip(found, length, strict=True)], dtype=bool),
    )


def _spans(text: Text, splitting: Splitting) -> tuple[Sequence[str], Sequence[tuple[int, int]]]:
    """The words of one text, and the start and end of each: in the text, or (for given words) in the word itself."""
    if isinstance(text, str):
        spans = list(_treebank(text) if splitting is Splitting.TREEBANK else _blanks(text))
        return [text[a:b] for a, b in spans], spans
    if isinstance(text, tuple) and len(text) == 2:
        raise UsageError(
            f"this encoder reads one sentence at a time, not the pair {text!r:.120}; use separate for pairs."
        )
    if not isinstance(text, tuple) or len(text) != 1:
        raise UsageError(f"expected a string as text, or words in a tuple of one, got {text!r:.120}.")
    words = text[0]
    if not isinstance(words, (tuple, list)) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"expected a list of words, got {words!r:.120}; give a sentence as a plain string.")
    if len(words) == 1 and words[0].strip().count(" ") > 2:  # not 10 000 000
        raise UsageError(
            f"expected a list of words, but its only word is a sentence, {words[0]!r:.120}; give its words, or the "
            "sentence as a plain string."
        )
    return words, [(0, len(word)) for word in words]


def _treebank(text: str) -> Iterator[tuple[int, int]]:
    from nltk.tokenize import NLTKWordTokenizer

    return NLTKWordTokenizer().span_tokenize(text)


def _blanks(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in re.finditer(r"\S+", text))
