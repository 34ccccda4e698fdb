"""Features of many vectors, kept sparse, and how well they describe the vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from probekit.dictionaries.dictionary import Dictionary
from probekit.errors import UsageError
from probekit.files import in_words
from probekit.runtime import memory
from probekit.threads import go_on

CELLS = 1 << 24
"""Activations of a block, which are in memory at a time: 64 MiB."""
DENSE = 0.05
"""The share of active features from which a block is decoded as a dense matrix."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Features of n vectors, or of pairs of vectors side by side, read as float32 rows (m, L) or (m, 2 L).

    Attributes
    ----------
    sparse : csr_array
        Their activations, float32 (n, L); those that are not there are 0.
    """

    sparse: csr_array

    @property
    def shape(self) -> tuple[int, int]:
        return self.sparse.shape

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return self.sparse.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        part = self.sparse[rows if isinstance(rows, slice) else np.arange(len(self))[rows]]
        if (needed := 4 * part.shape[0] * part.shape[1]) > memory():
            raise UsageError(
                f"{part.shape[0]:,} rows of {part.shape[1]:,} features take {in_words(needed)} of memory; this machine "
                f"has {in_words(memory())}. Take fewer examples, or a probe with --estimator k-sparse."
            )
        return part.toarray()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """How well features describe n vectors.

    Attributes
    ----------
    n : int
        Number of vectors.
    unexplained : float
        The share of variance that the dictionary does not explain: Σ‖x − x̂‖² / Σ‖x − x̄‖² over the vectors, x̂ what
        the features stand for, x̄ the mean of the vectors. The mean alone gives 1; more is worse than the mean. NaN if
        the vectors do not vary.
    active : float
        The mean number of active features of a vector (L0).
    dead : float
        The share of features that are active in none of the vectors.
    latents : int
        The number of features.
    """

    n: int
    unexplained: float
    active: float
    dead: float
    latents: int


def encode(
    dictionary: Dictionary, x: Any, rows: np.ndarray | None = None, *, each: int = 1
) -> tuple[csr_array, Reconstruction]:
    """The features of vectors, float32 (m, L), and how well they describe them; a block of rows at a time.

    Parameters
    ----------
    dictionary : Dictionary
        Of L features of d numbers.
    x : array
        Float (n, each · d), may be memory-mapped. A vector with NaN or infinity has NaN for all features, and does not
        count.
    rows : np.ndarray, optional
        Int (m,), the rows to encode (default: all).
    each : int
        How many vectors stand side by side in a row; their features do, too.

    Raises
    ------
    UsageError
        If the vectors have another width.
    """
    if x.shape[1] != each * dictionary.width:
        raise UsageError(
            f"sae:{dictionary.name} describes vectors of {dictionary.width:,} numbers, and these have "
            f"{x.shape[1] // each:,}. It belongs to another model or another site."
        )
    sums = _Sums(dictionary)
    parts = [sums.add(block.reshape(-1, dictionary.width)) for block in _blocks(dictionary, x, rows, each)]
    found = vstack(parts, format="csr") if parts else csr_array((0, dictionary.latents), dtype=np.float32)
    if each > 1:
        found = csr_array(found.reshape((found.shape[0] // each, each * dictionary.latents)))
    return found, sums.reconstruction()


def _blocks(dictionary: Dictionary, x: Any, rows: np.ndarray | None, each: int) -> Iterator[np.ndarray]:
    size = max(1, CELLS // (each * dictionary.latents))
    n = x.shape[0] if rows is None else len(rows)
    for start in range(0, n, size):
        go_on()
        at = slice(start, min(start + size, n))
        yield np.array(x[at] if rows is None else x[rows[at]], dtype=np.float32)


class _Sums:
    """What a reconstruction is computed from: sums over vectors, float64, about the first vector."""

    def __init__(self, dictionary: Dictionary) -> None:
        self.dictionary, self.n, self.count, self.error, self.square = dictionary, 0, 0, 0.0, 0.0
        self.first: np.ndarray | None = None
        self.total = np.zeros(dictionary.width)
        self.seen = np.zeros(dictionary.latents, dtype=bool)

    def add(self, block: np.ndarray) -> csr_array:
        """The features of some vectors (b, d), which are added to the sums."""
        import torch

        of = self.dictionary
        valid = np.isfinite(block).all(1)
        x = of.read(torch.from_numpy(np.where(valid[:, None], block, 0)))
        dense = of.activations(x).numpy()
        found = _sparse(dense)
        parts = found if found.nnz < DENSE * dense.size else dense
        error = (x - of.decoded(parts, x)).numpy()[valid].astype(np.float64)
        own = x.numpy()[valid].astype(np.float64)
        if self.first is None and len(own):
            self.first = own[0]
        own = own - self.first if len(own) else own
        self.n += len(own)
        self.error += float((error**2).sum())
        self.square += float((own**2).sum())
        self.total += own.sum(0)
        counted = found[valid] if not valid.all() else found
        self.count += counted.nnz
        self.seen[counted.indices] = True
        if valid.all():
            return found
        dense[~valid] = np.nan
        return _sparse(dense)

    def reconstruction(self) -> Reconstruction:
        n = max(self.n, 1)
        variance = self.square - float((self.total**2).sum()) / n
        unexplained = self.error / variance if variance > 1e-12 * max(self.square, 1e-300) else np.nan
        latents = self.dictionary.latents
        return Reconstruction(self.n, unexplained, self.count / n, 1 - float(self.seen.mean()), latents)


def _sparse(dense: np.ndarray) -> csr_array:
    at = np.flatnonzero(dense != 0)  # of bools it is several times as fast
    start = np.searchsorted(at, np.arange(len(dense) + 1) * dense.shape[1])
    return csr_array((dense.reshape(-1)[at], (at % dense.shape[1]).astype(np.int32), start), shape=dense.shape)


def pooled(features: csr_array, length: np.ndarray, *, largest: bool = False) -> csr_array:
    """The mean over the pieces of each text, or the largest activation, float32 (n, L); 0 for a text without pieces.

    Parameters
    ----------
    features : csr_array
        float32 (t, L), of the pieces of n texts, one text after another; not negative.
    length : np.ndarray
        Int (n,), pieces of each text.

    Examples
    --------
    >>> pieces = csr_array(np.array([[1, 0], [3, 2], [0, 5]], dtype=np.float32))
    >>> pooled(pieces, np.array([2, 0, 1])).toarray()
    array([[2., 1.],
           [0., 0.],
           [0., 5.]], dtype=float32)
    """
    n, latents = len(length), features.shape[1]
    text = np.repeat(np.arange(n), length)
    if not largest:
        share = (1 / length[text]).astype(np.float32)
        weights = csr_array((share, np.arange(len(text)), np.append(0, np.cumsum(length))), shape=(n, len(text)))
        return csr_array(weights @ features)
    key = np.repeat(text, np.diff(features.indptr)) * latents + features.indices
    order = np.argsort(key, kind="stable")
    cell, first = np.unique(key[order], return_index=True)
    values = np.maximum.reduceat(features.data[order], first) if len(first) else features.data
    return csr_array((values, (cell // latents, cell % latents)), shape=(n, latents))
