"""Equal rows of vectors: copies of an example, even if the texts differ.

Equal rows do not count as copies if the vectors are symbols: fewer than 20 distinct ones, or fewer than one in 8 rows
with few values in each column. Copies are ignored if they would join more than a tenth of the rows across given groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import xxhash

from probekit.statistics.duplicates import merged

FEWEST = 20
"""With fewer distinct rows, rows are symbols."""
RARE = 8  # rows per distinct one, from which on rows may be symbols
LARGE = 0.1  # fraction of the rows that copies may join if groups are given
BLOCK = 1 << 22  # numbers hashed at once


def row_codes(x: Any) -> np.ndarray:
    """Codes that are equal for equal rows of a matrix (n, d), int64 (n,); -0 equals 0."""
    out = np.empty(x.shape[0], dtype=np.uint64)
    step = max(1, BLOCK // max(1, x.shape[1]))
    for start in range(0, len(out), step):
        block = np.ascontiguousarray(np.asarray(x[start : start + step]) + np.asarray(x[:0]).dtype.type(0))
        out[start : start + step] = [xxhash.xxh3_64_intdigest(row) for row in block]
    return out.view(np.int64)


def equal_everywhere(layers: Iterable[Callable[[], Any]]) -> np.ndarray | None:
    """Codes (n,) that are equal for rows that agree in every layer; None if all rows differ.

    In each layer only rows that were equal so far are compared: without copies, one layer is read.
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
    """``code`` (n,), which is equal for equal rows of x (n, d); None if all rows differ, or rows are symbols."""
    distinct = len(np.unique(code))
    if x.shape[1] < 2 or distinct == len(code) or distinct < FEWEST:
        return None
    if distinct <= len(code) / RARE:
        columns = np.linspace(0, x.shape[1] - 1, min(x.shape[1], 8)).astype(np.int64)
        if max(len(np.unique(np.asarray(x[:, c]))) for c in columns) < distinct / 2:
            return None
    return code


def with_copies(given: np.ndarray | None, same: np.ndarray | None) -> np.ndarray | None:
    """Groups (n,) with copies joined; the given groups if that would join too many, None if there are neither."""
    both = merged(given, same)
    if given is None or same is None or both is None:
        return both
    largest = np.bincount(np.unique(given, return_inverse=True)[1].reshape(-1)).max()
    return both if np.bincount(both).max() <= max(largest, LARGE * len(both)) else given
