"""Batching of examples, and conversion of their labels and pieces to tensors, for text and for cached layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from probekit.adaptation.heads.head import IGNORED

MEGABATCH = 50  # batches that are sorted by length together; as transformers' LengthGroupedSampler does


class Batched(Protocol):
    """A dataset that is read one batch at a time, as by torch's loader.

    Attributes
    ----------
    length : np.ndarray
        int64 (n,), number of pieces of each example.
    order : np.ndarray
        int64 (n,), the examples in their order on the disk.
    nbytes : float
        Average size of an example in bytes; 0 if they are in memory.
    """

    length: np.ndarray
    order: np.ndarray
    nbytes: float

    def __len__(self) -> int: ...

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        """The batch of these examples: ``labels``, ``first`` and, for separately encoded pairs, ``second``."""


class Data(Batched, Protocol):
    """Training data of a task.

    Attributes
    ----------
    ids : np.ndarray
        Str (n,).
    groups : np.ndarray | None
        (n,), groups of examples that intervals resample as a whole; None if all are independent.
    labels : np.ndarray
        Labels of the examples, or of all words one after another.
    words : list[tuple[np.ndarray, np.ndarray]] | None
        For token-labelled tasks, the first piece and the label of each word of each example.
    unread : int
        Number of words that are missing, because the tokenizer dropped or truncated them.
    truncated : int
        Number of truncated texts.
    """

    ids: np.ndarray
    labels: np.ndarray
    words: list[tuple[np.ndarray, np.ndarray]] | None
    unread: int
    truncated: int

    @property
    def groups(self) -> np.ndarray | None: ...


@runtime_checkable
class Decoding(Protocol):
    """Data whose predictions are texts."""

    def decoded(self, rows: Sequence[int], found: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, None]]:
        """For each of these examples the predicted text and the gold one, arrays (1,), from the head's predictions."""


class Numbered:
    """Data whose batches also tell which examples they hold: ``first["example"]``, int64 (b,).

    Attributes
    ----------
    data : Batched
        The data, whose attributes this has, too.
    """

    def __init__(self, data: Batched) -> None:
        self.data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        batch = self.data.__getitems__(rows)
        return {**batch, "first": {**batch["first"], "example": torch.tensor(rows)}}


