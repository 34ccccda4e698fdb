"""Random numbers by key, the same whichever other keys there are, and the sample of rows with the smallest ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

STEP, MIX = np.uint64(0x9E3779B97F4A7C15), (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def uniform(keys: np.ndarray, start: int, stop: int, seed: Sequence[int]) -> np.ndarray:
    """Numbers start … stop - 1 of the streams of some keys, float64 between 0 and 1, (stop - start, keys).

    SplitMix64 (Steele, Lea & Flood 2014), a stream for each key and seed.

    keys : uint64 (units,), hashes, so that streams start at random places.
    """
    own = keys
    for part in seed:
        own = _mixed(own ^ _mixed(np.array([part], dtype=np.uint64) + STEP))
    numbers = own + np.arange(start + 1, stop + 1, dtype=np.uint64)[:, None] * STEP
    return ((_mixed(numbers) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mixed(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * MIX[0]
    z = (z ^ (z >> np.uint64(27))) * MIX[1]
    return np.asarray(z ^ (z >> np.uint64(31)))


@dataclass(eq=False, slots=True)
class Reservoir:
    """The rows with the smallest priorities, which are random numbers by row: a uniform sample without replacement.

    Attributes
    ----------
    size : int
        The number of rows to keep.
    columns : dict[str, np.ndarray]
        ``priority`` (k,), ascending, and what else is kept of each row.
    """

    size: int
    columns: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns.get("priority", ()))

    def add(self, rows: Mapping[str, np.ndarray]) -> None:
        """Add rows: ``priority`` (n,), and the other columns."""
        if len(self) >= self.size > 0:
            keep = rows["priority"] < self.columns["priority"][-1]
            rows = {name: value[keep] for name, value in rows.items()}
        if not self.size or not len(rows["priority"]):
            return
        both = {name: np.concatenate([self.columns[name], v]) if self.columns else v for name, v in rows.items()}
        order = np.argsort(both["priority"], kind="stable")[: self.size]
        self.columns = {name: value[order] for name, value in both.items()}

    def plus(self, other: Reservoir) -> Reservoir:
        """The reservoir of both sets of rows."""
        out = Reservoir(self.size, dict(self.columns))
        if len(other):
            out.add(other.columns)
        return out
