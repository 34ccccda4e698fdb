"""The order of sequences: equal texts once, blocks that can be redone after an interruption, batches. Pure functions.

The rows of a job consist of *slots*, one per sequence: a row is one slot, or two if the sentences of a pair are read
separately (slot = 2 · row + sentence). Equal texts share one *unique* sequence. Uniques are numbered in the order in
which they run: block b runs the uniques ``blocks[b].first`` … ``blocks[b].last - 1``, and no two blocks share one.
Within a block they are sorted by length.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np

Of = TypeVar("Of", bound=Hashable)

LEAST_TOKENS = 32_768  # a smaller block costs speed: its batches mix more lengths, and it waits for the disk
MOST_TOKENS = 262_144
BLOCKS = 64  # blocks in a job, if the two bounds above allow it
MOST_BYTES = 32 << 20  # of pooled rows in a block, which stay in memory until it is written


@dataclass(frozen=True, slots=True)
class Block:
    """Uniques ``first`` … ``last - 1``, whose pooled rows are in slots ``slot_first`` … ``slot_last - 1``."""

    first: int
    last: int
    slot_first: int
    slot_last: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The order of the work.

    Attributes
    ----------
    order : np.ndarray
        int64 (s,), the index (in order of first occurrence) of the text that runs q-th.
    row_to_unique : np.ndarray
        int64 (slots,), the unique sequence of each slot.
    blocks : tuple[Block, ...]
        The units that are written, journalled and, after an interruption, redone.
    """

    order: np.ndarray
    row_to_unique: np.ndarray
    blocks: tuple[Block, ...]


def unique_texts(texts: Sequence[Of]) -> tuple[list[Of], np.ndarray]:
    """The distinct texts in order of first occurrence, and int64 (n,) the index of each text among them."""
    seen: dict[Of, int] = {}
    index = np.fromiter((seen.setdefault(text, len(seen)) for text in texts), dtype=np.int64, count=len(texts))
    return list(seen), index


def make_plan(length: np.ndarray, text_of_slot: np.ndarray, slot_bytes: int) -> Plan:
    """Cut the distinct texts into blocks and sort each block by length.

    Parameters
    ----------
    length : np.ndarray
        Int (s,), word pieces of each distinct text, in order of first occurrence.
    text_of_slot : np.ndarray
        int64 (slots,), from :func:`unique_texts`.
    slot_bytes : int
        Bytes of the pooled rows of one slot, for all layers and poolings.
    """
    s, slots = len(length), len(text_of_slot)
    total = int(length.sum())
    budget = int(np.clip(total // BLOCKS, LEAST_TOKENS, MOST_TOKENS))
    budget = -(-total // max(1, -(-total // budget)))  # blocks of equal size, to balance the workers
    most_slots = max(1, MOST_BYTES // max(1, slot_bytes))
    first_slot = np.full(s, slots, dtype=np.int64)
    np.minimum.at(first_slot, text_of_slot, np.arange(slots))

    cuts, tokens = [0], 0
    for u in range(s):
        if u > cuts[-1] and (tokens + length[u] > budget or first_slot[u] - first_slot[cuts[-1]] >= most_slots):
            cuts.append(u)
            tokens = 0
        tokens += int(length[u])
    cuts.append(s)

    slot_cuts = [*(int(first_slot[u]) for u in cuts[:-1]), slots]
    blocks = tuple(
        Block(a, b, x, y) for a, b, x, y in zip(cuts, cuts[1:], slot_cuts, slot_cuts[1:], strict=False) if b > a
    )
    order = np.empty(s, dtype=np.int64)
    for b in blocks:
        order[b.first : b.last] = b.first + np.argsort(length[b.first : b.last], kind="stable")
    position = np.empty(s, dtype=np.int64)
    position[order] = np.arange(s)
    return Plan(order, position[text_of_slot], blocks)


def plan_in_order(length: np.ndarray, sentences: int, size: int, slot_bytes: int) -> Plan:
    """The plan for an encoder that carries its state from batch to batch: every text runs, in order.

    Blocks consist of whole batches.

    Parameters
    ----------
    length : np.ndarray
        Int (slots,).
    sentences : int
        1, or 2 for pairs read separately (a batch has all first sentences before the second ones).
    size : int
        Examples in a batch.
    """
    n = len(length) // sentences
    order = np.concatenate(
        [np.arange(a, min(a + size, n)) * sentences + s for a in range(0, n, size) for s in range(sentences)]
    )
    budget = max(LEAST_TOKENS, int(length.sum()) // BLOCKS)
    most = max(1, MOST_BYTES // max(1, slot_bytes * sentences * size)) * size * sentences
    step = size * sentences
    tokens = np.add.reduceat(length[order], np.arange(0, len(order), step))
    cuts, block_tokens = [0], 0
    for k, count in enumerate(tokens):
        if k * step > cuts[-1] and (block_tokens + count > budget or k * step - cuts[-1] >= most):
            cuts.append(k * step)
            block_tokens = 0
        block_tokens += int(count)
    cuts.append(len(order))
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return Plan(order, position, tuple(Block(a, b, a, b) for a, b in pairwise(cuts)))


def token_places(rows: np.ndarray, blocks: Sequence[Block]) -> tuple[np.ndarray, np.ndarray]:
    """int64: the first of the ``rows`` (s,) of each sequence, and of each block (one more at the end)."""
    start = np.cumsum(rows) - rows
    return start, np.array([*(start[b.first] for b in blocks), rows.sum()], dtype=np.int64)


def batches_in_order(count: int, sentences: int, size: int) -> Iterator[slice]:
    """Batches for a block of ``count`` sequences from :func:`plan_in_order`."""
    for start in range(0, count, size * sentences):
        each = min(size * sentences, count - start) // sentences
        yield from (slice(start + s * each, start + (s + 1) * each) for s in range(sentences))


def batches(length: np.ndarray, budget: int, *, mixed: bool) -> Iterator[slice]:
    """Cut sequences, sorted by length, into batches of at most ``budget`` pieces (or one sequence).

    Parameters
    ----------
    length : np.ndarray
        Int (s,), ascending; batches leave out empty sequences.
    mixed : bool
        Whether a batch may have different lengths; if not, a change of length ends it.
    """
    start = int(np.searchsorted(length, 1))
    while start < len(length):
        stop, tokens = start, 0
        while (
            stop < len(length)
            and (stop == start or tokens + length[stop] <= budget)
            and (mixed or length[stop] == length[start])
        ):
            tokens += int(length[stop])
            stop += 1
        yield slice(start, stop)
        start = stop


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
