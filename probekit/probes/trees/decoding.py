"""The best tree for given scores of arcs: maximum spanning arborescences with one root."""

from __future__ import annotations

import numba
import numpy as np

from probekit.errors import UsageError


def best_tree(scores: np.ndarray) -> np.ndarray:
    """The heads of the tree with the largest sum of scores, int64 (n,), from 1; 0 for the one root.

    The algorithm of Chu & Liu 1965 and Edmonds 1967. Arcs from the root are lowered by more than all others can differ,
    so that the best tree has one root (Stanojević & Cohen 2021, A Root of a Problem, section 4).

    Parameters
    ----------
    scores : np.ndarray
        Float (n, n + 1): [i, j] is the score of head j of word i + 1; column 0 is the root. Finite, except that a word
        is never its own head.

    Raises
    ------
    UsageError
        If the shape is another one, or a score is not finite.

    Examples
    --------
    >>> best_tree(np.array([[0.0, 0.0, 2.0], [1.5, 2.0, 0.0]]))  # 1 <- 2 and 2 <- 1 would be a cycle
    array([2, 0])
    """
    n = len(scores)
    if scores.shape != (n, n + 1):
        raise UsageError(f"scores has the shape {scores.shape}; expected (n, n + 1), with the root in column 0.")
    weight = np.zeros((n + 1, n + 1))
    weight[1:] = scores
    np.fill_diagonal(weight, 0.0)
    if not np.isfinite(weight).all():
        raise UsageError("scores holds NaN or infinity; expected finite numbers.")
    weight[1:, 0] -= 1 + n * np.ptp(weight[1:]) if n else 0
    np.fill_diagonal(weight, -np.inf)
    weight[0] = -np.inf
    return _arborescence(weight)[1:]


@numba.njit(cache=True)
def _arborescence(weight: np.ndarray) -> np.ndarray:
    """The head of each node in the maximum spanning arborescence of node 0; weight[i, j] is that of head j of node i.

    Cycles are contracted into their first node until there are none, then opened again in reverse order; O(n³).
    """
    n = len(weight)
    w = weight.copy()
    alive = np.ones(n, np.bool_)
    into, out = np.empty((n, n), np.int64), np.empty((n, n), np.int64)  # the real arc that stands for i <- j
    for i in range(n):
        for j in range(n):
            into[i, j], out[i, j] = i, j
    part = np.empty((n + 1, n), np.int64)  # the contracted node that holds each real node, before each contraction
    part[0] = np.arange(n)
    best = np.zeros(n, np.int64)
    cycles = np.zeros((n, n), np.int64)
    sizes, rounds = np.zeros(n, np.int64), 0
    kept_into, kept_out = np.zeros((n, n), np.int64), np.zeros((n, n), np.int64)
    while True:
        for i in range(1, n):
            if alive[i]:
                best[i] = -1
                for j in range(n):
                    if alive[j] and j != i and (best[i] < 0 or w[i, j] > w[i, best[i]]):
                        best[i] = j
        first = _on_a_cycle(best, alive)
        if first < 0:
            break
        size, at = 0, first
        while size == 0 or at != first:
            cycles[rounds, size] = at
            kept_into[rounds, size], kept_out[rounds, size] = into[at, best[at]], out[at, best[at]]
            size, at = size + 1, best[at]
        sizes[rounds] = size
        _contract(w, into, out, best, cycles[rounds, :size], alive)
        part[rounds + 1] = part[rounds]
        for v in range(n):
            for k in range(size):
                if part[rounds, v] == cycles[rounds, k]:
                    part[rounds + 1, v] = first
        rounds += 1
    heads = np.full(n, -1, np.int64)
    for i in range(1, n):
        if alive[i]:
            heads[into[i, best[i]]] = out[i, best[i]]
    for r in range(rounds - 1, -1, -1):  # one node of the cycle has a head outside, the others keep theirs inside
        entered = -1
        for v in range(n):
            if heads[v] >= 0 and part[r + 1, v] == cycles[r, 0]:
                entered = part[r, v]
        for k in range(sizes[r]):
            if cycles[r, k] != entered:
                heads[kept_into[r, k]] = kept_out[r, k]
    return heads


@numba.njit(cache=True)
def _on_a_cycle(best: np.ndarray, alive: np.ndarray) -> int:
    """A node on a cycle of best heads; -1 if there is none."""
    n = len(best)
    seen = np.zeros(n, np.int64)
    for start in range(1, n):
        at = start
        while at and alive[at] and not seen[at]:
            seen[at] = start
            at = best[at]
        if at and alive[at] and seen[at] == start:
            return at
    return -1


@numba.njit(cache=True)
def _contract(
    w: np.ndarray, into: np.ndarray, out: np.ndarray, best: np.ndarray, cycle: np.ndarray, alive: np.ndarray
) -> None:
    """Make the nodes of a cycle one node, called as the first; the others are dead."""
    n, first = len(w), cycle[0]
    inside = np.zeros(n, np.bool_)
    for k in cycle:
        inside[k] = True
    for j in range(n):
        if not alive[j] or inside[j]:
            continue
        enter, leave = first, first
        for k in cycle:
            if w[k, j] - w[k, best[k]] > w[enter, j] - w[enter, best[enter]]:
                enter = k
            if w[j, k] > w[j, leave]:
                leave = k
        gain = w[enter, j] - w[enter, best[enter]]
        e_into, e_out = into[enter, j], out[enter, j]
        l_weight, l_into, l_out = w[j, leave], into[j, leave], out[j, leave]
        w[first, j], into[first, j], out[first, j] = gain, e_into, e_out
        w[j, first], into[j, first], out[j, first] = l_weight, l_into, l_out
    for k in cycle[1:]:
        alive[k] = False
