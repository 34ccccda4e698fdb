"""Vectors of spans from vectors of tokens (Tenney et al. 2019, section 4; Liu et al. 2019, section 2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.errors import UsageError

IN_MEMORY = 1 << 30
"""Vectors of spans of up to as many bytes are held in memory; more are made from the tokens whenever they are read."""


@dataclass(frozen=True, slots=True)
class SpanVectors:
    """Vectors of m targets, each of k spans, made a few rows at a time.

    Attributes
    ----------
    tokens : np.ndarray
        Float (t, d), may be memory-mapped.
    first, last : np.ndarray
        int64 (m, k), the first and last row of each span; rows of one span are contiguous.
    mean : bool
        Whether a span is the mean of its rows, d numbers, not its first and last row, 2 d.
    """

    tokens: np.ndarray
    first: np.ndarray
    last: np.ndarray
    mean: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        m, k = self.first.shape
        return m, k * self.tokens.shape[1] * (1 if self.mean else 2)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32)

    def __getitem__(self, rows: Any) -> np.ndarray:
        first, last = np.atleast_2d(self.first[rows]), np.atleast_2d(self.last[rows])
        parts = []
        for k in range(first.shape[1]):
            if self.mean:
                parts.append(_means(self.tokens, first[:, k], last[:, k]))
            else:
                parts += [self.tokens[first[:, k]], self.tokens[last[:, k]]]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


@dataclass(frozen=True, slots=True)
class Spans:
    """The pieces of the spans of m targets, for probes that pool them.

    Attributes
    ----------
    values : np.ndarray
        Float (t, d), may be memory-mapped.
    first, last : np.ndarray
        int64 (m, k), the first and last row of each of the k spans of a target.
    """

    values: Any
    first: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, values: Any, spans: Any) -> Spans:
        """Those of an array (m, k, 2), or (m, 2) for one span each; UsageError if they do not lie in the pieces."""
        bounds = np.asarray(spans)
        bounds = bounds[:, None] if bounds.ndim == 2 else bounds
        fits = bounds.ndim == 3 and bounds.shape[2] == 2 and bounds.dtype.kind in "iu"
        if not fits or (bounds[..., 0] < 0).any() or (bounds[..., 1] >= len(values)).any():
            raise UsageError(f"spans must be whole numbers (m, k, 2): first and last of the {len(values)} pieces.")
        if (bounds[..., 1] < bounds[..., 0]).any():
            raise UsageError("a span ends before it begins; give the first and the last piece of each.")
        return cls(values, bounds[..., 0].astype(np.int64), bounds[..., 1].astype(np.int64))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.first), self.values.shape[1]

    def at(self, rows: np.ndarray) -> Spans:
        """Those of some targets."""
        return Spans(self.values, self.first[rows], self.last[rows])

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Numbers of targets that follow each other, of about ``size`` pieces together."""
        of = np.cumsum((self.last - self.first + 1).sum(1)) // size
        yield from np.split(np.arange(len(of)), np.flatnonzero(np.diff(of)) + 1) if len(of) else ()

    def pieces(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The pieces of the span k of each target, one target after another, (p, d), and their number, (m,)."""
        length = self.last[:, k] - self.first[:, k] + 1
        start = np.repeat(self.first[:, k] - (np.cumsum(length) - length), length)
        return self.values[np.arange(len(start)) + start], length


def span_vectors(tokens: np.ndarray, first: np.ndarray, last: np.ndarray, *, mean: bool) -> Any:
    """float32 (m, k · d) or, of ends, (m, 2 k · d), in memory if they are small; arguments as for :class:`SpanVectors`.

    Examples
    --------
    >>> x = np.arange(6.0).reshape(3, 2)
    >>> span_vectors(x, np.array([[0]]), np.array([[2]]), mean=False)
    array([[0., 1., 4., 5.]], dtype=float32)
    >>> span_vectors(x, np.array([[0]]), np.array([[2]]), mean=True)
    array([[2., 3.]], dtype=float32)
    """
    lazy = SpanVectors(tokens, first, last, mean)
    return lazy[:] if lazy.shape[0] * lazy.shape[1] * 4 <= IN_MEMORY else lazy


def _means(tokens: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The mean of the rows of each span, in the order of the rows; float32 (m, d)."""
    length = last - first + 1
    start = np.cumsum(length) - length
    rows = np.arange(int(length.sum())) + np.repeat(first - start, length)
    if not len(rows):
        return np.zeros((0, tokens.shape[1]), dtype=np.float32)
    return np.add.reduceat(tokens[rows].astype(np.float32), start, axis=0) / length[:, None].astype(np.float32)


def pair_features(x: np.ndarray) -> np.ndarray:
    """[u; v] as [u; v; |u - v|; u * v], (n, 2d) to (n, 4d) (Conneau et al. 2017, section 3.1)."""
    u, v = np.split(x, 2, axis=1)
    return np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
