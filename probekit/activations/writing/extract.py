"""The main loop: batches through the encoder in several lanes, vectors through a writer thread, blocks to the disk.

On a CPU each lane is a thread that runs whole batches single-threaded. That is faster than many threads on one batch,
and the numbers depend neither on the batch nor on the number of lanes. On a GPU there is one lane.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from probekit.activations.hdf5 import xxh3
from probekit.activations.pooling import Segments, TokenLevel, pool, pool_words, poolings, token_rows
from probekit.activations.writing.journal import Journal, sync, writing
from probekit.activations.writing.partial import Partial
from probekit.activations.writing.plan import Block, Sequences, Source, batches, batches_in_order, sequences
from probekit.errors import ModelError, NonFiniteError
from probekit.files import open_to_write
from probekit.models.encoder import Batch, Encoder, begin_states
from probekit.runtime import torch_threads
from probekit.sites import Site

if TYPE_CHECKING:
    import torch


def run_blocks(
    partial: Partial,
    encoder: Encoder,
    todo: Iterable[int],
    journal: Journal,
    *,
    batch_tokens: int | None = None,
    allow_nonfinite: bool = False,
    on_batch: Callable[[int, int], None] = lambda sequences, tokens: None,
) -> None:
    """Run the blocks ``todo``, write their vectors, and append each to the journal once it is on the disk.

    An interruption costs at most one block per lane.

    Parameters
    ----------
    on_batch : callable
        Called with the numbers of sequences and pieces that the model has read.

    Raises
    ------
    NonFiniteError
        If a vector is not finite, unless ``allow_nonfinite``; the message names example and layer.
    CacheError
        If the file cannot be written.
    ModelError
        If memory runs out.
    """
    budget = batch_tokens or encoder.batch_tokens
    with (
        lanes_of(encoder) as (lanes, count),
        _FileOutput(partial, journal, budget, count, not allow_nonfinite, encoder.sites) as output,
    ):
        _run(output, encoder, todo, budget, lanes, count, on_batch)


def hand_out(
    source: Source,
    encoder: Encoder,
    take: Callable[[str, int, Sequence[torch.Tensor]], None],
    *,
    batch_tokens: int | None = None,
    on_batch: Callable[[int, int], None] = lambda sequences, tokens: None,
) -> None:
    """Run all blocks of a job and hand their vectors out, in the order of the rows, instead of writing them.

    Parameters
    ----------
    take : callable
        Called as ``take(kind, row, vectors)`` with the vectors (rows, width) of each layer from row ``row`` on, which
        are overwritten afterwards. ``kind`` is the name of a pooling, whose rows are slots, or "tokens". Slots that are
        not the first with their text hold no vectors.

    Raises
    ------
    NonFiniteError
        If a vector is not finite; the message names example and layer.
    ModelError
        If memory runs out.
    """
    budget = batch_tokens or encoder.batch_tokens
    with lanes_of(encoder) as (lanes, count), _HandedOutput(source, take, budget, count, encoder.sites) as output:
        _run(output, encoder, range(len(source.blocks)), budget, lanes, count, on_batch)


def _run(
    output: _Output,
    encoder: Encoder,
    todo: Iterable[int],
    budget: int,
    lanes: ThreadPoolExecutor,
    count: int,
    on_batch: Callable[[int, int], None],
) -> None:
    """The batches of the blocks ``todo`` through ``count`` lanes into an output."""
    partial, stateful = output.partial, begin_states(encoder)
    running: deque[tuple[Future[None], _Work]] = deque()

    def settle(leave: int) -> None:
        while len(running) > leave:
            future, work = running.popleft()
            future.result()
            output.take(work)
            on_batch(work.sequences, len(work.batch.token_ids))

    for b in todo:
        while output.unfinished >= count:  # lanes may work on two blocks while an earlier one is written
            if output.blocks:
                output.settle(len(output.blocks) - 1)
            else:
                settle(len(running) - 1)
        block = output.begin(b)
        length = block.sequences.length
        parts = (
            batches_in_order(len(length), partial.sentences, stateful)
            if stateful
            else batches(length, budget, mixed=encoder.mixed_lengths)
        )
        for part in parts:
            work = output.work(block, part)
            running.append((lanes.submit(work.run, encoder), work))
            settle(count)
        # the rest of the block is collected in order while the next one begins
        running.append((lanes.submit(lambda: None), output.last(block)))
    settle(0)


@contextmanager
def lanes_of(encoder: Encoder) -> Iterator[tuple[ThreadPoolExecutor, int]]:
    """Threads that run batches, and their number."""
    import torch

    alone = encoder.spec.get("device", "cpu") != "cpu" or getattr(encoder, "stateful", 0) or "tp_size" in encoder.spec
    count = 1 if alone else torch.get_num_threads()
    with torch_threads(1), ThreadPoolExecutor(count, "probekit-lane", lambda: torch.set_num_threads(1)) as lanes:
        yield lanes, count


@dataclass
class _Open:
    """A block in progress: reused buffers with its pooled rows, (slots, d) for each pooling and layer, and the running
    digests of its token rows."""

    number: int
    block: Block
    sequences: Sequences
    buffers: list[list[torch.Tensor]]
    pooled: list[list[torch.Tensor]]
    hashes: Sequence[Any]


@dataclass
class _Work:
    """A batch in progress: receives the encoder's hidden states, pools them, and copies token rows into its buffer."""

    output: _Output
    open: _Open
    batch: Batch
    first: int  # sequence of the block
    special: np.ndarray
    word_index: np.ndarray
    chosen: np.ndarray | None = None
    buffer: list[torch.Tensor] | None = None
    token_row: int = 0
    rows: int = 0
    segments: Segments | None = None
    pooled: list[list[torch.Tensor]] = field(default_factory=list)
    bounds: list[torch.Tensor] = field(default_factory=list)
    ends_block: bool = False

    @property
    def sequences(self) -> int:
        return len(self.batch.length)

    def run(self, encoder: Encoder) -> None:
        """Encode the batch and collect the vectors to store."""
        import torch

        self.pooled = [[] for _ in self.output.poolings]
        some = len(self.output.place) < len(encoder.sites) or "sites" in encoder.spec
        kept: Any = {"wanted": self.output.place} if some and getattr(encoder, "stops", False) else {}
        try:
            encoder.encode(self.batch, self.sink, **kept)
        except torch.OutOfMemoryError as error:
            raise ModelError(
                f"out of memory with {len(self.batch.token_ids)} pieces in a batch; use a smaller --batch-tokens."
            ) from error
        rows = torch.from_numpy(self.open.sequences.slot[self.first + np.flatnonzero(self.batch.length)])
        rows -= self.open.block.slot_first
        for k, layers in enumerate(self.pooled):
            if not layers:
                continue
            exact = torch.cat(layers, 1).cpu()
            vectors = exact.to(self.output.store)
            if self.output.check and not bool(vectors.sum(dtype=torch.float32).isfinite()):  # or it overflowed
                self.find_nonfinite(exact, vectors)
            for into, part in zip(self.open.pooled[k], vectors.split(self.output.widths, 1), strict=True):
                into.index_copy_(0, rows, part)
        if self.bounds:
            self.check_tokens(torch.stack(self.bounds).float().cpu())
        if self.buffer is not None and self.buffer[0].is_pinned():
            torch.cuda.synchronize(getattr(encoder, "device", None))
        self.pooled, self.bounds = [], []

    def sink(self, i: int, hidden: torch.Tensor) -> None:
        """Receive the hidden states (t, d) of layer i."""
        import torch

        if not len(hidden) or i not in self.output.place:
            return  # empty sentences, which a stateful encoder also reads, and layers that are not stored
        i = self.output.place[i]
        out, length = self.output, self.batch.length
        exact = hidden if hidden.dtype is out.store and not out.poolings else hidden.float()
        self.segments = self.segments or Segments.of(length[length > 0], self.special, hidden.device, self.chosen)
        for vectors, p in zip(self.pooled, out.poolings, strict=True):
            vectors.append(pool(exact, self.segments, p))
        if self.buffer is not None:
            if out.level not in (None, TokenLevel.PIECE):
                exact = pool_words(exact, self.batch.length, self.word_index, out.level)
            if out.check and exact.numel():
                self.bounds.append(torch.stack(torch.aminmax(exact)))
            self.buffer[i][: self.rows].copy_(exact, non_blocking=exact.is_cuda)

    def check_tokens(self, bounds: torch.Tensor) -> None:
        """Raise NonFiniteError if the minima and maxima (layers, 2) of the token rows cannot be stored."""
        good = (bounds.abs() <= self.output.largest).all(-1).numpy()
        if good.all() or self.buffer is None:
            return
        layer = int(np.argmin(good))
        row = int(np.argmin(self.buffer[layer][: self.rows].isfinite().all(-1).numpy()))
        if (level := self.output.level) not in (None, TokenLevel.PIECE):
            row = int(token_rows(self.batch.length, self.word_index, TokenLevel(str(level)))[0][row])
        sequence = int(np.searchsorted(np.cumsum(self.batch.length), row, side="right"))
        self.complain(sequence, layer, overflow=bool(bounds[layer].isfinite().all()))

    def find_nonfinite(self, exact: torch.Tensor, vectors: torch.Tensor) -> None:
        """Raise NonFiniteError for the first layer, and its first sequence, of pooled vectors (s, all layers' d)."""
        for layer, (stored, given) in enumerate(
            zip(vectors.split(self.output.widths, 1), exact.split(self.output.widths, 1), strict=True)
        ):
            if not bool((good := stored.isfinite().all(1)).all()):
                bad = int(np.argmin(good.numpy()))
                sequence = int(np.flatnonzero(self.batch.length)[bad])
                self.complain(sequence, layer, overflow=bool(given[bad].isfinite().all()))

    def complain(self, sequence: int, layer: int, *, overflow: bool) -> None:
        partial = self.output.partial
        row = int(self.open.sequences.slot[self.first + sequence]) // int(partial.spec["sentences"])
        example = partial.array("/ids", row, row + 1)[0].decode()
        problem = (
            f"is too large for {partial.spec['store']}; use --store float32 or --store bfloat16"
            if overflow
            else "is NaN or infinite; --dtype float32 may help, and --allow-nonfinite stores such values"
        )
        raise NonFiniteError(f"layer {self.output.layers[layer]} of example {example!r} (row {row}) {problem}.")


