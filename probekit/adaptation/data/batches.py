"""Which examples go together, and how their labels and pieces become a batch: of text and of cached layers alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from probekit.adaptation.heads.head import IGNORED

__all__ = ["Batches", "Data", "label_tensor", "padded", "word_tensors"]

MEGABATCH = 50  # batches that are sorted by length together; as transformers' LengthGroupedSampler does


class Data(Protocol):
    """What can be trained on: the dataset that torch's loader reads, one batch at a time.

    Attributes
    ----------
    length : np.ndarray
        int64 (n,), pieces of each example.
    order : np.ndarray
        int64 (n,), the examples as they lie on the disk.
    nbytes : float
        Of an average example; 0 where they are in memory.
    ids : np.ndarray
        Str (n,).
    groups : np.ndarray | None
        (n,), examples that belong together, which intervals draw as wholes; None where each stands for itself.
    labels : np.ndarray
        Of the examples, or of all words one after another.
    words : list[tuple[np.ndarray, np.ndarray]] | None
        Of token-labelled tasks, the first piece and the label of each word of each example.
    unread : int
        Words that are not among them, because the tokenizer left nothing of them or cut them off.
    truncated : int
        Texts that were cut off.
    """

    length: np.ndarray
    order: np.ndarray
    nbytes: float
    ids: np.ndarray
    labels: np.ndarray
    words: list[tuple[np.ndarray, np.ndarray]] | None
    unread: int
    truncated: int

    @property
    def groups(self) -> np.ndarray | None: ...
    def __len__(self) -> int: ...

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        """The batch of these examples: ``labels``, ``first`` and, of pairs read apart, ``second``."""


class Batches(Sampler[list[int]]):
    """Batches of example numbers, in an order that seed and epoch determine.

    Attributes
    ----------
    size : int
        Examples a batch; the last of an epoch may be smaller, and it alone.
    shuffle : bool, default True
        Draw the order anew in each epoch; without it, the longest first (so that a lack of memory shows at once).
    group : bool, default True
        Put examples of like length together (within 50 batches' worth), in batches that come in random order.
    window : int, default 2 << 30
        Bytes that are shuffled as one. Data on disk that are larger are read in pieces of consecutive examples, in
        random order, as many as fill the window, and the examples of these are shuffled; the disk is then read in long
        runs, and the window is all that has to stay in memory.
    """

    def __init__(
        self, data: Data, size: int, *, seed: int = 0, shuffle: bool = True, group: bool = True, window: int = 2 << 30
    ) -> None:
        self.data, self.size, self.seed, self.shuffle, self.group = data, size, seed, shuffle, group
        self.batch_size, self.drop_last = size, False  # accelerate asks, to deal batches out to processes
        self.window = max(size, int(window / data.nbytes)) if data.nbytes else len(data)
        self.epoch = 0

    def __len__(self) -> int:
        return sum(-(-len(part) // self.size) for part in self._windows())

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        short: list[int] | None = None
        for rows in self._batches():
            if len(rows) < self.size:
                short = rows  # comes last: accelerate, which deals batches out to processes, takes that for granted
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
        """The examples of each window: some sixteen runs of consecutive ones, drawn at random."""
        order = self.data.order
        if not self.shuffle or self.window >= len(order):
            yield order
            return
        run = self.size * max(1, self.window // 16 // self.size)  # whole batches: every epoch has as many
        runs = [order[i : i + run] for i in range(0, len(order), run)]
        drawn = range(len(runs)) if rng is None else rng.permutation(len(runs))
        count = max(1, self.window // run)
        for i in range(0, len(runs), count):
            yield np.concatenate([runs[j] for j in drawn[i : i + count]])


def padded(values: np.ndarray, length: np.ndarray, fill: Any) -> Tensor:
    """Rows of (t, …), one sequence after another, as (b, longest, …) with ``fill`` at padding on the right."""
    out = np.full((len(length), int(length.max(initial=1)), *values.shape[1:]), fill, dtype=values.dtype)
    out[mask_of(length).numpy()] = values
    return torch.from_numpy(out)


def mask_of(length: np.ndarray) -> Tensor:
    """bool (b, longest): True for each sequence's own places."""
    return torch.from_numpy(np.arange(int(length.max(initial=1))) < length[:, None])


def label_tensor(labels: np.ndarray) -> Tensor:
    """int64 classes, or float32 numbers, (b,)."""
    return torch.from_numpy(labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64))


def word_tensors(first_piece: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """First pieces of words, int64 (b, w), -1 at padding, and their labels, ``IGNORED`` there and where unlabelled."""
    count = np.array([len(x) for x in first_piece], dtype=np.int64)
    tags = np.concatenate(labels) if len(labels) else np.zeros(0, np.int64)
    tags = np.where(tags < 0, IGNORED, tags)
    pieces = np.concatenate(first_piece).astype(np.int64)
    return padded(pieces, count, -1), padded(tags.astype(np.int64), count, IGNORED)
