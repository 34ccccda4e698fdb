"""Mixtures of objectives: how often each one is trained, and how much its loss counts.

Bowman et al. (2018, section 4 and tables 4 and 5) draw the objective of each step with probability proportional to
:math:`n^{0.75}` for n examples, and leave losses as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from probekit.adaptation.data.batches import Batches, Data
from probekit.errors import UsageError, did_you_mean

FALLING = 250.0
"""A metric m that falls, such as perplexity, enters the macro average as 1 - m / 250 (section 4)."""

PLAIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "uniform": np.ones_like,
    "proportional": lambda n: n,
    "log-proportional": np.log,
    "inverse": lambda n: 1 / n,
    "inverse-log": lambda n: 1 / np.log(n),
}
WITH_NUMBER: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "power": lambda n, power: n**power,
    "capped": np.minimum,
    "softmax": lambda n, temperature: np.exp(n / temperature),
}
WEIGHTS = (*PLAIN, *(f"{name}-NUMBER" for name in WITH_NUMBER))
"""The names of :func:`weights`."""


def weights(method: str, sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """A weight for each objective of a mixture, from the number of its examples.

    Parameters
    ----------
    method : str
        "uniform", "proportional" (n), "log-proportional" (log n), "power-0.75" (n to this power), "capped-16384" (n, at
        most this number: examples-proportional mixing), "softmax-1e6" (exp of n divided by this number), "inverse",
        "inverse-log", or the weights themselves ("2,3,4").
    sizes : sequence of int
        Number of training examples of each objective (or of batches).

    Returns
    -------
    np.ndarray
        float64 (objectives,), positive.

    Raises
    ------
    UsageError
        For an unknown method, an objective without examples, or sizes for which a weight is not a positive number.

    Examples
    --------
    >>> weights("power-0.5", [400, 100]).tolist()
    [20.0, 10.0]
    """
    n = np.asarray(sizes, dtype=np.float64)
    if not len(n) or (n < 1).any():
        raise UsageError(f"a mixture needs examples of each objective; it has {', '.join(f'{x:,.0f}' for x in n)}.")
    name, _, number = method.partition("-")
    with np.errstate(all="ignore"):
        if method in PLAIN:
            found = PLAIN[method](n)
        elif "," in method:
            found = _given(method, len(n))
        elif name in WITH_NUMBER and (value := _number(number)) is not None:
            found = WITH_NUMBER[name](n, value)
        else:
            raise UsageError(f"weights are {method!r}; {did_you_mean(method, WEIGHTS)}")
    if not np.isfinite(found).all() or (found <= 0).any():
        raise UsageError(
            f"{method} gives weights that are not positive numbers for sizes {', '.join(map(str, sizes))}."
        )
    return found


def _given(method: str, count: int) -> np.ndarray:
    found = [_number(part) or np.nan for part in method.split(",")]
    if len(found) != count or np.isnan(found).any():
        raise UsageError(f"weights are {method!r}; expected {count} positive numbers with commas.")
    return np.array(found)


def _number(text: str) -> float | None:
    """A positive finite number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < np.inf else None


@dataclass(frozen=True, slots=True)
class Mixture:
    """How several objectives share the steps of a training.

    Attributes
    ----------
    sizes : tuple of int
        Number of training examples of each objective.
    sampling : str
        The objective of a step is drawn in proportion to these :func:`weights`.
    scaling : str
        Losses are multiplied by these weights, divided by the largest.

    Examples
    --------
    >>> mixture = Mixture((67_349, 8_551))
    >>> mixture.probabilities.round(2).tolist()
    [0.82, 0.18]
    >>> mixture.draw(steps=6, seed=0).tolist()
    [0, 0, 0, 0, 0, 1]
    """

    sizes: tuple[int, ...]
    sampling: str = "power-0.75"
    scaling: str = "uniform"

    def __post_init__(self) -> None:
        _ = self.probabilities, self.scales  # a bad name or size is reported before anything is trained

    @property
    def probabilities(self) -> np.ndarray:
        """float64 (objectives,), summing to 1."""
        found = weights(self.sampling, self.sizes)
        shares: np.ndarray = found / found.sum()
        return shares

    @property
    def scales(self) -> np.ndarray:
        """float64 (objectives,), the factor of each loss; the largest is 1."""
        found = weights(self.scaling, self.sizes)
        factors: np.ndarray = found / found.max()
        return factors

    def draw(self, steps: int, seed: int) -> np.ndarray:
        """The objective of each step, int64 (steps,).

        More steps begin with the same objectives, so an interrupted training continues where it was.
        """
        uniform = np.random.default_rng(seed).random(steps)
        ends = np.cumsum(self.probabilities)
        return np.minimum(np.searchsorted(ends, uniform, side="right"), len(ends) - 1)


def macro_average(values: Sequence[float], rising: Sequence[bool]) -> float:
    """The mean validation metric of a mixture, by which its checkpoints are compared: larger is better.

    Parameters
    ----------
    values : sequence of float
        The main metric of each objective.
    rising : sequence of bool
        Whether larger values are better; others count as 1 - m / 250.

    Examples
    --------
    >>> macro_average([0.8, 50.0], [True, False])
    0.8
    """
    return float(np.mean([m if up else 1 - m / FALLING for m, up in zip(values, rising, strict=True)]))


def since_best(history: Sequence[float], *, rising: bool = True) -> int:
    """How many validations ago the best value was reached, 0 for the last one; of equal values the first is the best.

    jiant stops when this exceeds its patience.

    Examples
    --------
    >>> since_best([0.5, 0.7, 0.6, 0.7])
    2
    """
    values = np.asarray(history, dtype=np.float64)
    return len(values) - 1 - int(np.argmax(values if rising else -values))


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
