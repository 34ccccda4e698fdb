"""The loop: batches through the encoder, vectors through a writer thread, blocks to the disk and the journal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import xxhash

from probekit.activations.cache import xxh3
from probekit.activations.partial import Journal, Partial, writing
from probekit.activations.plan import batches
from probekit.activations.pooling import Pooling, Segments, TokenLevel, pool, pool_words, word_segments
from probekit.errors import ModelError, NonFiniteError
from probekit.models.encoder import Batch, Encoder

__all__ = ["run_blocks"]


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
    """Run the blocks ``todo``, write their vectors and note each in the journal once it is on the disk.

    on_batch : called with the numbers of sequences and of pieces that have gone through the model
    Raises NonFiniteError naming example and layer, unless ``allow_nonfinite``; CacheError where the disk fails.
    """
    import torch

    budget = batch_tokens or encoder.batch_tokens
    with _Output(partial, journal, budget, check=not allow_nonfinite) as output:
        for b in todo:
            block = partial.blocks[b]
            length = partial.length[block.first : block.last]
            output.begin(b)
            for part in batches(length, budget, mixed=encoder.mixed_lengths):
                first, last = block.first + part.start, block.first + part.stop
                p0, p1 = int(partial.piece[first]), int(partial.piece[last])
                batch = Batch(
                    partial.array("/pieces/token_ids", p0, p1), partial.array("/pieces/type_ids", p0, p1), length[part]
                )
                output.take(batch, first, p0)
                try:
                    encoder.encode(batch, output.sink)
                except torch.OutOfMemoryError as error:
                    raise ModelError(
                        f"out of memory with {p1 - p0} pieces in a batch; use a smaller --batch-tokens ({error})."
                    ) from error
                output.give()
                on_batch(last - first, p1 - p0)
            output.end(on_batch, block.last - block.first - int(np.count_nonzero(length)))


class _Output:
    """Where hidden states go: pooled rows gather until their block ends, token rows pass through two buffers.

    One thread writes while the model computes.
    """

    def __init__(self, partial: Partial, journal: Journal, budget: int, *, check: bool) -> None:
        import torch

        self.partial, self.journal, self.check = partial, journal, check
        spec = partial.spec
        self.store = getattr(torch, spec["store"])
        self.largest = float(torch.finfo(self.store).max)
        self.poolings = tuple(Pooling(p) for p in spec["pooling"])
        self.level = TokenLevel(spec["tokens"]) if spec["tokens"] else None
        self.layers: Sequence[str] = spec["layers"]
        self.width = int(spec["width"])
        self.fd = os.open(partial.file, os.O_RDWR)
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="probekit-writer")
        self.pending: list[Future[None]] = []
        longest = int(partial.length.max(initial=0))
        pin = torch.cuda.is_available()
        self.buffers = [
            torch.empty(len(self.layers), max(budget, longest), self.width, dtype=self.store, pin_memory=pin)
            for _ in range(2 if self.level else 0)
        ]
        self.used: list[Future[None] | None] = [None, None]
        self.turn = 0
        self.first_slot = np.empty(len(partial.length), dtype=np.int64)
        own = np.flatnonzero(partial.own)
        self.first_slot[partial.row_to_unique[own]] = own

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.writer.shutdown(wait=True, cancel_futures=error is not None)
            if error is None:
                self._settle(0)
        finally:
            os.close(self.fd)

    def begin(self, b: int) -> None:
        """Block b comes next."""
        import torch

        block = self.partial.blocks[b]
        rows = block.slot_last - block.slot_first
        self.block, self.slot_first = b, block.slot_first
        self.pooled = torch.zeros(len(self.poolings), len(self.layers), rows, self.width, dtype=self.store)
        self.token_row = int(self.partial.token_start[b])
        self.hashes = [xxhash.xxh3_64() for _ in (self.layers if self.level else ())]

    def take(self, batch: Batch, first: int, piece: int) -> None:
        """``batch``, unique sequences from ``first`` on, pieces from ``piece`` on, is about to be encoded."""
        stop = piece + len(batch.token_ids)
        self.batch, self.first, self.piece = batch, first, piece
        content = self.partial.array("/pieces/special", piece, stop) == 0
        self.word_index = self.partial.array("/pieces/word_index", piece, stop)
        self.keep = {p: content if p in (Pooling.MEAN, Pooling.MAX) else None for p in self.poolings}
        self.segments: dict[Pooling, Segments] = {}
        self.gathered: list[list] = [[] for _ in self.poolings]
        self.bounds: list = []
        if self.level:
            if self.level is TokenLevel.PIECE:
                self.rows = len(batch.token_ids)
            else:
                self.rows = len(word_segments(batch.length, self.word_index)[0])
            if (busy := self.used[self.turn]) is not None:
                busy.result()

    def sink(self, i: int, hidden) -> None:  # type: ignore[no-untyped-def]  # torch.Tensor, imported late
        """Take the hidden states (t, d) of layer i."""
        import torch

        for k, p in enumerate(self.poolings):
            if p not in self.segments:
                self.segments[p] = Segments.of(self.batch.length, self.keep[p], hidden.device)
            self.gathered[k].append(pool(hidden, self.segments[p], p))
        if self.level:
            if self.level is not TokenLevel.PIECE:
                hidden = pool_words(hidden, self.batch.length, self.word_index, self.level)
            if self.check and hidden.numel():
                self.bounds.append(torch.stack(torch.aminmax(hidden)))
            self.buffers[self.turn][i, : self.rows].copy_(hidden, non_blocking=hidden.is_cuda)

    def give(self) -> None:
        """The batch is through the model: keep its pooled rows, hand its token rows to the writer."""
        import torch

        q = slice(self.first, self.first + len(self.batch.length))
        rows = torch.from_numpy(self.first_slot[q] - self.slot_first)
        for k, layers in enumerate(self.gathered):
            vectors = torch.stack(layers).to(self.store).cpu()
            if self.check and not bool(torch.isfinite(vectors).all()):
                self._complain(q, ~torch.isfinite(vectors).all(-1), torch.stack(layers).cpu())
            self.pooled[k].index_copy_(1, rows, vectors)
        if self.level:
            if self.bounds:
                bounds = torch.stack(self.bounds).float().cpu()
                if not bool((bounds.abs() <= self.largest).all()):
                    self._complain_tokens(q, bounds)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            buffer, row, count, hashes = self.buffers[self.turn], self.token_row, self.rows, self.hashes
            self.used[self.turn] = self._submit(lambda: self._write_tokens(buffer, row, count, hashes))
            self.token_row += count
            self.turn = 1 - self.turn

    def end(self, on_batch: Callable[[int, int], None], empty: int) -> None:
        """The block is through the model: write what is left of it, and note it."""
        b, pooled, hashes = self.block, self.pooled, self.hashes
        self._submit(lambda: self._write_block(b, pooled, hashes))
        self._settle(0)  # so that no kill costs more than the block at work
        if empty:
            on_batch(empty, 0)

    def _submit(self, work: Callable[[], None]) -> Future[None]:
        def careful() -> None:
            with writing(self.partial.file):
                work()

        future = self.writer.submit(careful)
        self.pending.append(future)
        return future

    def _settle(self, leave: int) -> None:
        """Wait until at most ``leave`` pieces of work are pending; raise what any of them raised."""
        while len(self.pending) > leave:
            self.pending.pop(0).result()

    def _write_tokens(self, buffer, row: int, count: int, hashes: list) -> None:  # type: ignore[no-untyped-def]
        for i, layer in enumerate(self.layers):
            data = _bytes(buffer[i, :count])
            hashes[i].update(data)
            self._write(f"/tokens/{layer}", row, data)
        os.fdatasync(self.fd)  # now, beside the model's work, so that the end of the block has little to wait for

    def _write_block(self, b: int, pooled, hashes: list) -> None:  # type: ignore[no-untyped-def]
        block = self.partial.blocks[b]
        own = self.partial.own[block.slot_first : block.slot_last]
        digests = {f"/tokens/{layer}": h.intdigest() for layer, h in zip(self.layers, hashes, strict=False)}
        for k, p in enumerate(self.poolings):
            for i, layer in enumerate(self.layers):
                data = _bytes(pooled[k, i])
                digests[name := f"/pooled/{p}/{layer}"] = xxh3(data if own.all() else data.reshape(len(own), -1)[own])
                self._write(name, block.slot_first, data)
        os.fdatasync(self.fd)
        self.journal.append(b, [digests[s.name] for s in self.partial.streams])

    def _write(self, name: str, row: int, data: np.ndarray) -> None:
        """Write whole vectors from vector number ``row`` on."""
        extent = self.partial.extents.get(name)
        if extent is None:
            return
        at, view = extent.offset + row * self.width * extent.dtype.itemsize, data.reshape(-1).data
        while view:
            written = os.pwrite(self.fd, view, at)
            at, view = at + written, view[written:]

    def _complain(self, q: slice, bad, values) -> None:  # type: ignore[no-untyped-def]
        layer, sequence = (int(x[0]) for x in np.nonzero(bad.numpy()))
        self._raise(q.start + sequence, layer, overflow=bool(values[layer, sequence].isfinite().all()))

    def _complain_tokens(self, q: slice, bounds) -> None:  # type: ignore[no-untyped-def]
        layer = int(np.argmin((bounds.abs() <= self.largest).all(-1).numpy()))
        row = int(np.argmin(self.buffers[self.turn][layer, : self.rows].isfinite().all(-1).numpy()))
        if self.level is not TokenLevel.PIECE:
            row = int(word_segments(self.batch.length, self.word_index)[0][row])
        sequence = int(np.searchsorted(np.cumsum(self.batch.length), row, side="right"))
        self._raise(q.start + sequence, layer, overflow=bool(bounds[layer].isfinite().all()))

    def _raise(self, unique: int, layer: int, *, overflow: bool) -> None:
        slot = int(self.first_slot[unique])
        row = slot // int(self.partial.spec["sentences"])
        example = self.partial.array("/ids", row, row + 1)[0].decode()
        what = (
            f"too large for {self.partial.spec['store']}; use --store float32 or --store bfloat16"
            if overflow
            else "NaN or infinite; --dtype float32 may help, --allow-nonfinite keeps such values"
        )
        raise NonFiniteError(f"layer {self.layers[layer]} of example {example!r} (row {row}) is {what}.")


def _bytes(tensor) -> np.ndarray:  # type: ignore[no-untyped-def]
    """The bytes of a contiguous tensor, without a copy."""
    import torch

    return tensor.contiguous().view(torch.uint8).numpy()