class _Output:
    """Output of vectors: pooled rows stay in memory until their block ends, token rows pass through a few buffers.

    One thread writes, in the order of the rows, while the lanes compute.
    """

    def __init__(self, partial: Source, budget: int, lanes: int, check: bool, sites: Sequence[Site]) -> None:
        import torch

        self.partial, self.check = partial, check
        spec = partial.spec
        self.store = getattr(torch, spec["store"])
        self.largest = float(torch.finfo(self.store).max)
        self.poolings = poolings(spec["pooling"])
        self.level = TokenLevel(spec["tokens"]) if spec["tokens"] else None
        self.layers: Sequence[str] = spec["layers"]
        self.place = {list(map(str, sites)).index(layer): k for k, layer in enumerate(self.layers)}
        self.widths: list[int] = spec.get("widths") or [int(spec["width"])] * len(self.layers)
        self.characters = partial.array("/pieces/characters") if partial.holds("/pieces/characters") else None
        self.chooses = partial.holds("/pieces/chosen")
        self.free: deque[tuple[list[torch.Tensor], Future[None] | None]] = deque()
        pin, longest = spec.get("device") == "cuda", _longest(partial, budget) if self.level else 0
        for _ in range(lanes + 1 if self.level else 0):
            self.free.append(([torch.empty(longest, d, dtype=self.store, pin_memory=pin) for d in self.widths], None))
        self.most_slots = max(b.slot_last - b.slot_first for b in partial.blocks)
        self.spare: deque[list[list[torch.Tensor]]] = deque()
        self.pending: deque[Future[None]] = deque()
        self.blocks: deque[Future[None]] = deque()
        self.unfinished = 0  # blocks that have begun but are not yet in the journal
        self.writer = ThreadPoolExecutor(1, "probekit-writer")

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.writer.shutdown(wait=True, cancel_futures=error is not None)
        if error is None:
            self.settle(0)

    def begin(self, b: int) -> _Open:
        """Begin block b."""
        import torch

        self.unfinished += 1
        block = self.partial.blocks[b]
        rows = block.slot_last - block.slot_first
        buffers = (
            self.spare.pop()
            if self.spare
            else [[torch.empty(self.most_slots, d, dtype=self.store) for d in self.widths] for _ in self.poolings]
        )
        nothing = float("nan") if self.chooses else 0.0
        pooled = [[buffer[:rows].fill_(nothing) for buffer in layers] for layers in buffers]
        self.token_row = int(self.partial.token_start[b])
        hashes = [xxhash.xxh3_64() for _ in (self.layers if self.level else ())]
        return _Open(b, block, sequences(self.partial, b), buffers, pooled, hashes)

    def work(self, block: _Open, part: slice) -> _Work:
        """A batch with some of a block's sequences; waits for a buffer if token rows are stored."""
        partial, of = self.partial, block.sequences
        a, b = int(of.piece[part.start]), int(of.piece[part.stop])
        flags = np.array(partial.array("/pieces/flags", a, b))
        batch = Batch(partial.array("/pieces/token_ids", a, b), flags >> 1, of.length[part], self.characters)
        special = (flags & 1).astype(bool)
        words = partial.array("/pieces/word_index", a, b) if self.level else special
        chosen = np.array(partial.array("/pieces/chosen", a, b), dtype=bool) if self.chooses else None
        if chosen is not None and self.level is TokenLevel.CHOSEN:
            words = chosen.astype(np.int32) - 1
        work = _Work(self, block, batch, part.start, special, words, chosen)
        if self.level:
            work.buffer, busy = self.free.popleft()
            if busy is not None:
                busy.result()
            work.token_row = self.token_row
            work.rows = b - a if self.level is TokenLevel.PIECE else len(token_rows(batch.length, words, self.level)[0])
            self.token_row += work.rows
        return work

    def last(self, block: _Open) -> _Work:
        """The marker after a block's last batch; it counts the sequences without pieces."""
        count = np.count_nonzero(block.sequences.length == 0)
        empty = 0 if self.partial.spec.get("stateful") else int(count)
        none = np.empty(0, dtype=np.int32)
        return _Work(self, block, Batch(none, none, np.zeros(empty, dtype=np.int64)), 0, none, none, ends_block=True)

    def take(self, work: _Work) -> None:
        """A batch and all before it are done: pass its token rows, or its whole block, to the writer."""
        if work.ends_block:
            self.blocks.append(self._submit(lambda: self._write_block(work.open)))
        elif work.buffer is not None:
            self.free.append((work.buffer, self._submit(lambda: self._write_tokens(work))))

    def settle(self, leave: int) -> None:
        """Wait until at most ``leave`` finished blocks are missing from the journal; raise the writer's errors."""
        while len(self.blocks) > leave:
            self.blocks.popleft().result()
            self.unfinished -= 1
        while self.pending and (self.pending[0].done() or leave == 0):
            self.pending.popleft().result()

    def _submit(self, write: Callable[[], None]) -> Future[None]:
        self.pending.append(future := self.writer.submit(write))
        return future

    def _write_tokens(self, work: _Work) -> None:
        raise NotImplementedError

    def _write_block(self, done: _Open) -> None:
        raise NotImplementedError


