"""Tokenised text as training data for fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from probekit.activations.grouping import stored_groups
from probekit.adaptation.data.batches import label_tensor, mask_of, padded, word_tensors
from probekit.errors import UsageError
from probekit.models.encoder import Text, Tokens
from probekit.models.loading import TextReader
from probekit.tasks.task import Split, Task, TaskKind

__all__ = ["TextData"]


class TextData:
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

    nbytes = 0.0

    def __init__(self, task: Task, split: Split, tokenizer: TextReader, *, apart: bool) -> None:
        self.tokenizer, self.examples, self.kind = tokenizer, split.examples, task.kind
        texts = _texts(task.kind, split, apart)
        self.sequences = [_Pieces(tokenizer(list(some))) for some in texts]
        self.truncated = int(sum(s.tokens.truncated.sum() for s in self.sequences))
        lengths = np.stack([s.tokens.length for s in self.sequences])
        self.length = lengths.sum(0)
        if not lengths.all():
            empty = split[int(np.argmin(lengths.min(0)))]
            raise UsageError(
                f"{task.name} {split.name}, example {empty.id!r} has no pieces after tokenization; remove it."
            )
        self.order = np.arange(len(split))
        self.ids = np.array([e.id for e in split], dtype=object)
        self.labels = Task(task.name, task.kind, {split.name: split}).labels(split.name)
        self.unread = 0
        self.words: list[tuple[np.ndarray, np.ndarray]] | None = None
        if task.kind is TaskKind.SEQUENCE_LABELLING:
            self.words = self.sequences[0].words(self.labels, [len(e.words or ()) for e in split])
            self.unread = len(self.labels) - sum(len(at) for at, _ in self.words)

    @cached_property
    def groups(self) -> np.ndarray | None:
        return stored_groups(self.examples, self.kind)[0].get("/groups")

    def __len__(self) -> int:
        return len(self.length)

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        first, *second = (self._inputs(s, rows) for s in self.sequences)
        if self.words is None:
            labels = label_tensor(self.labels[list(rows)])
        else:
            first["words"], labels = word_tensors(*zip(*(self.words[i] for i in rows), strict=True))
        return {"labels": labels, "first": first, **({"second": second[0]} if second else {})}

    def _inputs(self, pieces: _Pieces, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        at, length = pieces.of(rows)
        t = pieces.tokens
        ids, more = t.token_ids[at].astype(np.int64), {}
        if t.characters is not None:  # each batch has its distinct words, so that none is encoded twice
            words, ids = np.unique(ids, return_inverse=True)
            more["characters"] = torch.from_numpy(t.characters[words])
        inputs = {
            "input_ids": padded(ids, length, self.tokenizer.padding_id),
            "attention_mask": mask_of(length).long(),
            "special": padded(t.special[at], length, fill=False),
            **more,
        }
        if self.tokenizer.type_ids:
            inputs["token_type_ids"] = padded(t.type_ids[at].astype(np.int64), length, 0)
        return inputs


class _Pieces:
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
