"""How well predicted distances and depths agree with trees (Hewitt & Manning 2019, section 4).

The conventions are those of the authors' code, https://github.com/john-hewitt/structural-probes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from scipy.stats import rankdata

__all__ = ["PUNCTUATION", "edges", "mean_over_lengths", "root_hits", "row_spearman", "spearman", "uuas_counts"]

PUNCTUATION = ("''", ",", ".", ":", "``", "-LRB-", "-RRB-")
"""The tags of the Penn Treebank whose words no score of edges and roots counts."""
LENGTHS = (5, 50)
"""The shortest and the longest sentences in the mean of :func:`mean_over_lengths`."""


@numba.njit(cache=True)
def _kruskal(order: np.ndarray, n: int) -> np.ndarray:
    """The pairs, by number i · n + j in increasing order of length, that join two parts; (n - 1, 2)."""
    part, found, count = np.arange(n), np.empty((max(n - 1, 0), 2), np.int64), 0
    for pair in order:
        i, j = pair // n, pair % n
        a, b = part[i], part[j]
        if a != b:
            found[count, 0], found[count, 1] = i, j
            count += 1
            for k in range(n):
                if part[k] == b:
                    part[k] = a
    return found


def edges(distance: np.ndarray) -> np.ndarray:
    """The edges i, j of the minimum spanning tree, int64 (n - 1, 2); ties in the order of the rows (Kruskal 1956).

    Parameters
    ----------
    distance : np.ndarray
        Float (n, n).

    Examples
    --------
    >>> edges(np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]])).tolist()
    [[0, 1], [1, 2]]
    """
    return _kruskal(np.argsort(distance, axis=None, kind="stable"), len(distance))


def uuas_counts(predicted: np.ndarray, gold: np.ndarray, counted: np.ndarray) -> tuple[int, int]:
    """Undirected edges of the gold tree that the predicted tree has, and all of them, among the counted words.

    Both trees are minimum spanning trees of the counted words: a word between punctuation stays connected.

    Parameters
    ----------
    predicted, gold : np.ndarray
        (n, n), distances.
    counted : np.ndarray
        Bool (n,), the words that are not punctuation.
    """
    at = np.flatnonzero(counted)
    both = [np.sort(edges(d[np.ix_(at, at)]), axis=1) for d in (predicted, gold)]
    codes = [pair[:, 0] * len(at) + pair[:, 1] for pair in both]
    return int(np.isin(*codes).sum()), len(codes[1])


def root_hits(depth: np.ndarray, root: int, counted: np.ndarray) -> bool:
    """Whether the word of least depth among the counted ones, (n,), is the root, a position from 0."""
    at = np.flatnonzero(counted)
    return len(at) > 0 and int(at[np.argmin(depth[at])]) == root


def row_spearman(predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Spearman's coefficient of each row, float64 (r,); NaN for a constant row. Both are (r, n)."""
    ranks = [rankdata(values, axis=1) for values in (predicted, gold)]
    a, b = (r - r.mean(1, keepdims=True) for r in ranks)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1)))


def spearman(predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> np.ndarray:
    """For each sentence, the sum over its rows of Spearman's coefficient, and the number of rows; float64 (s, 2).

    A sentence has one row for each word's distances (DSpr), or one row of depths (NSpr).
    """
    found = [row_spearman(np.atleast_2d(p), np.atleast_2d(g)) for p, g in zip(predicted, gold, strict=True)]
    return np.array([(rows[np.isfinite(rows)].sum(), np.isfinite(rows).sum()) for rows in found], dtype=np.float64)


def mean_over_lengths(sums: np.ndarray, length: np.ndarray, lengths: tuple[int, int] = LENGTHS) -> float:
    """The mean over sentence lengths of the mean of all rows of sentences of that length.

    Parameters
    ----------
    sums : np.ndarray
        Float (s, 2), from :func:`spearman`, possibly weighted.
    length : np.ndarray
        Int (s,), words of each sentence.
    lengths : tuple[int, int], default (5, 50)
        The shortest and the longest length that counts.
    """
    total = np.stack([np.bincount(length, column, minlength=lengths[1] + 1) for column in sums.T])
    total = total[:, lengths[0] : lengths[1] + 1]
    some = total[1] > 0
    return float((total[0, some] / total[1, some]).mean()) if some.any() else float("nan")
