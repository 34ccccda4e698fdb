"""Examples that depend on each other: which are folded, shuffled and counted as one, and how labels are shuffled then.

Copies of a vector, words of one sentence or pairs that share a text are not independent. A group of them is kept in one
fold, and shuffled labels move from group to group as wholes, so that noise shows what groups alone give.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import rankdata

from probekit.errors import UsageError
from probekit.information.hashing import _kernels as kernels
from probekit.information.response import Response
from probekit.statistics.equal_rows import copies, row_codes, with_copies

FEWEST = 20
"""Groups, below which nothing is said."""
STRATUM = 10  # groups of about one size, at least, that exchange labels


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of each of n examples.

    Attributes
    ----------
    code : np.ndarray
        int64 (n,), 0 … count-1 in the order in which they first occur.
    """

    code: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray) -> Groups:
        """Groups of any numbers (n,)."""
        _, first, code = np.unique(codes, return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        return cls(rank[code.ravel()])

    def __len__(self) -> int:
        return len(self.code)

    def __getitem__(self, rows: np.ndarray) -> Groups:
        return Groups.of(self.code[rows])

    @cached_property
    def size(self) -> np.ndarray:
        """Examples of each group, int64 (count,)."""
        return np.bincount(self.code)

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.size)

    @property
    def effective(self) -> float:
        """Effective number of groups, all of one size: n² / Σ size² (Kish 1965, section 8.2)."""
        return len(self.code) ** 2 / float((self.size.astype(np.float64) ** 2).sum())

    @property
    def trivial(self) -> bool:
        """Whether each example is a group of its own."""
        return self.count == len(self.code)

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows by group (n,), and where each group begins (count,)."""
        return np.argsort(self.code, kind="stable"), np.cumsum(self.size) - self.size

    @cached_property
    def strata(self) -> tuple[np.ndarray, np.ndarray]:
        """Groups by size (count,), and where each stratum ends: sizes within a factor of two, ten groups at least."""
        ranked = np.argsort(self.size, kind="stable")
        level = np.log2(self.size[ranked]).astype(np.int64)
        ends = [int(e) for e in np.flatnonzero(np.diff(level)) + 1] + [self.count]
        kept: list[int] = []
        for end in ends:
            if end - (kept[-1] if kept else 0) >= STRATUM or not kept:
                kept.append(end)
            else:
                kept[-1] = end
        return ranked, np.array(kept, dtype=np.int64)

    def orders(self, k: int, seed: int) -> np.ndarray:
        """``k`` shuffles, int32 (k, n): from which row each takes its label.

        Groups of about one size exchange their labels as wholes: in their order, from a random one on, and from the
        first again after the last, as far as the group that takes them is long.
        """
        out = np.empty((k, len(self.code)), dtype=np.int32)
        states = np.random.default_rng(seed).integers(2**64, size=k, dtype=np.uint64)
        kernels.grouped_orders(*self.places, self.size, *self.strata, states, out)
        return out

    def variance(self, terms: np.ndarray) -> float:
        """Of the mean of ``terms`` (n,), from sums over groups."""
        sums = np.bincount(self.code, weights=terms - terms.mean())
        return float((sums**2).sum() / len(terms) ** 2 * self.count / max(self.count - 1, 1))


def grouped(
    given: np.ndarray | None, x: np.ndarray | None, rows: int, equal: np.ndarray | None = None
) -> Groups | None:
    """The groups of examples: those given, joined where vectors are equal; None where each example stands for itself.

    Parameters
    ----------
    given : np.ndarray, optional
        (n,), the group of each example, such as its sentence, document or shared text; any values.
    x : np.ndarray, optional
        (n, d). Equal rows are copies, as found by :mod:`probekit.statistics.equal_rows`. None where there are no
        vectors.
    equal : np.ndarray, optional
        (n,), equal where rows of x are; worked out for None.

    Raises
    ------
    UsageError
        If there are not ``rows`` of them.
    """
    own = None
    if given is not None:
        try:
            values = np.asarray(given)
        except ValueError:
            raise UsageError("groups are lists of several lengths; give one value for each label.") from None
        if values.shape != (rows,):
            raise UsageError(f"groups have the shape {values.shape}; expected ({rows},), one for each label.")
        own = Groups.of(values).code
    same = None if x is None or x.shape[1] < 2 else copies(row_codes(x) if equal is None else equal, x)
    both = with_copies(own, same)
    found = None if both is None else Groups.of(both)
    return None if found is None or found.trivial else found


def row_keys(x: np.ndarray) -> np.ndarray:
    """Two numbers for each row of x (n, d), equal where rows are, float64 (2, n); of -x their negatives."""
    weights = np.random.default_rng(0).standard_normal((2, x.shape[1]))
    key = np.empty((2, len(x)))
    kernels.row_keys(x, np.zeros(x.shape[1]), weights[0], weights[1], key)
    return key


def equal_keys(key: np.ndarray) -> np.ndarray:
    """Numbers that are equal where both keys (2, n) of rows are, int64 (n,)."""
    order = np.lexsort(key)
    new = np.append(False, (np.diff(key[:, order]) != 0).any(0))
    out = np.empty(key.shape[1], dtype=np.int64)
    out[order] = np.cumsum(new)
    return out


def in_order(y: Response, key: np.ndarray) -> Response:
    """Classes numbered by how many there are of them, and by where their vectors lie: not by what they are called.

    Numbers are turned so that each column rises with where vectors lie. The sign of ``key`` (2, n), that of the
    vectors, does not count.
    """
    by_place = np.lexsort(np.abs(key))
    place = np.abs(key[0])[by_place]
    if y.codes is None:
        ranks = rankdata(y.numbers, axis=0)[by_place] - (len(y) + 1) / 2
        return Response(numbers=np.where(place @ ranks < 0, -1, 1) * y.numbers)
    order = np.lexsort((np.bincount(y.codes[by_place], place), np.bincount(y.codes)))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return Response(codes=rank[y.codes])
