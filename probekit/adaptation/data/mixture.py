"""Several tasks as the data of one training: each batch has examples of one task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from probekit.adaptation.data.batches import Batches, Data
from probekit.adaptation.mixtures import Mixture

__all__ = ["ANNEALED", "MixedBatches", "MixedData"]

ANNEALED = "annealed"
"""Sampling by n to a power that falls from 1 in the first epoch to .2 in the last (Stickland & Murray 2019, 4.2)."""
OF_MIXTURE = 0x6D6978
"""Makes the draws of tasks differ from others with the same seed."""


class MixedData:
    """The examples of several tasks, one task after another; a batch of one task names its head, ``module``.

    Attributes
    ----------
    parts : dict[str, Data]
        The data of each task, by the name of its head in the learner.
    start : np.ndarray
        int64 (tasks + 1,), the number of each task's first example.
    """

    nbytes = 0.0

    def __init__(self, parts: Mapping[str, Data]) -> None:
        self.parts = dict(parts)
        self.start = np.cumsum([0, *(len(part) for part in self.parts.values())])
        self.length = np.concatenate([part.length for part in self.parts.values()])
        self.order = np.arange(len(self.length))

    def __len__(self) -> int:
        return len(self.length)

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        i = int(np.searchsorted(self.start, rows[0], side="right")) - 1
        name, part = list(self.parts.items())[i]
        return {**part.__getitems__([row - int(self.start[i]) for row in rows]), "module": name}


class MixedBatches(Sampler[list[int]]):
    """The batches of a mixture, whose order seed and epoch determine.

    An epoch has as many batches as one pass over all tasks. The task of each batch is drawn; the batches of a task are
    those of :class:`Batches`, pass after pass, and continue in the next epoch where they were.

    Attributes
    ----------
    data : MixedData
        The tasks.
    size : int
        Examples in a batch.
    sampling : str
        A method of :func:`probekit.adaptation.mixtures.weights`, or "annealed".
    epochs : int
        Epochs of the training, for annealing.
    seed : int
        Seed of the tasks and of the batches of each.
    group : bool, default True
        As for :class:`Batches`.
    """

    def __init__(
        self, data: MixedData, size: int, *, sampling: str, epochs: int, seed: int, group: bool = True
    ) -> None:
        self.data, self.size, self.sampling, self.epochs, self.seed = data, size, sampling, epochs, seed
        self.parts = [Batches(part, size, seed=seed, group=group) for part in data.parts.values()]
        self.batch_size, self.drop_last = size, False  # accelerate reads these
        self.epoch = 0

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the next order."""
        self.epoch = epoch

    def tasks(self, epoch: int) -> np.ndarray:
        """The number of the task of each batch of an epoch, int64 (batches,)."""
        sampling = self.sampling
        if sampling == ANNEALED:
            sampling = f"power-{1 - 0.8 * epoch / max(1, self.epochs - 1)}"
        sizes = tuple(len(part) for part in self.data.parts.values())
        seed = int(np.random.SeedSequence((self.seed, OF_MIXTURE, epoch)).generate_state(1)[0])
        return Mixture(sizes, sampling).draw(len(self), seed)

    def __iter__(self) -> Iterator[list[int]]:
        done = np.zeros(len(self.parts), dtype=np.int64)
        for epoch in range(self.epoch):
            done += np.bincount(self.tasks(epoch), minlength=len(self.parts))
        streams = [self._from(i, int(begun)) for i, begun in enumerate(done)]
        for task in self.tasks(self.epoch):
            yield next(streams[task])

    def _from(self, task: int, begun: int) -> Iterator[list[int]]:
        """The batches of a task after the first ``begun``, without end."""
        part, start = self.parts[task], int(self.data.start[task])
        times, skipped = divmod(begun, len(part))
        while True:
            part.set_epoch(times)
            for i, rows in enumerate([*part]):
                if i >= skipped:
                    yield [start + row for row in rows]
            times, skipped = times + 1, 0
