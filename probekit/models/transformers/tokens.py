"""Texts to word pieces, as flat arrays, with the batch interface of a fast tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from probekit.errors import ModelError, UsageError, first_line
from probekit.models.encoder import Rendered, Text, Tokens, Words
from probekit.models.folder import tokenizer_digest
from probekit.models.words import NO_LIMIT

_CHUNK = 2048


class Tokenizer:
    """A fast tokenizer that never pads and truncates at ``max_length`` pieces (the longer sentence of a pair first).

    Attributes
    ----------
    backend : Any
        A tokenizers.Tokenizer; this object changes its settings.
    max_length : int
        Maximum number of pieces in a sequence, including special ones.
    type_ids : bool, default False
        Whether the model reads the segment of a piece.
    cut : str, default 'right'
        The side to truncate, "right" or "left".
    padding_id : int, default 0
        The piece that the model reads as padding, for callers that pad.
    vocabulary : int, optional
        Number of pieces with embeddings; the tokenizer may have more if tokens were added only to it.
    name : str, default 'the model'
        Name of the model in errors.
    finds_words : bool
        Whether the tokenizer divides plain text into words; otherwise white space does.
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
            self._blank = _needs_spaces(backend)
            self.finds_words = finds_words(backend)
            added = backend.get_added_tokens_decoder()
            self._special_ids = [number for number, token in added.items() if token.special]
        except BaseException as error:
            _reraise_exit(error)
            raise ModelError(f"the tokenizer of {name} does not work: {first_line(error)}.") from error

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """Word pieces of each text.

        Given words are read as if joined by spaces, with as much context as fits, equally on both sides. Raises
        UsageError if an item is not a text.
        """
        parts = [self._arrays(chunk) for chunk in _chunks(texts)]
        return Tokens(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else _NOTHING

    def windows(self, texts: Sequence[Text], overlap: int | None) -> tuple[Tokens, np.ndarray, np.ndarray]:
        """Word pieces of texts or pairs in windows of at most ``max_length`` pieces.

        Each window of a pair has all of the first text.

        Parameters
        ----------
        overlap : int, optional
            Pieces that two neighbouring windows share; None for one window per text, the truncated text.

        Returns
        -------
        tuple[Tokens, np.ndarray, np.ndarray]
            The pieces of the windows; for each window the index of its text, int64 (s,), ascending; and whether a piece
            belongs to the second text of a pair, bool (t,).

        Raises
        ------
        UsageError
            If the first text of a pair leaves no room for the second.
        """
        parts = []
        for start in range(0, len(texts), _CHUNK):
            some = texts[start : start + _CHUNK]
            encodings = self._encode(dict(enumerate(some))) if overlap is None else self._overlapping(some, overlap)
            of = np.repeat(np.arange(len(some)), [1 if overlap is None else 1 + len(e.overflowing) for e in encodings])
            every = encodings if overlap is None else [w for e in encodings for w in (e, *e.overflowing)]
            columns = self._columns(every, [some[i] for i in of.tolist()], {})
            second = _flat(((s == 1 for s in e.sequence_ids) for e in every), np.bool_, len(columns[0]))
            if overlap is not None:
                columns[-1][:] = False  # nothing is lost
            parts.append((*columns, of + start, second))
        *joined, of, second = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Tokens(*joined), of, second

    def _overlapping(self, texts: Sequence[Text], overlap: int) -> list[Any]:
        """Encodings whose ``overflowing`` are the further windows."""
        strategy = "only_second" if any(isinstance(text, tuple) for text in texts) else "longest_first"
        try:
            with truncation(self.backend, self.max_length, stride=overlap, strategy=strategy):
                return self._encode(dict(enumerate(texts)))
        except ModelError as error:
            raise UsageError(
                f"texts cannot be divided into windows of {self.max_length} pieces that share {overlap}; give a "
                f"smaller overlap or a larger max_length ({first_line(error)})."
            ) from error

    def _arrays(self, texts: Sequence[Text]) -> tuple[np.ndarray, ...]:
        windows = self._windows(texts)
        encodings = self._encodings([windows.get(i, text) for i, text in enumerate(texts)])
        return self._columns(encodings, texts, windows)

    def _columns(
        self, encodings: Sequence[Any], texts: Sequence[Text], windows: dict[int, tuple[Words, Words, Words]]
    ) -> tuple[np.ndarray, ...]:
        """The arrays of :class:`Tokens` from encodings; windows : what is read of texts with context."""
        length = np.fromiter((len(e) for e in encodings), np.int64, len(encodings))
        if (over := length > self.max_length).any():
            worst = int(over.argmax())
            raise UsageError(
                f"max_length {self.max_length} leaves no room for the special tokens around {texts[worst]!r:.80}; use "
                f"{int(length[over].min()) + 2} or more."
            )
        t = int(length.sum())
        ids = _flat((e.ids for e in encodings), np.int32, t)
        self._check_known(ids, texts, length)
        special = _flat((e.special_tokens_mask for e in encodings), np.bool_, t)
        if any(isinstance(text, Rendered) for text in texts):
            of_rendered = np.repeat([isinstance(text, Rendered) for text in texts], length)
            special |= of_rendered & np.isin(ids, self._special_ids)
        offsets = _flat(chain.from_iterable(e.offsets for e in encodings), np.int32, 2 * t).reshape(t, 2)
        words = chain.from_iterable(e.word_ids for e in encodings)
        word_index = np.fromiter((-1 if w is None else w for w in words), np.int32, t)
        word_index[special] = -1  # in a rendered text, its special pieces are words of their own
        start = np.cumsum(length) - length
        for i, text in enumerate(texts):
            rows = slice(start[i], start[i] + length[i])
            if not self.finds_words and (isinstance(text, str) or len(text) == 2):
                word_index[rows] = np.where(special[rows], -1, _words_between_blanks(text, encodings[i], offsets[rows]))
            if isinstance(text, tuple) and len(text) == 2:
                _continue_indices(word_index[rows], encodings[i].sequence_ids)
            elif isinstance(text, tuple) and self._blank:
                offsets[rows] = np.maximum(offsets[rows] - (word_index[rows, None] > 0), 0)
            if isinstance(text, tuple) and len(text) == 3:
                before, n_words = len(windows[i][0]), len(text[1])
                word = word_index[rows] - before
                word_index[rows] = np.where((word_index[rows] >= before) & (word < n_words), word, -1)
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
        """Raise ModelError if the tokenizer produces a piece for which the model has no embedding."""
        if self.vocabulary is None or not len(ids) or ids.max() < self.vocabulary:
            return
        at = int(ids.argmax())
        text = texts[int(np.searchsorted(np.cumsum(length), at, side="right"))]
        raise ModelError(
            f"the tokenizer of {self.name} reads the piece {self.backend.id_to_token(int(ids[at]))!r} (number "
            f"{ids[at]}) in {text!r:.80}, but the model has embeddings for only {self.vocabulary} pieces. Was a token "
            "added to the tokenizer only? If so, add a row to the model: "
            "model.resize_token_embeddings(len(tokenizer))."
        )

    def _windows(self, texts: Sequence[Text]) -> dict[int, tuple[Words, Words, Words]]:
        """For texts with context: the words that fit, by index of the text."""
        given = {i: text for i, text in enumerate(texts) if isinstance(text, tuple) and len(text) == 3}
        words = sorted({word for text in given.values() for part in text for word in part})
        pieces, first = (self._counts(words, blank) for blank in (" " if self._blank else "", ""))
        surround = self.backend.num_special_tokens_to_add(is_pair=False)
        windows = {}
        for i, (before, words_of_text, after) in given.items():
            room = max(0, self.max_length - surround - sum(pieces[word] for word in words_of_text))
            left, right = (np.cumsum([0, *(pieces[w] for w in part)]) for part in (before[::-1], after))
            to_left = max(room // 2, room - int(right[-1]))
            count = int(np.searchsorted(left, to_left, side="right")) - 1
            while count and left[count] + first[before[-count]] - pieces[before[-count]] > room:
                count -= 1  # the very first word has no space before it and may therefore have more pieces
            first_word = before[-count] if count else (*words_of_text, "")[0]
            room -= int(left[count]) + first.get(first_word, 0) - pieces.get(first_word, 0)
            n_after = max(0, int(np.searchsorted(right, room, side="right")) - 1)
            windows[i] = before[len(before) - count :], words_of_text, after[:n_after]
        return windows

    def _counts(self, words: Sequence[str], blank: str) -> dict[str, int]:
        """Number of pieces of each word, with or without a space before it."""
        found = self.backend.encode_batch([[blank + w] for w in words], is_pretokenized=True, add_special_tokens=False)
        return dict(zip(words, map(len, found), strict=True))

    def _encodings(self, texts: Sequence[Text]) -> list[Any]:
        given = {i for i, text in enumerate(texts) if isinstance(text, tuple) and len(text) != 2}
        rendered = {i: text for i, text in enumerate(texts) if isinstance(text, Rendered)}
        if not given and not rendered:
            return self._encode(dict(enumerate(texts)))
        words = {i: self._with_blanks([word for part in texts[i] for word in part]) for i in sorted(given)}
        plain = {i: text for i, text in enumerate(texts) if i not in given and i not in rendered}
        found = [
            *zip(words, self._encode(words, words=True), strict=True),
            *zip(plain, self._encode(plain), strict=True),
            *zip(rendered, self._encode(rendered, bare=True), strict=True),
        ]
        return [encoding for _, encoding in sorted(found, key=lambda pair: pair[0])]

    def _encode(self, inputs: dict[int, Any], *, words: bool = False, bare: bool = False) -> list[Any]:
        try:
            return self.backend.encode_batch(list(inputs.values()), is_pretokenized=words, add_special_tokens=not bare)
        except BaseException as whole:
            _reraise_exit(whole)
            for item in inputs.values():
                try:
                    self.backend.encode_batch([item], is_pretokenized=words)
                except (TypeError, ValueError) as error:
                    raise UsageError(f"expected Unicode text, got {item!r:.200} ({error}).") from error
                except BaseException as error:
                    _reraise_exit(error)
                    raise ModelError(
                        f"the tokenizer of {self.name} cannot read {item!r:.80}: {first_line(error)}. Are its files "
                        "complete?"
                    ) from error
            raise ModelError(f"the tokenizer of {self.name} cannot read texts: {first_line(whole)}.") from whole

    def _with_blanks(self, words: Sequence[str]) -> list[str]:
        return [" " + word if i else word for i, word in enumerate(words)] if self._blank else list(words)


@contextmanager
def truncation(backend: Any, max_length: int | None = None, **how: Any) -> Iterator[None]:
    """Another truncation of a tokenizers.Tokenizer for a while; none without ``max_length``."""
    before = backend.truncation
    backend.no_truncation() if max_length is None else backend.enable_truncation(max_length, **how)
    try:
        yield
    finally:
        backend.no_truncation() if before is None else backend.enable_truncation(**before)


def load_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a model folder, as transformers loads it.

    Raises
    ------
    ModelError
        If the folder has none, or only one written in Python (without character offsets).
    """
    from transformers import AutoTokenizer

    tokenizer_digest(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, use_fast=True, local_files_only=True)
    except BaseException as error:
        _reraise_exit(error)
        raise ModelError(
            f"the tokenizer in {folder} cannot be loaded; expected tokenizer.json and tokenizer_config.json, as "
            f"save_pretrained writes them ({first_line(error).split(' from one of')[0]})."
        ) from error
    if not tokenizer.is_fast:
        raise ModelError(
            f"{folder} has only a slow tokenizer ({type(tokenizer).__name__}), without character offsets and word "
            "indices; save the fast one (tokenizer.json) in the folder."
        )
    return tokenizer


def _reraise_exit(error: BaseException) -> None:
    """Re-raise errors that end the program.

    Others come from tokenizers: bare Exceptions, and Rust panics, which are not Exceptions.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error


def _needs_spaces(backend: Any) -> bool:
    """Whether given words need a leading space to be read as in running text.

    True for byte-level tokenizers (RoBERTa, GPT-2) that do not add a space before each word.
    """

    def ids(text: Any) -> list[int]:
        return backend.encode(text, is_pretokenized=isinstance(text, list), add_special_tokens=False).ids

    running = ids("the the")
    return ids(["the", "the"]) != running == ids(["the", " the"])


def finds_words(backend: Any) -> bool:
    """Whether a tokenizer divides plain text into words.

    Those of Gemma and Llama 2 take a text for one word, and those that read characters may take each for a word.
    """
    found = backend.encode("the the", add_special_tokens=False)
    pieces = list(zip(found.word_ids, found.offsets, strict=True))
    words = [{word for word, (a, b) in pieces if a < last and b > first} for first, last in ((0, 3), (4, 7))]
    return len(words[0]) == len(words[1]) == 1 and words[0] != words[1]


def between_blanks(text: str, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The word that each piece of a text belongs to, int32 (t,), where words are what white space separates.

    A piece that covers several words is the first one's. The space before a word is part of it, as in ``▁the``, and
    other white space of the word before it; -1 if the text has no words.

    Parameters
    ----------
    start, end : np.ndarray
        Int (t,), the characters of each piece.

    Examples
    --------
    >>> between_blanks("a  dog", np.array([0, 1, 2, 4]), np.array([1, 2, 4, 6]))
    array([0, 0, 1, 1], dtype=int32)
    """
    places = np.array([match.span() for match in re.finditer(r"\S+", text)], dtype=np.int64).reshape(-1, 2)
    if not len(places):
        return np.full(len(start), -1, dtype=np.int32)
    word = np.searchsorted(places[:, 1], start, side="right")  # the first that ends after the piece begins
    begins = np.append(places[:, 0], len(text) + 1)[word]
    space = [text[a:b] in ("", " ") for a, b in zip(start.tolist(), end.tolist(), strict=True)]
    own = (begins < end) | ((begins == end) & space)
    return np.where(own, word, np.maximum(word - 1, 0)).astype(np.int32)


def _words_between_blanks(text: str | tuple[Any, ...], encoding: Any, offsets: np.ndarray) -> np.ndarray:
    """:func:`between_blanks` for a text, or for both of a pair."""
    if isinstance(text, str):
        return between_blanks(text, offsets[:, 0], offsets[:, 1])
    second = np.fromiter((s == 1 for s in encoding.sequence_ids), np.bool_, len(offsets))
    first, other = (between_blanks(one, offsets[:, 0], offsets[:, 1]) for one in text)
    return np.where(second, other, first)


def _continue_indices(word_index: np.ndarray, sequence: Sequence[int | None]) -> None:
    """Continue the word indices of a pair's first sentence in its second, in place."""
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