def _longest(source: Source, budget: int) -> int:
    """Pieces of the largest batch."""
    most, size = budget, int(source.spec.get("stateful", 0))
    for b in range(len(source.blocks)):
        of = sequences(source, b)
        if size:  # batches have a fixed number of sentences
            parts = batches_in_order(len(of.length), source.sentences, size)
            most = max(most, *(int(of.piece[part.stop] - of.piece[part.start]) for part in parts))
        else:
            most = max(most, int(of.length.max(initial=0)))
    return most


class _HandedOutput(_Output):
    """Output that calls a function with the vectors."""

    def __init__(
        self,
        source: Source,
        take: Callable[[str, int, Sequence[torch.Tensor]], None],
        budget: int,
        lanes: int,
        sites: Sequence[Site],
    ) -> None:
        super().__init__(source, budget, lanes, check=True, sites=sites)
        self.give = take

    def _write_tokens(self, work: _Work) -> None:
        assert work.buffer is not None
        self.give("tokens", work.token_row, [rows[: work.rows] for rows in work.buffer])

    def _write_block(self, done: _Open) -> None:
        for pooling, layers in zip(self.poolings, done.pooled, strict=True):
            self.give(str(pooling), done.block.slot_first, layers)
        self.spare.append(done.buffers)


class _FileOutput(_Output):
    """Output into the datasets of an unfinished cache, whose blocks are journalled once they are on the disk."""

    def __init__(
        self, partial: Partial, journal: Journal, budget: int, lanes: int, check: bool, sites: Sequence[Site]
    ) -> None:
        super().__init__(partial, budget, lanes, check, sites)
        self.file, self.journal = partial, journal
        self.fd = open_to_write(partial.file, os.O_RDWR)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            os.close(self.fd)

    def _submit(self, write: Callable[[], None]) -> Future[None]:
        def write_with_errors() -> None:
            with writing(self.file.file):
                write()

        return super()._submit(write_with_errors)

    def _write_tokens(self, work: _Work) -> None:
        assert work.buffer is not None
        for i, layer in enumerate(self.layers):
            data = _bytes(work.buffer[i][: work.rows])
            work.open.hashes[i].update(data.data)
            self._write(f"/tokens/{layer}", work.token_row, i, data)

    def _write_block(self, done: _Open) -> None:
        block, first = done.block, done.sequences.own
        digests = {f"/tokens/{x}": h.intdigest() for x, h in zip(self.layers, done.hashes, strict=False)}
        for k, p in enumerate(self.poolings):
            for i, layer in enumerate(self.layers):
                data = _bytes(done.pooled[k][i])
                first_rows = data if first.all() else data.reshape(len(first), -1)[first]
                digests[name := f"/pooled/{p}/{layer}"] = xxh3(first_rows)
                self._write(name, block.slot_first, i, data)
        self.spare.append(done.buffers)
        sync(self.fd)
        self.journal.append(done.number, [digests[s.name] for s in self.file.streams])

    def _write(self, name: str, row: int, layer: int, data: np.ndarray) -> None:
        """Write whole vectors of a layer, beginning at vector ``row``."""
        if (extent := self.file.extents.get(name)) is None:
            return  # the dataset is empty
        at, view = extent.offset + row * self.widths[layer] * extent.dtype.itemsize, data.reshape(-1).data
        while view:
            written = os.pwrite(self.fd, view, at)
            at, view = at + written, view[written:]


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a contiguous tensor, without a copy."""
    import torch

    return tensor.contiguous().view(torch.uint8).numpy()
