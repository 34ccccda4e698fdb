"""How far vectors move from their reference: length of the step, change of direction, and what no rotation explains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.statistics.folds import folds

BLOCK = 1 << 22  # numbers held at once
FOLDS = 5
FEWEST = 20  # examples, from which on a rotation is fitted
PENALTIES = (1e-3, 1e-1, 10.0)
"""How strongly a rotation is drawn to the identity, relative to the cross-product's root mean square singular value."""
OTHERS = 20
"""The number of other examples that each vector is compared with."""


@dataclass(frozen=True, slots=True)
class Movement:
    """How far each of n vectors has moved.

    Attributes
    ----------
    distance : np.ndarray
        float64 (3, n), one row for each of :data:`probekit.similarity.options.DISTANCES`; NaN for a vector of length 0,
        and for ``aligned-distance`` with fewer than 20 examples or 5 groups.
    others : np.ndarray
        float64 (3, n), the same distances to the vectors of other examples, means over 20 of them.
    """

    distance: np.ndarray
    others: np.ndarray


def movement(x: Any, y: Any, *, groups: np.ndarray | None = None, seed: int = 0, align: bool = True) -> Movement:
    """Measure how far the vectors ``y`` are from the vectors ``x`` of the same examples.

    - ``relative-distance``: :math:`|y - x| / |x|`.
    - ``cosine-distance``: :math:`1 - \\cos(x, y)`.
    - ``aligned-distance``: the relative distance that remains after the shift and the rotation (with reflection) of
      ``y`` that bring it closest to ``x`` (orthogonal Procrustes). Both come from the other four fifths of the
      examples, so they cannot fit an example's own noise.

    Parameters
    ----------
    x, y : array-like
        (n, d), or objects with ``shape`` and row slices, which are read in blocks: the reference, and where the same
        examples are now.
    groups : np.ndarray, optional
        (n,), examples that are not independent: they share a fold, and none is the other example of another.
    seed : int
        Seed of the folds and of the other examples.
    align : bool
        Whether to measure ``aligned-distance``; without it, that row is NaN.

    Returns
    -------
    Movement
        The distances of each example, and those to other examples.

    Raises
    ------
    UsageError
        If the two differ in shape.

    Notes
    -----
    With fewer examples than dimensions, many rotations fit equally well. The one that is fitted maximises
    :math:`\\mathrm{tr}(R^T (Y^T X + \\lambda I))`: where the examples say nothing, nothing is rotated. Of three
    values of :math:`\\lambda`, and no rotation at all, the one with the smallest mean squared distance to held-out
    examples is used.

    References
    ----------
    Schönemann 1966, "A generalized solution of the orthogonal Procrustes problem", Psychometrika 31.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 8))
    >>> rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 8)))[0]
    >>> movement(x, x @ rotation).distance.mean(axis=1).round(1)
    array([1.4, 1.1, 0. ])
    """
    if tuple(x.shape) != tuple(y.shape):
        raise UsageError(f"vectors of shape {tuple(y.shape)} cannot be subtracted from vectors of {tuple(x.shape)}.")
    n, rng = x.shape[0], np.random.default_rng(seed)
    others = _others(n, groups, rng)
    fit = _Rotations.fitted(x, y, groups, seed) if align else None
    distance, other = np.full((3, n), np.nan), np.full((3, n), np.nan)
    for rows in _blocks(n, x.shape[1]):
        a, b = _read(x, rows), _read(y, rows)
        moved = None if fit is None else fit.apply(a, b, np.arange(n)[rows])
        distance[:, rows] = _distances(a, b, moved)
        found = []
        for other_rows in others:
            c = _read(y, other_rows[rows])
            moved = None if fit is None else fit.apply(a, c, np.arange(n)[rows])
            found.append(np.where(other_rows[rows] == np.arange(n)[rows], np.nan, _distances(a, c, moved)))
        there = np.isfinite(found)
        total = np.where(there, found, 0).sum(0)
        other[:, rows] = np.where(there.any(0), total / np.maximum(there.sum(0), 1), np.nan)
    return Movement(distance, other)


