"""Concatenated arrays of different lengths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

__all__ = ["Ragged"]


class Ragged:
    """Concatenated vectors of many examples: ``ragged[i]`` is (length[i], d).

    Attributes
    ----------
    values : np.ndarray
        (t, d), or (t,) for ids of pieces.
    start, length : np.ndarray
        int64 (n,).
    """

    def __init__(self, values: np.ndarray, start: np.ndarray, length: np.ndarray) -> None:
        self.values, self.start, self.length = values, start, length

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, i: int) -> np.ndarray:
        start = int(self.start[i])
        return self.values[start : start + int(self.length[i])]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))
