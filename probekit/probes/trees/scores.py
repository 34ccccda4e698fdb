"""How well predicted distances and depths agree with trees (Hewitt & Manning 2019, section 4).

The conventions are those of the authors' code, https://github.com/john-hewitt/structural-probes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from scipy.stats import rankdata

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


def tree_edges(distance: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The edges i · n + j, i < j, of the minimum spanning tree of the counted words, int64, increasing.

    A word between punctuation stays connected, because only the distances of counted words are looked at.

    Parameters
    ----------
    distance : np.ndarray
        (n, n).
    counted : np.ndarray
        Bool (n,), the words that are not punctuation.
    """
    at = np.flatnonzero(counted)
    i, j = at[edges(distance[np.ix_(at, at)])].T
    return np.sort(np.minimum(i, j) * len(distance) + np.maximum(i, j))


def uuas_counts(predicted: np.ndarray, gold: np.ndarray, counted: np.ndarray) -> tuple[int, int]:
    """Undirected edges of the gold tree that the predicted tree has, and all of them, among the counted words.

    Both trees are minimum spanning trees of the counted words; predicted and gold (n, n), counted bool (n,).
    """
    said, true = (tree_edges(d, counted) for d in (predicted, gold))
    return int(np.isin(true, said).sum()), len(true)


def root_hits(depth: np.ndarray, root: int, counted: np.ndarray) -> bool:
    """Whether the word of least depth among the counted ones, (n,), is the root, a position from 0."""
    at = np.flatnonzero(counted)
    return len(at) > 0 and int(at[np.argmin(depth[at])]) == root


def centred_ranks(values: np.ndarray) -> np.ndarray:
    """The ranks of each row, minus their mean, of length 1; (r, n). NaN for a constant row."""
    ranks = rankdata(values, axis=1)
    ranks -= ranks.mean(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(ranks / np.sqrt((ranks * ranks).sum(1, keepdims=True)))


def row_spearman(predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Spearman's coefficient of each row, float64 (r,); NaN for a constant row. Both are (r, n)."""
    return np.asarray((centred_ranks(predicted) * centred_ranks(gold)).sum(1))


def spearman(predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> np.ndarray:
    """For each sentence, the sum over its rows of Spearman's coefficient, and the number of rows; float64 (s, 2).

    A sentence has one row for each word's distances (DSpr), or one row of depths (NSpr). Sentences of one length are
    ranked together.
    """
    found = np.zeros((len(gold), 2))
    length = np.array([one.shape[-1] for one in gold])
    for n in np.unique(length):
        at = np.flatnonzero(length == n)
        said, true = (np.concatenate([np.atleast_2d(side[i]) for i in at.tolist()]) for side in (predicted, gold))
        rows = row_spearman(said, true).reshape(len(at), -1)
        found[at] = np.stack([np.nansum(rows, 1), np.isfinite(rows).sum(1)], 1)
    return found


def mean_over_lengths(sums: np.ndarray, length: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The mean over sentence lengths of the mean of all rows of sentences of that length, float64 (w,).

    Parameters
    ----------
    sums : np.ndarray
        Float (s, 2), from :func:`spearman`.
    length : np.ndarray
        Int (s,), words of each sentence; those of 5 to 50 words count.
    weights : np.ndarray, optional
        Float (w, s), weights of the sentences; by default 1, and w is 1.
    """
    of = np.arange(LENGTHS[0], LENGTHS[1] + 1) == length[:, None]
    weights = np.ones((1, len(sums))) if weights is None else weights
    total, number = (weights @ (of * column[:, None]) for column in sums.T)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(number > 0, total / number, 0).sum(1) / (number > 0).sum(1))
