"""A linear probe that prefers one of two vectors, trained on other groups of pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probekit.errors import UsageError

INNER = 3
"""Groups of train on which the penalty is chosen."""


def held_out_scores(
    x: np.ndarray, groups: np.ndarray, penalties: Sequence[float], signs: np.ndarray | None = None
) -> np.ndarray:
    """For each pair, the score of good minus that of bad, by a ridge regression on the pairs of the other groups.

    The regression has no intercept: w minimises Σ (wᵀ x − 1)² + λ ‖w‖² over the differences x of the other groups, each
    dimension divided by its root mean square there. λ, in units of the number of pairs, is the one that gets the most
    pairs right in up to three of those other groups, left out in turn. Gram matrices are summed once for each group, so
    that no pass over the pairs is repeated.

    Parameters
    ----------
    x : np.ndarray
        Float (n, d), the vector of the good sentence minus that of the bad one.
    groups : np.ndarray
        (n,), from at least three groups.
    penalties : sequence of float
        The values of λ to choose from.
    signs : np.ndarray, optional
        (r, n), 1 or −1: with −1 the roles of the two sentences are exchanged in train. Default: one row of 1.

    Returns
    -------
    np.ndarray
        float32 (r, n); above 0 where the probe prefers the good sentence.

    Raises
    ------
    UsageError
        If there are fewer than three groups.
    """
    names, code = np.unique(groups, return_inverse=True)
    if len(names) < 3:
        raise UsageError(f"the pairs have {len(names)} groups; a probe that is trained on others needs at least three.")
    signs = np.ones((1, len(x))) if signs is None else np.asarray(signs, dtype=np.float64)
    rows = [np.flatnonzero(code == g) for g in range(len(names))]
    gram = np.stack([_gram(x[at]) for at in rows])
    target = np.stack([signs[:, at] @ np.asarray(x[at], dtype=np.float64) for at in rows])  # (groups, r, d)
    total, whole, n = gram.sum(0), target.sum(0), np.array([len(at) for at in rows])
    found = np.empty((len(signs), len(x)), dtype=np.float32)
    for g, at in enumerate(rows):
        inner = [(g + 1 + i) % len(names) for i in range(min(INNER, len(names) - 2))]
        right = np.zeros((len(signs), len(penalties)))
        for h in inner:
            w = _ridge(total - gram[g] - gram[h], whole - target[g] - target[h], n.sum() - n[g] - n[h], penalties)
            said = w @ np.asarray(x[rows[h]], dtype=np.float64).T  # (penalties, r, pairs)
            right += (said * signs[None, :, rows[h]] > 0).mean(2).T
        w = _ridge(total - gram[g], whole - target[g], n.sum() - n[g], penalties)
        best = right.argmax(1)
        chosen = w[best, np.arange(len(signs))]
        found[:, at] = (np.asarray(x[at], dtype=np.float64) @ chosen.T).T
    return found


def _gram(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    gram: np.ndarray = x.T @ x
    return gram


def _ridge(gram: np.ndarray, target: np.ndarray, n: int, penalties: Sequence[float]) -> np.ndarray:
    """Weights (penalties, r, d) from a Gram matrix (d, d) and targets (r, d)."""
    scale = np.sqrt(np.maximum(np.diag(gram) / n, 1e-12))
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    turned = (target / scale) @ vectors
    return np.stack([(turned / (np.maximum(values, 0) + n * p)) @ vectors.T / scale for p in penalties])