def _distances(a: np.ndarray, b: np.ndarray, moved: np.ndarray | None) -> np.ndarray:
    """The three distances of each row, (3, rows)."""
    length_a, length_b = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.linalg.norm(b - a, axis=1) / length_a
        unit = a / length_a[:, None] - b / length_b[:, None]
        cosine = (unit**2).sum(1) / 2  # exact for small angles, where 1 - cos cancels
        aligned = np.full(len(a), np.nan) if moved is None else np.linalg.norm(moved, axis=1) / length_a
    return np.where(length_a > 0, [relative, cosine, aligned], np.nan)


@dataclass(frozen=True, slots=True)
class _Rotations:
    """For each fold, the means of both sides and the rotation from the rest of the examples."""

    fold: np.ndarray
    means: list[tuple[np.ndarray, np.ndarray]]
    rotations: list[np.ndarray | None]

    @classmethod
    def fitted(cls, x: Any, y: Any, groups: np.ndarray | None, seed: int) -> _Rotations | None:
        """None with too few examples or groups."""
        n, d = x.shape
        units = n if groups is None else len(np.unique(groups))
        if n < FEWEST or units < FOLDS:
            return None
        fold = folds(np.zeros(n), FOLDS, groups=groups, seed=seed, stratify=False)
        count, sums = np.zeros(FOLDS), np.zeros((2, FOLDS, d))
        cross = np.zeros((FOLDS, d, d))
        for rows in _blocks(n, d):
            a, b = _read(x, rows), _read(y, rows)
            for k in range(FOLDS):
                mine = fold[rows] == k
                count[k] += mine.sum()
                sums[:, k] += a[mine].sum(0), b[mine].sum(0)
                cross[k] += b[mine].T @ a[mine]
        means = [tuple((s.sum(0) - s[k]) / (n - count[k]) for s in sums) for k in range(FOLDS)]
        best: list[np.ndarray | None] = [None] * FOLDS
        least = sum(_lost(cross[k], count[k], sums[:, k], means[k], None) for k in range(FOLDS))
        for penalty in PENALTIES:
            found = [
                _rotation(cross.sum(0) - cross[k] - (n - count[k]) * np.outer(means[k][1], means[k][0]), penalty)
                for k in range(FOLDS)
            ]
            lost = sum(_lost(cross[k], count[k], sums[:, k], means[k], found[k]) for k in range(FOLDS))
            if lost < least:
                best, least = list(found), lost
        return cls(fold, means, best)

    def apply(self, a: np.ndarray, b: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """What remains of b - a after shift and rotation; ``rows`` are the examples of a, which choose the fold."""
        out = np.empty_like(a)
        for k, ((mean_a, mean_b), rotation) in enumerate(zip(self.means, self.rotations, strict=True)):
            mine = self.fold[rows] == k
            moved = b[mine] - mean_b
            out[mine] = (moved if rotation is None else moved @ rotation) - (a[mine] - mean_a)
        return out


def _lost(
    cross: np.ndarray, count: float, sums: np.ndarray, means: tuple[np.ndarray, ...], rotation: np.ndarray | None
) -> float:
    """Minus twice the inner product of the held-out rows of x and the rotated ones of y: their squared distance but for
    a constant."""
    (sum_a, sum_b), (mean_a, mean_b) = sums, means
    centred = cross - np.outer(sum_b, mean_a) - np.outer(mean_b, sum_a) + count * np.outer(mean_b, mean_a)
    return -2 * float(np.trace(centred) if rotation is None else (centred * rotation).sum())


def _rotation(cross: np.ndarray, penalty: float) -> np.ndarray:
    """The orthogonal R (d, d) with the largest tr(R' (cross + penalty I)); y R is the aligned y."""
    size = np.linalg.norm(cross) / np.sqrt(len(cross))
    u, _, v = np.linalg.svd(cross + penalty * size * np.eye(len(cross)))
    return u @ v


def _others(n: int, groups: np.ndarray | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Permutations that give each example another one; itself where that would be one of its group."""
    order = rng.permutation(n)
    found = []
    for step in rng.permutation(np.arange(1, n))[:OTHERS]:
        other = np.empty(n, dtype=np.int64)
        other[order] = np.roll(order, step)
        if groups is not None:
            other = np.where(groups[other] == groups, np.arange(n), other)
        found.append(other)
    return found


def _blocks(n: int, d: int) -> Iterator[slice]:
    size = max(1, BLOCK // max(1, d))
    for start in range(0, n, size):
        yield slice(start, min(n, start + size))


def _read(x: Any, rows: Any) -> np.ndarray:
    return np.asarray(x[rows], dtype=np.float64)
