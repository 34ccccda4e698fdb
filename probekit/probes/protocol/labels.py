"""What a diagnostic classifier is given: labels of a split, and inputs that need no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probekit.errors import UsageError

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["Inputs", "Labels"]


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of one split.

    y : int (n,) with -1 for unlabelled, or float (n,) with NaN
    groups : int (n,), rows that are held out and resampled together: the sentence of each word, where a row is a word,
        or the domain of each example; None where every row stands for itself
    types : int (n,), the word type of each row, numbered alike in train and dev; None where rows are no words
    ids : str (n,), names of the rows; None for their numbers
    seen : bool (n,), of dev: whether the example occurs in train exactly
    """

    y: np.ndarray
    groups: np.ndarray | None = None
    types: np.ndarray | None = None
    ids: np.ndarray | None = None
    seen: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("groups", "types", "ids", "seen"):
            if (value := getattr(self, name)) is not None and np.shape(value) != np.shape(self.y):
                raise UsageError(f"{name} {np.shape(value)} do not go with {np.shape(self.y)} labels.")

    @property
    def known(self) -> np.ndarray:
        """Which rows are labelled, bool (n,)."""
        return ~np.isnan(self.y) if self.y.dtype.kind == "f" else self.y >= 0

    def __getitem__(self, rows: np.ndarray) -> Labels:
        return Labels(
            self.y[rows],
            *(None if v is None else v[rows] for v in (self.groups, self.types, self.ids, self.seen)),
        )


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is probed beside the layers and needs no model, for train and dev.

    bag : float32 csr (n, v), whose pieces occur; length : float32 (n, k)
    """

    bag: tuple[sparse.csr_matrix, sparse.csr_matrix] | None = None
    length: tuple[np.ndarray, np.ndarray] | None = None
