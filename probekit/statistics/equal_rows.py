"""Rows of vectors that are equal: copies of one example, whatever their texts say.

Equal rows are no copies where vectors are symbols: fewer than 20 distinct ones, or fewer than one in 8 rows that are
made of few values in each column. Copies that would join more than a tenth of the rows across groups that are given
join nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import xxhash

from probekit.statistics.duplicates import merged

__all__ = ["FEWEST", "copies", "equal_everywhere", "row_codes", "with_copies"]

FEWEST = 20
"""Distinct rows, below which rows are symbols."""
RARE = 8  # rows a distinct one, from which on rows may be symbols
LARGE = 0.1  # share of the rows that copies may join, where groups are given
BLOCK = 1 << 22  # numbers hashed at once


def row_codes(x: Any) -> np.ndarray:
    """Numbers that are equal where rows of a matrix (n, d) are, -0 and 0 alike, int64 (n,)."""
    out = np.empty(x.shape[0], dtype=np.uint64)
    step = max(1, BLOCK // max(1, x.shape[1]))
    for start in range(0, len(out), step):
        block = np.ascontiguousarray(np.asarray(x[start : start + step]) + np.asarray(x[:0]).dtype.type(0))
        out[start : start + step] = [xxhash.xxh3_64_intdigest(row) for row in block]
    return out.view(np.int64)


def equal_everywhere(layers: Iterable[Callable[[], Any]]) -> np.ndarray | None:
    """Numbers (n,) that are equal where rows are in every layer; None where no two are.

    Only rows that are equal in the layers before are looked at in the next one: where there are no copies, one layer is
    read.
    """
    code = np.zeros(0, dtype=np.int64)
    for i, read in enumerate(layers):
        x = read()
        if not i:
            code = np.unique(row_codes(x), return_inverse=True)[1].reshape(-1)
        else:
            again = np.flatnonzero(np.bincount(code)[code] > 1)
            both = np.stack([code[again], row_codes(np.asarray(x[again]))], 1)
            code[again] = code.max() + 1 + np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
        if len(np.unique(code)) == len(code):
            return None
    return code if len(code) else None


def copies(code: np.ndarray, x: Any) -> np.ndarray | None:
    """``code`` (n,), equal where rows of x (n, d) are; None where no two are, and where rows are symbols."""
    distinct = len(np.unique(code))
    if x.shape[1] < 2 or distinct == len(code) or distinct < FEWEST:
        return None
    if distinct <= len(code) / RARE:
        columns = np.linspace(0, x.shape[1] - 1, min(x.shape[1], 8)).astype(np.int64)
        if max(len(np.unique(np.asarray(x[:, c]))) for c in columns) < distinct / 2:
            return None
    return code


def with_copies(given: np.ndarray | None, same: np.ndarray | None) -> np.ndarray | None:
    """Groups (n,) joined where copies are; those given where that would join too many, None where there are neither."""
    both = merged(given, same)
    if given is None or same is None or both is None:
        return both
    largest = np.bincount(np.unique(given, return_inverse=True)[1].reshape(-1)).max()
    return both if np.bincount(both).max() <= max(largest, LARGE * len(both)) else given
