"""Texts to word pieces, as flat arrays, with a fast tokenizer's own batch interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from probekit.errors import ModelError, UsageError, first_line
from probekit.models.encoder import Text, Tokens, Words
from probekit.models.folder import tokenizer_digest
from probekit.models.words import NO_LIMIT

__all__ = ["Tokenizer", "load_tokenizer"]

_CHUNK = 2048


class Tokenizer:
    """A fast tokenizer, never padding, cutting at ``max_length`` pieces (the longer sentence of a pair first).

    Attributes
    ----------
    backend : Any
        tokenizers.Tokenizer, of which this takes possession.
    max_length : int
        The most pieces of a sequence, special ones counted.
    type_ids : bool, default False
        Whether the model wants to know the segment of a piece.
    cut : str, default 'right'
        The side that is cut off, "right" or "left"
    padding_id : int, default 0
        The piece that the model takes for padding, where others pad.
    vocabulary : int, optional
        How many pieces the model has embeddings for; a tokenizer may know more, that were added to it alone.
    name : str, default 'the model'
        What errors call the model.
    """

    def __init__(
        self,
        backend: Any,
        max_length: int,
        *,
        type_ids: bool = False,
        cut: str = "right",
        padding_id: int = 0,
        vocabulary: int | None = None,
        name: str = "the model",
    ) -> None:
        self.vocabulary, self.name = vocabulary, name
        self.backend, self.max_length, self.type_ids, self.padding_id = backend, max_length, type_ids, padding_id
        backend.no_padding()
        backend.no_truncation()
        if max_length < NO_LIMIT:
            backend.enable_truncation(max_length, strategy="longest_first", direction=cut)
        try:
            self._blank = _reads_blanks(backend)
        except BaseException as error:
            _is_theirs(error)
            raise ModelError(f"the tokenizer of {name} cannot be used: {first_line(error)}.") from error

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """Word pieces of each text.

        Given words are read as if joined by blanks, with as much of their context as there is room for, on both sides
        alike. Raises UsageError for what is not a text, with its index.
        """
        parts = [self._arrays(chunk) for chunk in _chunks(texts)]
        return Tokens(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else _NOTHING

    def _arrays(self, texts: Sequence[Text]) -> tuple[np.ndarray, ...]:
        windows = self._windows(texts)
        encodings = self._encodings([windows.get(i, text) for i, text in enumerate(texts)])
        length = np.fromiter((len(e) for e in encodings), np.int64, len(encodings))
        if (over := length > self.max_length).any():
            worst = int(over.argmax())
            raise UsageError(
                f"a maximal length of {self.max_length} has no room for what surrounds {texts[worst]!r:.80}; "
                f"give {int(length[over].min()) + 2} or more."
            )
        t = int(length.sum())
        ids = _flat((e.ids for e in encodings), np.int32, t)
        self._check_known(ids, texts, length)
        special = _flat((e.special_tokens_mask for e in encodings), np.bool_, t)
        offsets = _flat(chain.from_iterable(e.offsets for e in encodings), np.int32, 2 * t).reshape(t, 2)
        words = chain.from_iterable(e.word_ids for e in encodings)
        word_index = np.fromiter((-1 if w is None else w for w in words), np.int32, t)
        start = np.cumsum(length) - length
        for i, text in enumerate(texts):
            rows = slice(start[i], start[i] + length[i])
            if isinstance(text, tuple) and len(text) == 2:
                _count_on(word_index[rows], encodings[i].sequence_ids)
            elif isinstance(text, tuple) and self._blank:
                offsets[rows] = np.maximum(offsets[rows] - (word_index[rows, None] > 0), 0)
            if isinstance(text, tuple) and len(text) == 3:
                before, own = len(windows[i][0]), len(text[1])
                word = word_index[rows] - before
                word_index[rows] = np.where((word_index[rows] >= before) & (word < own), word, -1)
                special[rows] |= word_index[rows] < 0
        offsets[word_index < 0] = 0
        return (
            ids,
            length,
            special,
            _flat((e.type_ids for e in encodings), np.uint8, t) if self.type_ids else np.zeros(t, np.uint8),
            word_index,
            offsets[:, 0].copy(),
            offsets[:, 1].copy(),
            np.fromiter((len(e) == self.max_length and bool(e.overflowing) for e in encodings), np.bool_, len(length)),
        )

    def _check_known(self, ids: np.ndarray, texts: Sequence[Text], length: np.ndarray) -> None:
        """Raise ModelError where the tokenizer gives a piece that the model has no embedding of."""
        if self.vocabulary is None or not len(ids) or ids.max() < self.vocabulary:
            return
        at = int(ids.argmax())
        text = texts[int(np.searchsorted(np.cumsum(length), at, side="right"))]
        raise ModelError(
            f"the tokenizer of {self.name} reads the piece {self.backend.id_to_token(int(ids[at]))!r} (number "
            f"{ids[at]}) in {text!r:.80}, and the model has embeddings of {self.vocabulary} pieces. Was a token "
            "added to the tokenizer alone? Give the model a row for it: model.resize_token_embeddings(len(tokenizer))."
        )

    def _windows(self, texts: Sequence[Text]) -> dict[int, tuple[Words, Words, Words]]:
        """Of texts with a context the words that there is room for, by their number among the texts."""
        given = {i: text for i, text in enumerate(texts) if isinstance(text, tuple) and len(text) == 3}
        words = sorted({word for text in given.values() for part in text for word in part})
        pieces, first = (self._counts(words, blank) for blank in (" " if self._blank else "", ""))
        surround = self.backend.num_special_tokens_to_add(is_pair=False)
        made = {}
        for i, (before, own, after) in given.items():
            room = max(0, self.max_length - surround - sum(pieces[word] for word in own))
            left, right = (np.cumsum([0, *(pieces[w] for w in part)]) for part in (before[::-1], after))
            to_left = max(room // 2, room - int(right[-1]))
            count = int(np.searchsorted(left, to_left, side="right")) - 1
            while count and left[count] + first[before[-count]] - pieces[before[-count]] > room:
                count -= 1  # the first word of all has no blank before it, and may have more pieces for that
            one = before[-count] if count else (*own, "")[0]
            room -= int(left[count]) + first.get(one, 0) - pieces.get(one, 0)
            rest = max(0, int(np.searchsorted(right, room, side="right")) - 1)
            made[i] = before[len(before) - count :], own, after[:rest]
        return made

    def _counts(self, words: Sequence[str], blank: str) -> dict[str, int]:
        """How many pieces each word has, behind a blank or not."""
        found = self.backend.encode_batch([[blank + w] for w in words], is_pretokenized=True, add_special_tokens=False)
        return dict(zip(words, map(len, found), strict=True))

    def _encodings(self, texts: Sequence[Text]) -> list[Any]:
        given = {i for i, text in enumerate(texts) if isinstance(text, tuple) and len(text) != 2}
        if not given:
            return self._encode(dict(enumerate(texts)))
        words = {i: self._with_blanks([word for part in texts[i] for word in part]) for i in sorted(given)}
        plain = {i: text for i, text in enumerate(texts) if i not in given}
        found = [
            *zip(words, self._encode(words, words=True), strict=True),
            *zip(plain, self._encode(plain), strict=True),
        ]
        return [encoding for _, encoding in sorted(found, key=lambda pair: pair[0])]

    def _encode(self, inputs: dict[int, Any], *, words: bool = False) -> list[Any]:
        try:
            return self.backend.encode_batch(list(inputs.values()), is_pretokenized=words)
        except BaseException as whole:
            _is_theirs(whole)
            for one in inputs.values():
                try:
                    self.backend.encode_batch([one], is_pretokenized=words)
                except (TypeError, ValueError) as error:
                    raise UsageError(
                        f"a text cannot be read: wanted Unicode text, got {one!r:.200} ({error})."
                    ) from error
                except BaseException as error:
                    _is_theirs(error)
                    raise ModelError(
                        f"the tokenizer of {self.name} cannot read {one!r:.80}: {first_line(error)}. "
                        "Are its files whole?"
                    ) from error
            raise ModelError(f"the tokenizer of {self.name} cannot read texts: {first_line(whole)}.") from whole

    def _with_blanks(self, words: Sequence[str]) -> list[str]:
        return [" " + word if i else word for i, word in enumerate(words)] if self._blank else list(words)


def load_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a model folder, as transformers loads it.

    Raises
    ------
    ModelError
        Where the folder has none, or only one that is written in Python (no character offsets).
    """
    from transformers import AutoTokenizer

    tokenizer_digest(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, use_fast=True, local_files_only=True)
    except BaseException as error:
        _is_theirs(error)
        raise ModelError(f"the tokenizer in {folder} cannot be loaded ({first_line(error)}).") from error
    if not tokenizer.is_fast:
        raise ModelError(
            f"{folder} has only a slow tokenizer ({type(tokenizer).__name__}), without offsets and word numbers; "
            "save the model's fast one (tokenizer.json) beside it."
        )
    return tokenizer


