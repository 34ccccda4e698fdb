"""Batches of vectors from a cache that may be larger than memory, in the task's order or shuffled across shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probekit.activations.hdf5 import decode
from probekit.errors import UsageError
from probekit.sites import Site

if TYPE_CHECKING:
    from probekit.activations.cache import ActivationCache

RUN = 256
"""Consecutive rows that are read together."""
MIXED = 64
"""Runs, from all over the cache, that are in memory and mixed at a time."""


@dataclass(frozen=True, slots=True)
class VectorBatch:
    """Some rows of a cache.

    Attributes
    ----------
    rows : np.ndarray
        int64 (b,), the rows of the cache; ``cache.labels[batch.rows]`` are their labels.
    vectors : tuple[np.ndarray, ...]
        (b, d) for each layer, float32 or float16.
    """

    rows: np.ndarray
    vectors: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.rows)


def batches(
    cache: ActivationCache,
    layers: Sequence[int | str | Site] | None,
    size: int,
    seed: int | None,
    pooling: str | None,
    tokens: bool,
) -> Iterator[VectorBatch]:
    """The batches of :meth:`ActivationCache.batches`."""
    if size < 1:
        raise UsageError(f"size is {size}; expected the number of rows in a batch, 1 or more.")
    names = cache.layer_names(layers)
    prefix = "/tokens" if tokens else f"/pooled/{cache.pooling_name(pooling)}"
    if tokens and not cache.spec["tokens"]:
        raise UsageError(f"{cache.path} has no token vectors; create a cache with --tokens.")
    sources = [cache.rows(f"{prefix}/{name}") for name in names]
    encoded = cache.spec["store"] == "bfloat16"
    rows, vectors = np.empty(0, np.int64), [np.empty((0, *s.shape[1:]), s.dtype) for s in sources]
    for runs, order in _windows(len(sources[0]), seed):
        more = np.concatenate([np.arange(start, stop) for start, stop in runs])
        rows = np.concatenate([rows, more[order]])
        for i, source in enumerate(sources):
            read = np.concatenate([source[start:stop] for start, stop in runs])
            vectors[i] = np.concatenate([vectors[i], read[order]])
        whole = len(rows) // size * size
        for start in range(0, whole, size):
            yield _batch(rows, vectors, slice(start, start + size), encoded)
        rows, vectors = rows[whole:], [v[whole:] for v in vectors]
    if len(rows):
        yield _batch(rows, vectors, slice(None), encoded)


def _batch(rows: np.ndarray, vectors: Sequence[np.ndarray], at: slice, encoded: bool) -> VectorBatch:
    return VectorBatch(rows[at], tuple(decode(v[at]) if encoded else v[at].copy() for v in vectors))


def _windows(n: int, seed: int | None) -> Iterator[tuple[list[tuple[int, int]], np.ndarray]]:
    """What is read at a time: runs of rows (start, stop), and the order in which their rows are given out."""
    runs = [(start, min(n, start + RUN)) for start in range(0, n, RUN)]
    rng = None if seed is None else np.random.default_rng(seed)
    order = np.arange(len(runs)) if rng is None else rng.permutation(len(runs))
    for start in range(0, len(runs), MIXED):
        chosen = [runs[k] for k in order[start : start + MIXED].tolist()]
        count = sum(b - a for a, b in chosen)
        yield chosen, np.arange(count) if rng is None else rng.permutation(count)
