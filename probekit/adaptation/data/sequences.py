"""Examples that are several sequences each: the windows of long texts, contexts with questions, and choices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from probekit.adaptation.data.batches import label_tensor, padded
from probekit.adaptation.data.text import Pieces, SplitData, check_not_empty, inputs_of, windows_reader
from probekit.errors import UsageError
from probekit.models.encoder import Tokens
from probekit.models.loading import TextReader
from probekit.models.transformers.tokens import Tokenizer, truncation
from probekit.tasks.task import Split, Task

OVERLAP = 128
HEAD, WHOLE = 128, 510
"""Pieces that head-tail takes from the beginning, of those that BERT reads (Sun et al. 2019, section 5.3.1)."""


class SequenceData(SplitData):
    """Examples of a split, each of which is several sequences (see :class:`probekit.adaptation.data.batches.Data`).

    Attributes
    ----------
    of : np.ndarray
        int64 (s,), the example of each sequence, ascending.
    first, count : np.ndarray
        int64 (n,), the first sequence of each example, and their number.
    """

    def __init__(self, task: Task, split: Split, tokenizer: TextReader, tokens: Tokens, of: np.ndarray) -> None:
        super().__init__(task, split)
        self.tokenizer, self.of = tokenizer, of
        self.pieces = Pieces(tokens)
        check_not_empty(task, split, tokens.length[np.flatnonzero(np.diff(of, prepend=-1))])
        self.count = np.bincount(of, minlength=len(split))
        self.first = np.cumsum(self.count) - self.count
        self.length = np.bincount(of, tokens.length, len(split)).astype(np.int64)
        self.truncated = int(np.bincount(of, tokens.truncated, len(split)).astype(bool).sum())

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        return {"labels": label_tensor(self.labels[list(rows)]), "first": self.inputs(rows)}

    def sequences(self, rows: Sequence[int]) -> np.ndarray:
        """The sequences of some examples, one example after another."""
        count = self.count[list(rows)]
        return np.arange(int(count.sum())) + np.repeat(self.first[list(rows)] - (np.cumsum(count) - count), count)

    def inputs(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        """The inputs of the examples' sequences, and which of these belong to each example."""
        count = self.count[list(rows)]
        of_each = padded(np.arange(int(count.sum())), count, -1)
        return inputs_of(self.pieces, self.sequences(rows).tolist(), self.tokenizer) | {"sequences": of_each}


class WindowData(SequenceData):
    """Single texts in overlapping windows."""

    def __init__(self, task: Task, split: Split, tokenizer: TextReader, *, overlap: int | None) -> None:
        reader = windows_reader(tokenizer, "--long windows and hierarchical")
        most = (reader.max_length - reader.backend.num_special_tokens_to_add(is_pair=False)) // 2
        tokens, of, _ = reader.windows([e.text for e in split], min(OVERLAP if overlap is None else overlap, most))
        super().__init__(task, split, tokenizer, tokens, of)


class ChoiceData(SequenceData):
    """Each text with each of its choices, as pairs in one sequence."""

    def __init__(self, task: Task, split: Split, tokenizer: TextReader) -> None:
        if any(not e.choices for e in split):
            raise UsageError(f"{task.name} {split.name} has examples without choices; give the choices of each.")
        of = np.repeat(np.arange(len(split)), [len(e.choices) for e in split])
        tokens = tokenizer([(e.text, choice) for e in split for choice in e.choices])
        super().__init__(task, split, tokenizer, tokens, of)
        self.most = len(task.label_names)

    def inputs(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        inputs = super().inputs(rows)
        missing = self.most - inputs["sequences"].shape[1]  # all batches have as many columns, as have probabilities
        inputs["sequences"] = torch.nn.functional.pad(inputs["sequences"], (0, missing), value=-1)
        return inputs


class HeadAndTail:
    """A reader of the first and last pieces of single texts that are too long, instead of the first ones."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.max_length, self.type_ids, self.padding_id = tokenizer.max_length, tokenizer.type_ids, tokenizer.padding_id

    def __call__(self, texts: Sequence[Any]) -> Tokens:
        longest, self.tokenizer.max_length = self.tokenizer.max_length, 1 << 62
        try:
            with truncation(self.tokenizer.backend):
                tokens = self.tokenizer(texts)
        finally:
            self.tokenizer.max_length = longest
        return head_and_tail(tokens, longest)


def head_and_tail(tokens: Tokens, longest: int) -> Tokens:
    """The same sequences with at most ``longest`` pieces: special ones, 128 / 510 of the others from the beginning, and
    the remaining ones from the end."""
    keep = np.ones(len(tokens.token_ids), dtype=bool)
    start = np.cumsum(tokens.length) - tokens.length
    cut = tokens.length > longest
    for a, n in zip(start[cut], tokens.length[cut], strict=True):
        plain = a + np.flatnonzero(~tokens.special[a : a + n])
        room = longest - (n - len(plain))
        head = round(room * HEAD / WHOLE)
        keep[plain[head : len(plain) - (room - head)]] = False
    by_piece = {f.name: getattr(tokens, f.name)[keep] for f in fields(Tokens) if f.name in BY_PIECE}
    length = np.add.reduceat(keep, start).astype(tokens.length.dtype) if len(start) else tokens.length
    return replace(tokens, length=length, truncated=cut, **by_piece)


BY_PIECE = ("token_ids", "special", "type_ids", "word_index", "char_start", "char_end")


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