class Batches(Sampler[list[int]]):
    """Batches of example indices, in an order that seed and epoch determine.

    Attributes
    ----------
    size : int
        Examples per batch; only the last batch of an epoch may be smaller.
    shuffle : bool, default True
        Draw a new order in each epoch; without it, the longest come first, so that a lack of memory shows at once.
    group : bool, default True
        Batch examples of similar length together (within 50 batches), with batches in random order.
    window : int, default 2 << 30
        Bytes that are shuffled together. Larger data on disk are read in runs of consecutive examples, in random order,
        until the window is full, and the examples of the window are shuffled. The disk is then read in long runs, and
        only the window must fit into memory.
    """

    def __init__(
        self,
        data: Batched,
        size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        group: bool = True,
        window: int = 2 << 30,
    ) -> None:
        self.data, self.size, self.seed, self.shuffle, self.group = data, size, seed, shuffle, group
        self.batch_size, self.drop_last = size, False  # accelerate reads these to distribute batches
        self.window = max(size, int(window / data.nbytes)) if data.nbytes else len(data)
        self.epoch = 0

    def __len__(self) -> int:
        return sum(-(-len(part) // self.size) for part in self._windows())

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the next order."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        short: list[int] | None = None
        for rows in self._batches():
            if len(rows) < self.size:
                short = rows  # must come last: accelerate relies on it when it distributes batches
            else:
                yield rows
        if short is not None:
            yield short

    def _batches(self) -> Iterator[list[int]]:
        if not self.shuffle:
            order = np.argsort(-self.data.length, kind="stable")
            yield from (part.tolist() for part in self._cut(order))
            return
        rng = np.random.default_rng((self.seed, self.epoch))
        for part in self._windows(rng):
            order = rng.permutation(part)
            if not self.group:
                yield from (rows.tolist() for rows in self._cut(order))
                continue
            mega = self.size * MEGABATCH
            batches = [
                rows
                for some in (order[i : i + mega] for i in range(0, len(order), mega))
                for rows in self._cut(some[np.argsort(-self.data.length[some], kind="stable")])
            ]
            yield from (batches[i].tolist() for i in rng.permutation(len(batches)))

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        return [order[i : i + self.size] for i in range(0, len(order), self.size)]

    def _windows(self, rng: np.random.Generator | None = None) -> Iterator[np.ndarray]:
        """The examples of each window: about sixteen random runs of consecutive examples."""
        order = self.data.order
        if not self.shuffle or self.window >= len(order):
            yield order
            return
        run = self.size * max(
            1, self.window // 16 // self.size
        )  # whole batches, so that all epochs have the same number
        runs = [order[i : i + run] for i in range(0, len(order), run)]
        drawn = range(len(runs)) if rng is None else rng.permutation(len(runs))
        count = max(1, self.window // run)
        for i in range(0, len(runs), count):
            yield np.concatenate([runs[j] for j in drawn[i : i + count]])


class Rounds(Sampler[list[int]]):
    """The batches of one of several processes: in each round, every process has one, in order of their ranks.

    If the last round has fewer batches than processes, the others repeat its last batch, which must not count.
    """

    def __init__(self, batches: Any, rank: int, count: int) -> None:
        self.batches, self.rank, self.count = batches, rank, count
        self.batch_size, self.drop_last = batches.size, False

    def __len__(self) -> int:
        return -(-len(self.batches) // self.count)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the next order."""
        self.batches.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        every = [*self.batches]
        for start in range(0, len(every), self.count):
            yield every[min(start + self.rank, len(every) - 1)]


def padded(values: np.ndarray, length: np.ndarray, fill: Any) -> Tensor:
    """Pad sequences that are concatenated in (t, …) to (b, longest, …), with ``fill`` on the right."""
    out = np.full((len(length), int(length.max(initial=1)), *values.shape[1:]), fill, dtype=values.dtype)
    out[mask_of(length).numpy()] = values
    return torch.from_numpy(out)


def mask_of(length: np.ndarray) -> Tensor:
    """bool (b, longest): False at padding."""
    return torch.from_numpy(np.arange(int(length.max(initial=1))) < length[:, None])


def piece_tensors(
    ids: np.ndarray, special: np.ndarray, length: np.ndarray, padding: int, characters: np.ndarray | None
) -> dict[str, Tensor]:
    """The inputs for pieces of sequences, concatenated in (t,); of words of characters, ids are rows of the latter."""
    ids, more = ids.astype(np.int64), {}
    if characters is not None:  # each batch has its distinct words, so that none is encoded twice
        words, ids = np.unique(ids, return_inverse=True)
        more["characters"] = torch.from_numpy(characters[words])
    mask = mask_of(length).long()
    inputs = {"input_ids": padded(ids, length, padding), "attention_mask": mask}
    return {**inputs, "special": padded(special, length, fill=False), **more}


def label_tensor(labels: np.ndarray) -> Tensor:
    """int64 classes, or float32 numbers, (b,); (b, k) for several labels (1 if one holds) or numbers."""
    return torch.from_numpy(labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64))


def word_tensors(first_piece: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """First pieces of words, int64 (b, w), -1 at padding, and labels, ``IGNORED`` at padding and if unlabelled."""
    count = np.array([len(x) for x in first_piece], dtype=np.int64)
    tags = np.concatenate(labels) if len(labels) else np.zeros(0, np.int64)
    tags = np.where(tags < 0, IGNORED, tags)
    pieces = np.concatenate(first_piece).astype(np.int64)
    return padded(pieces, count, -1), padded(tags.astype(np.int64), count, IGNORED)
