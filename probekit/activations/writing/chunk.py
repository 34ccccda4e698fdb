"""Vectors of some examples in memory: the loop that fills caches, without a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.label_sets import strings
from probekit.activations.pooling import TokenLevel
from probekit.activations.writing.extract import hand_out
from probekit.activations.writing.pieces import columns, permuted
from probekit.activations.writing.plan import Block, make_plan, token_places
from probekit.activations.writing.reading import Reading, Texts, of_slots, span_places, texts_read
from probekit.errors import ModelError
from probekit.models.encoder import Encoder
from probekit.tasks.task import Example

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Chunk:
    """The vectors of some examples.

    Attributes
    ----------
    vectors : list of np.ndarray
        float32 (rows, d) of each site; a row is an example, a word, or a piece of a span. Separately read pairs are
        [u; v], (n, 2 d).
    read : np.ndarray
        Bool (units,), which examples, words or targets have a row.
    truncated : np.ndarray
        Bool (n,), whether the example was too long.
    pieces : int
        Word pieces that the model has read.
    left_out : Counter[str]
        The number of conversations in which the chat template leaves out texts of a role.
    places : tuple of np.ndarray, optional
        For labels of spans: the first and the last row of the spans of each target that was read, int64 (m, spans).
    """

    vectors: list[np.ndarray]
    read: np.ndarray
    truncated: np.ndarray
    pieces: int
    left_out: Counter[str]
    places: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class _InMemory:
    """The pieces of the examples, as the loop reads them."""

    spec: Mapping[str, Any]
    blocks: tuple[Block, ...]
    token_start: np.ndarray
    piece_start: np.ndarray
    sentences: int
    arrays: Mapping[str, np.ndarray]

    def holds(self, name: str) -> bool:
        return name in self.arrays

    def array(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        return self.arrays[name][start:stop]


def read_chunk(
    encoder: Encoder,
    examples: Sequence[Example],
    reading: Reading,
    *,
    batch_tokens: int | None = None,
    on_batch: Callable[[int, int], None] = lambda sequences, tokens: None,
) -> Chunk:
    """Run a model on some examples; the vectors are bit-identical to those of a cache.

    Raises
    ------
    NonFiniteError
        If a vector is not finite; the message names example and layer.
    ModelError
        If the encoder carries a state from text to text.
    UsageError
        If an example has no piece at the positions and is not to be left out, or is another kind of text than others.
    """
    if getattr(encoder, "stateful", 0):
        raise ModelError(f"{encoder.name} carries its state from text to text, which a stream cannot cut into chunks.")
    texts = texts_read(encoder, examples, reading)
    read, cut, left_out, kept = ~texts.without, texts.cut, texts.left_out, examples
    if texts.without.any():
        kept = [e for e, has in zip(examples, read, strict=True) if has]
        if not kept:
            none = [np.empty((0, reading.sentences * width), np.float32) for _, width in reading.sites]
            return Chunk(none, read, cut, 0, left_out)
        texts = texts_read(encoder, kept, reading)
    source, of_unique = _in_memory(encoder, kept, texts, reading)
    count = int(source.token_start[-1]) if reading.level else len(texts.of_slot)
    out = [np.empty((count, width), np.float32) for _, width in reading.sites]

    def take(kind: str, row: int, vectors: Sequence[torch.Tensor]) -> None:
        for into, part in zip(out, vectors, strict=True):
            into[row : row + len(part)] = part.numpy()

    hand_out(source, encoder, take, batch_tokens=batch_tokens, on_batch=on_batch)
    pieces = int(texts.tokens.length.sum())
    if reading.level is None:
        found = [x[of_unique].reshape(len(kept), -1) for x in out]
        return Chunk(found, read, cut, pieces, left_out)
    vectors = [x[of_unique] for x in out]
    if reading.level != TokenLevel.CHOSEN:
        return Chunk(vectors, np.ones(len(of_unique), dtype=bool), cut, pieces, left_out)
    first, last, read = span_places(texts, examples, reading)
    return Chunk(vectors, read, cut, pieces, left_out, (first[read], last[read]))


def _in_memory(
    encoder: Encoder, examples: Sequence[Example], texts: Texts, reading: Reading
) -> tuple[_InMemory, np.ndarray]:
    """The texts as the loop reads them; and int64, where it puts the vectors of each slot, or of all its rows."""
    tokens, widths, n_slots = texts.tokens, [width for _, width in reading.sites], len(texts.of_slot)
    plan = make_plan(tokens.length, texts.of_slot, 4 * sum(widths))
    tokens, at = permuted(tokens, plan.order)
    arrays, rows = columns(tokens, reading.level, None if texts.marks is None else texts.marks.at(at))
    if tokens.characters is not None:
        arrays["/pieces/characters"] = tokens.characters
    length = tokens.length.astype(np.int64)
    source = _InMemory(
        spec={
            "store": "float32", "pooling": [reading.pooling] if reading.pooling else [], "tokens": reading.level,
            "layers": [str(site) for site, _ in reading.sites], "widths": widths, "sentences": reading.sentences,
            "device": encoder.spec.get("device"),
        },
        blocks=plan.blocks, token_start=token_places(rows, plan.blocks)[1],
        piece_start=token_places(length, plan.blocks)[1], sentences=reading.sentences,
        arrays=arrays
        | {
            "/pieces/length": length, "/index/row_to_unique": plan.row_to_unique.reshape(-1, reading.sentences),
            "/ids": strings([e.id for e in examples]),
        },
    )  # fmt: skip
    if reading.level:
        return source, of_slots(rows, plan.row_to_unique)[0]
    first = np.full(len(length), n_slots, dtype=np.int64)
    np.minimum.at(first, plan.row_to_unique, np.arange(n_slots))
    return source, first[plan.row_to_unique]
