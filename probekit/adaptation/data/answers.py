"""Questions with contexts as training data: windows, the pieces of answers, and texts of predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from probekit.adaptation.data.batches import padded
from probekit.adaptation.data.sequences import OVERLAP, SequenceData
from probekit.adaptation.data.text import windows_reader
from probekit.models.loading import TextReader
from probekit.models.transformers.tokens import Tokenizer
from probekit.tasks.task import Split, Task

__all__ = ["AnswerData"]

QUESTION = 64
"""Pieces of a question that are read, as in BERT's code."""


class AnswerData(SequenceData):
    """Questions, each with its context in one or several overlapping windows (Devlin et al. 2019, appendix A.5).

    Attributes
    ----------
    gold : np.ndarray
        int64 (s, 2), first and last piece of the first answer in each window; 0, 0 where it is not in the window.
    """

    def __init__(self, task: Task, split: Split, tokenizer: TextReader, *, overlap: int | None) -> None:
        reader = windows_reader(tokenizer, "questions")
        most = min(QUESTION, reader.max_length // 2)
        questions = _shortened(reader, [e.text for e in split], most)
        room = reader.max_length - most - reader.backend.num_special_tokens_to_add(is_pair=True)
        texts = [(text, e.pair or "") for text, e in zip(questions, split, strict=True)]
        tokens, of, second = reader.windows(texts, min(OVERLAP if overlap is None else overlap, max(0, room // 2)))
        super().__init__(task, split, tokenizer, tokens, of)
        self.truncated = sum(text != e.text for text, e in zip(questions, split, strict=True))
        self.context = second & ~tokens.special
        self.gold = np.array([self._pieces(i) for i in range(len(of))], dtype=np.int64).reshape(-1, 2)

    def _pieces(self, window: int) -> tuple[int, int]:
        spans = self.examples[self.of[window]].spans
        if not spans:
            return 0, 0
        tokens, start = self.pieces.tokens, self.pieces.start[window]
        rows = slice(start, start + tokens.length[window])
        inside = self.context[rows]
        covers = np.flatnonzero(
            inside & (tokens.char_end[rows] > spans[0].start) & (tokens.char_start[rows] < spans[0].end)
        )
        at = np.flatnonzero(inside)
        whole = len(covers) and tokens.char_start[rows][at[0]] <= spans[0].start
        return (int(covers[0]), int(covers[-1])) if whole and tokens.char_end[rows][at[-1]] >= spans[0].end else (0, 0)

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        sequences, inputs = self.sequences(rows), self.inputs(rows)
        at, length = self.pieces.of(sequences.tolist())
        context = padded(self.context[at], length, fill=False)
        return {"labels": torch.from_numpy(self.gold[sequences]), "first": inputs | {"context": context}}

    def decoded(self, rows: Sequence[int], found: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, None]]:
        """For each example the predicted text and its answers as a JSON list, from :meth:`Span.predict`'s (e, 3)."""
        sequences, tokens, out = self.sequences(rows), self.pieces.tokens, []
        for i, (sequence, first, last) in zip(rows, found.tolist(), strict=True):
            text, example = "", self.examples[i]
            if sequence >= 0:
                start = self.pieces.start[sequences[sequence]]
                text = (example.pair or "")[tokens.char_start[start + first] : tokens.char_end[start + last]].strip()
            gold = json.dumps(list(dict.fromkeys(example.answers)), ensure_ascii=False)
            out.append((np.array([text], dtype=object), np.array([gold], dtype=object), None))
        return out


def _shortened(reader: Tokenizer, texts: Sequence[str], most: int) -> list[str]:
    """The texts up to the end of their piece number ``most``."""
    tokens = reader(list(texts))
    start, out = np.cumsum(tokens.length) - tokens.length, []
    for text, a, n in zip(texts, start, tokens.length, strict=True):
        ends = tokens.char_end[a : a + n][~tokens.special[a : a + n]]
        out.append(text[: ends[most - 1]] if len(ends) > most else text)
    return out
