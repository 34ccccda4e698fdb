"""Tokenised text as training data for fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from probekit.activations.grouping import stored_groups
from probekit.adaptation.data.batches import label_tensor, padded, piece_tensors, word_tensors
from probekit.errors import UsageError
from probekit.models.encoder import Text, Tokens
from probekit.models.loading import TextReader
from probekit.models.transformers.tokens import Tokenizer
from probekit.tasks.task import Split, Task, TaskKind


class SplitData:
    """The examples of a split, all in memory: what kinds of :class:`~probekit.adaptation.data.batches.Data` share."""

    nbytes = 0.0
    words: list[tuple[np.ndarray, np.ndarray]] | None = None
    unread = 0

    def __init__(self, task: Task, split: Split) -> None:
        self.examples, self.kind = split.examples, task.kind
        self.order, self.ids = np.arange(len(split)), np.array([e.id for e in split], dtype=object)
        self.labels = replace(task, splits={split.name: split}).labels(split.name)

    @cached_property
    def groups(self) -> np.ndarray | None:
        """The group of each example, (n,)."""
        return stored_groups(self.examples, self.kind)[0].get("/groups")

    def __len__(self) -> int:
        return len(self.examples)


class TextData(SplitData):
    """The examples of a split as word pieces, all in memory (see :class:`probekit.adaptation.data.batches.Data`).

    Attributes
    ----------
    tokenizer : TextReader
        The encoder's tokenizer.
    apart : bool
        Encode the sentences of pairs separately, as two sequences.
    truncated : int
        Number of truncated texts.
    """

    def __init__(self, task: Task, split: Split, tokenizer: TextReader, *, apart: bool) -> None:
        super().__init__(task, split)
        self.tokenizer = tokenizer
        texts = _texts(task.kind, split, apart)
        self.sequences = [Pieces(tokenizer(list(some))) for some in texts]
        self.truncated = int(sum(s.tokens.truncated.sum() for s in self.sequences))
        lengths = np.stack([s.tokens.length for s in self.sequences])
        self.length = lengths.sum(0)
        check_not_empty(task, split, lengths.min(0))
        if task.kind is TaskKind.SEQUENCE_LABELLING:
            self.words = self.sequences[0].words(self.labels, [len(e.words or ()) for e in split])
            self.unread = len(self.labels) - sum(len(at) for at, _ in self.words)

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        first, *second = (inputs_of(s, rows, self.tokenizer) for s in self.sequences)
        if self.words is None:
            labels = label_tensor(self.labels[list(rows)])
        else:
            first["words"], labels = word_tensors(*zip(*(self.words[i] for i in rows), strict=True))
        return {"labels": labels, "first": first, **({"second": second[0]} if second else {})}


class MarkedData(TextData):
    """Texts with marked words, whose pieces the head reads."""

    def __init__(self, task: Task, split: Split, tokenizer: TextReader, *, apart: bool) -> None:
        super().__init__(task, split, tokenizer, apart=apart)
        if any(not e.spans or len(e.spans) != len(split[0].spans) for e in split):
            raise UsageError(f"{task.name} {split.name} has examples without marked words; choose another head.")
        joint = len(self.sequences) == 1 and split.paired
        second = (
            windows_reader(tokenizer, "marked words").windows(_texts(task.kind, split, apart)[0], None)[2]
            if joint
            else None
        )
        self.spans = np.array(
            [self._places(k, i, second) for k in range(len(self.sequences)) for i in range(len(split))]
        )
        self.spans = self.spans.reshape(len(self.sequences), len(split), -1, 2)

    def _places(self, k: int, row: int, second: np.ndarray | None) -> list[tuple[int, int]]:
        """First piece, and the one after the last, of an example's words in sequence k.

        second : bool (t,), the pieces of the second sentences of joint pairs.
        """
        t, start, example, found = self.sequences[k].tokens, self.sequences[k].start[row], self.examples[row], []
        rows = slice(start, start + t.length[row])
        for span in example.spans:
            if second is None and span.second is not bool(k):
                continue
            inside = ~t.special[rows] & (t.char_end[rows] > span.start) & (t.char_start[rows] < span.end)
            at = np.flatnonzero(inside if second is None else inside & (second[rows] == span.second))
            if not len(at):
                raise UsageError(
                    f"example {example.id!r}: the marked word is beyond the {self.tokenizer.max_length} pieces that "
                    "are read; raise --max-length, or remove the example."
                )
            found.append((int(at[0]), int(at[-1]) + 1))
        return found

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        batch = super().__getitems__(rows)
        for name, spans in zip(("first", "second"), self.spans, strict=False):
            batch[name]["spans"] = torch.from_numpy(spans[list(rows)])
        return batch


def windows_reader(tokenizer: TextReader, what: str) -> Tokenizer:
    """The tokenizer, if it can divide texts into windows; raises UsageError for models that read words."""
    if not isinstance(tokenizer, Tokenizer):
        raise UsageError(f"{what} need a model of transformers with word pieces.")
    return tokenizer


def check_not_empty(task: Task, split: Split, length: np.ndarray) -> None:
    """Raise UsageError for an example without pieces."""
    if not length.all():
        empty = split[int(np.argmin(length))]
        raise UsageError(f"{task.name} {split.name}, example {empty.id!r} has no pieces after tokenization; remove it.")


def inputs_of(pieces: Pieces, rows: Sequence[int], tokenizer: TextReader) -> dict[str, torch.Tensor]:
    """The model's inputs for some sequences, padded on the right."""
    at, length = pieces.of(rows)
    t = pieces.tokens
    inputs = piece_tensors(t.token_ids[at], t.special[at], length, tokenizer.padding_id, t.characters)
    if tokenizer.type_ids:
        inputs["token_type_ids"] = padded(t.type_ids[at].astype(np.int64), length, 0)
    return inputs


class Pieces:
    """The pieces of sequences, and where each sequence begins."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.start = np.cumsum(tokens.length) - tokens.length

    def of(self, rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The indices of the pieces of some sequences, and the lengths of the sequences."""
        start, length = self.start[list(rows)], self.tokens.length[list(rows)]
        return np.arange(int(length.sum())) + np.repeat(start - (np.cumsum(length) - length), length), length

    def words(self, labels: np.ndarray, count: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """First piece and label of each word with pieces, by sentence."""
        found, place = [], 0
        for start, length, words in zip(self.start, self.tokens.length, count, strict=True):
            index = self.tokens.word_index[start : start + length]
            word, first = np.unique(index, return_index=True)
            kept = word >= 0
            found.append((first[kept], labels[place : place + words][word[kept]]))
            place += words
        return found


def _texts(kind: TaskKind, split: Split, apart: bool) -> list[list[Text]]:
    if kind is TaskKind.SEQUENCE_LABELLING:
        return [[(e.before, e.words or (), e.after) if e.before or e.after else (e.words or (),) for e in split]]
    if not split.paired:
        return [[e.text for e in split]]
    if apart:
        return [[e.text for e in split], [e.pair or "" for e in split]]
    return [[(e.text, e.pair or "") for e in split]]
