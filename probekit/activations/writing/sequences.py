"""What the main loop must know of the texts of a job: the pieces and slots of one block at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from probekit.activations.writing.plan import Block

__all__ = ["Sequences", "Source", "sequences", "texts_of_slots"]


class Source(Protocol):
    """The texts of a job as pieces, and the order in which they run; the attributes of :class:`Partial`."""

    @property
    def spec(self) -> Mapping[str, Any]: ...
    @property
    def blocks(self) -> Sequence[Block]: ...
    @property
    def token_start(self) -> np.ndarray: ...
    @property
    def piece_start(self) -> np.ndarray: ...
    @property
    def sentences(self) -> int: ...
    def holds(self, name: str) -> bool: ...
    def array(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Sequences:
    """The s distinct texts of a block, in the order in which they run.

    Attributes
    ----------
    length : np.ndarray
        int64 (s,).
    piece : np.ndarray
        int64 (s + 1,), the first piece of each, and the one after the last.
    slot : np.ndarray
        int64 (s,), the first slot with each text; it lies in the block.
    own : np.ndarray
        Bool (slots of the block,), whether a slot is the first with its text.
    """

    length: np.ndarray
    piece: np.ndarray
    slot: np.ndarray
    own: np.ndarray


def sequences(source: Source, b: int) -> Sequences:
    """The texts of block b."""
    block = source.blocks[b]
    length = source.array("/pieces/length", block.first, block.last).astype(np.int64)
    piece = np.append(0, np.cumsum(length)) + source.piece_start[b]
    text = texts_of_slots(source, block)
    inside = np.flatnonzero((text >= block.first) & (text < block.last))  # others are repeated from earlier blocks
    first = inside[np.unique(text[inside], return_index=True)[1]]
    own = np.zeros(len(text), dtype=bool)
    own[first] = True
    return Sequences(length, piece, first + block.slot_first, own)


def texts_of_slots(source: Source, block: Block) -> np.ndarray:
    """int64, the text in each slot of a block."""
    a, b, each = block.slot_first, block.slot_last, source.sentences
    rows = np.asarray(source.array("/index/row_to_unique", a // each, -(-b // each))).reshape(-1)
    return rows[a % each : a % each + b - a]
