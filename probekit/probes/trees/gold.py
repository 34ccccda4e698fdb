"""Distances and depths of words in dependency trees (Hewitt & Manning 2019, section 2)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probekit.errors import DataError

__all__ = ["chain", "check_heads", "depths", "distances", "sentences"]


def sentences(length: np.ndarray) -> Iterator[slice]:
    """The rows of each sentence; ``length`` int64 (s,)."""
    stop = np.cumsum(length)
    yield from map(slice, (stop - length).tolist(), stop.tolist())


def check_heads(heads: np.ndarray, length: np.ndarray) -> None:
    """Raise DataError unless the heads of every sentence are a tree: one root, every head inside, no cycle.

    Parameters
    ----------
    heads : np.ndarray
        Int (t,), the number of each word's head in its sentence, from 1; 0 for the root.
    length : np.ndarray
        Int (s,), words of each sentence.
    """
    for number, rows in enumerate(sentences(length)):
        _check(heads[rows], number)


def _check(heads: np.ndarray, number: int) -> None:
    n, roots = len(heads), np.flatnonzero(heads == 0)
    where = f"sentence {number}, counted from 0, is not a tree"
    if (heads < 0).any() or (heads > n).any():
        word = int(np.flatnonzero((heads < 0) | (heads > n))[0])
        raise DataError(f"{where}: word {word + 1} has the head {heads[word]}, but there are {n} words.")
    if len(roots) != 1:
        found = ", ".join(str(root + 1) for root in roots) or "none"
        raise DataError(f"{where}: it needs one word with the head 0, and has {len(roots)} ({found}).")
    known = np.zeros(n + 1, dtype=bool)
    known[0] = True
    for _ in range(n):
        known[1:] |= known[heads]
    if not known.all():
        word = int(np.flatnonzero(~known)[0])
        raise DataError(f"{where}: following the heads from word {word} leads into a cycle.")


def depths(heads: np.ndarray) -> np.ndarray:
    """The depth of each word of one tree, int64 (n,); the root has 0.

    Examples
    --------
    >>> depths(np.array([2, 0, 2, 3]))
    array([1, 0, 1, 2])
    """
    depth, at = np.zeros(len(heads), dtype=np.int64), heads.astype(np.int64)
    while at.any():
        depth += at > 0
        at = np.where(at > 0, heads[at - 1], 0)
    return depth


def distances(heads: np.ndarray) -> np.ndarray:
    """The number of edges between any two words of one tree, int64 (n, n).

    Examples
    --------
    >>> distances(np.array([2, 0, 2, 3]))
    array([[0, 1, 2, 3],
           [1, 0, 1, 2],
           [2, 1, 0, 1],
           [3, 2, 1, 0]])
    """
    depth = depths(heads)
    found = np.zeros((len(heads), len(heads)), dtype=np.int64)
    for word in np.argsort(depth, kind="stable")[1:]:
        above, known = heads[word] - 1, depth < depth[word]
        known |= (depth == depth[word]) & (found[:, above] > 0) & (np.arange(len(heads)) != word)
        found[word] = found[above] + 1
        found[:, word] = found[word]
        found[word, word] = 0
    return found


def chain(n: int) -> np.ndarray:
    """The distances of the tree in which each word hangs on the one before: |i - j|, int64 (n, n)."""
    at = np.arange(n)
    return np.abs(at[:, None] - at)