def _is_theirs(error: BaseException) -> None:
    """Raise again what ends the program; all else is of tokenizers: bare Exceptions, and the panics of Rust, which are
    no Exceptions."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error


def _reads_blanks(backend: Any) -> bool:
    """Whether words given one by one must carry the blank before them to be read as in running text.

    True of byte-level tokenizers (RoBERTa, GPT-2) that put no blank before a word on their own.
    """

    def ids(text: Any) -> list[int]:
        return backend.encode(text, is_pretokenized=isinstance(text, list), add_special_tokens=False).ids

    running = ids("the the")
    return ids(["the", "the"]) != running == ids(["the", " the"])


def _count_on(word_index: np.ndarray, sequence: Sequence[int | None]) -> None:
    """Let the words of a pair's second sentence count on from those of its first, in place."""
    second = np.fromiter((s == 1 for s in sequence), np.bool_, len(word_index))
    words = second & (word_index >= 0)
    word_index[words] += word_index[~second].max(initial=-1) + 1


def _chunks(texts: Sequence[Text]) -> Iterator[Sequence[Text]]:
    return (texts[i : i + _CHUNK] for i in range(0, len(texts), _CHUNK))


def _flat(parts: Any, dtype: type, count: int) -> np.ndarray:
    return np.fromiter(chain.from_iterable(parts), dtype, count)


_NOTHING = Tokens(
    *(np.zeros(0, dtype) for dtype in (np.int32, np.int64, np.bool_, np.uint8, np.int32, np.int32, np.int32, np.bool_))
)
