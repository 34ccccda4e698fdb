"""Vectors of some examples in memory: the loop that fills caches, without a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.label_sets import strings
from probekit.activations.writing.extract import hand_out
from probekit.activations.writing.input import texts_of
from probekit.activations.writing.pieces import columns, permuted
from probekit.activations.writing.plan import Block, make_plan, token_places, unique_texts
from probekit.errors import ModelError
from probekit.models.encoder import Encoder
from probekit.sites import Site
from probekit.tasks.task import Example, Split, TaskKind

if TYPE_CHECKING:
    import torch

__all__ = ["Chunk", "Reading", "read_chunk"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of texts.

    Attributes
    ----------
    kind : TaskKind
        The kind of task.
    pooling : str or None
        The pooling, for labels of texts.
    level : str or None
        The unit of rows, for labels of words.
    pairs : str or None
        "joint" or "separate" for pairs of sentences.
    sites : tuple of (Site, int)
        The sites and their widths, in the order of the model.
    """

    kind: TaskKind
    pooling: str | None
    level: str | None
    pairs: str | None
    sites: tuple[tuple[Site, int], ...]

    @property
    def sentences(self) -> int:
        """Sequences of an example."""
        return 2 if self.pairs == "separate" else 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """The vectors of some examples.

    Attributes
    ----------
    vectors : list of np.ndarray
        float32 (rows, d) of each site; a row is an example, or a word. Separately read pairs are [u; v], (n, 2 d).
    rows : np.ndarray
        int64 (n,), the number of rows of each example.
    truncated : np.ndarray
        Bool (n,), whether the example was too long.
    pieces : int
        Word pieces that the model has read.
    """

    vectors: list[np.ndarray]
    rows: np.ndarray
    truncated: np.ndarray
    pieces: int


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
    """
    if getattr(encoder, "stateful", 0):
        raise ModelError(f"{encoder.name} carries its state from text to text, which a stream cannot cut into chunks.")
    texts, text_of_slot = unique_texts(texts_of(Split("", tuple(examples)), reading.kind, reading.pairs))
    tokens = encoder.tokenize(texts)
    widths = [width for _, width in reading.sites]
    plan = make_plan(tokens.length, text_of_slot, 4 * sum(widths))
    truncated = tokens.truncated[text_of_slot].reshape(len(examples), -1).any(1)
    tokens, _ = permuted(tokens, plan.order)
    arrays, rows = columns(tokens, reading.level)
    start, token_start = token_places(rows, plan.blocks)
    length = tokens.length.astype(np.int64)
    if tokens.characters is not None:
        arrays["/pieces/characters"] = tokens.characters
    first = np.full(len(length), len(text_of_slot), dtype=np.int64)
    np.minimum.at(first, plan.row_to_unique, np.arange(len(text_of_slot)))
    source = _InMemory(
        spec={
            "store": "float32", "pooling": [reading.pooling] if reading.pooling else [], "tokens": reading.level,
            "layers": [str(site) for site, _ in reading.sites], "widths": widths, "sentences": reading.sentences,
            "device": encoder.spec.get("device"),
        },
        blocks=plan.blocks, token_start=token_start, piece_start=token_places(length, plan.blocks)[1],
        sentences=reading.sentences,
        arrays=arrays
        | {
            "/pieces/length": length, "/index/row_to_unique": plan.row_to_unique.reshape(-1, reading.sentences),
            "/ids": strings([e.id for e in examples]),
        },
    )  # fmt: skip
    count = int(token_start[-1]) if reading.level else len(text_of_slot)
    out = [np.empty((count, width), np.float32) for width in widths]

    def take(kind: str, row: int, vectors: Sequence[torch.Tensor]) -> None:
        for into, part in zip(out, vectors, strict=True):
            into[row : row + len(part)] = part.numpy()

    hand_out(source, encoder, take, batch_tokens=batch_tokens, on_batch=on_batch)
    if reading.level:
        start, rows = start[plan.row_to_unique], rows[plan.row_to_unique]
        at = np.repeat(start - (np.cumsum(rows) - rows), rows) + np.arange(int(rows.sum()))
    else:
        at, rows = first[plan.row_to_unique], np.ones(len(examples), dtype=np.int64)
    found = [x[at].reshape(-1 if reading.level else len(examples), reading.sentences * x.shape[1]) for x in out]
    return Chunk(found, rows, truncated, int(length.sum()))
