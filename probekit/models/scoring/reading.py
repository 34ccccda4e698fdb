"""Texts as a language model reads them: their pieces, and which of them it is asked to predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.models.transformers.tokens import between_blanks, finds_words


@dataclass(frozen=True, slots=True)
class Reading:
    """One text.

    Attributes
    ----------
    ids : list of int
        Its pieces, with those that are added.
    wanted : list of int
        The places in ``ids`` of the pieces to predict.
    words : list of int or None
        The word of each piece; None for added ones.
    problem : str
        Why the model cannot predict them; "" if it can.
    """

    ids: list[int]
    wanted: list[int]
    words: list[int | None]
    problem: str


def read(
    tokenizer: Any, texts: Sequence[str], max_length: int, *, causal: bool, start: bool, since: Sequence[int] | None
) -> list[Reading]:
    """The reading of each text.

    A causal model reads the text after its piece for the beginning of a text (with ``start``, if the tokenizer has one
    and the text does not begin with it). It predicts each piece from those before it, so it never reads the last one.
    A masked model reads the text with the pieces that its tokenizer adds.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerFast
        The model's.
    texts : sequence of str
        n texts.
    max_length : int
        Pieces that the model reads.
    causal, start : bool
        What is added.
    since : sequence of int, optional
        For each text, the character from which it is predicted: the pieces with a character there or later are wanted.
        Default: all pieces.
    """
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    found, divided = [], finds_words(backend)
    bos = tokenizer.bos_token_id if causal and start else None
    encodings = backend.encode_batch(list(texts), add_special_tokens=not causal)
    for text, one, first in zip(texts, encodings, since or [-1] * len(texts), strict=True):
        before = [] if bos is None or one.ids[:1] == [bos] else [bos]
        ids, words = [*before, *one.ids], [*(None for _ in before), *(one.word_ids if divided else _words(text, one))]
        added = [*(True for _ in before), *(special and not causal for special in one.special_tokens_mask)]
        ends = [*(0 for _ in before), *(end for _, end in one.offsets)]
        wanted = [t for t in range(causal, len(ids)) if not added[t] and ends[t] > first]
        problem = "" if wanted else "has no piece to predict"
        if (size := len(ids) - causal) > max_length:
            problem = f"has {size} pieces, but the model reads {max_length}"
        found.append(Reading(ids, wanted, words, problem))
    return found


def _words(text: str, one: Any) -> list[int | None]:
    """The words of a text's pieces, where white space separates them; None for added pieces."""
    start, end = np.array(one.offsets, dtype=np.int64).reshape(-1, 2).T
    words = between_blanks(text, start, end).tolist()
    return [None if added else word for word, added in zip(words, one.special_tokens_mask, strict=True)]
