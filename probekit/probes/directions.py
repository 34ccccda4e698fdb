"""A probe of the vectors of one model on those of another of the same examples: maps between them, and directions.

Every map is affine and never sees a label: vectors of the one model go in, vectors for the probe of the other come out.
So a probe after a map is a linear probe again, with a direction in the space of the vectors that go in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np

from probekit.probes.kept import Weights, one_line, weights_of
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.selection import Problem, grid, refit, select
from probekit.statistics.folds import folds

PER_DIMENSION = 2.5
"""Examples (groups) of train for each dimension of an orthogonal map."""
FEWEST = 20
"""Examples (groups) of train, from which on an orthogonal map is fitted."""
RANDOM = 1000
"""Random directions, of which the angles by chance are."""


class After(StrEnum):
    """What is done to the vectors of one model before the probe of the other reads them."""

    NATIVE = "native"  # the model's own probe
    AS_IS = "as is"
    RESCALED = "rescaled"  # each dimension has the mean and standard deviation that it has in the other model
    MAPPED = "mapped"  # the best orthogonal map, with one scale


@dataclass(frozen=True, slots=True)
class Map:
    """``(x - centre) @ matrix + middle``; a ``matrix`` (d,) multiplies each dimension. All in float64.

    Attributes
    ----------
    dimensions : int
        Among how many dimensions it maps; what lies outside of them is dropped.
    """

    centre: np.ndarray
    matrix: np.ndarray
    middle: np.ndarray
    dimensions: int

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Vectors (n, d) for the probe of the other model."""
        moved = np.asarray(x, dtype=np.float64) - self.centre
        return np.asarray(moved * self.matrix if self.matrix.ndim == 1 else moved @ self.matrix) + self.middle

    def direction(self, weight: np.ndarray) -> np.ndarray:
        """The direction (K, d) in the space of ``x`` of a probe with this weight (K, d)."""
        return np.asarray(weight * self.matrix if self.matrix.ndim == 1 else weight @ self.matrix.T)


def unchanged(width: int) -> Map:
    """The map that leaves vectors as they are."""
    return Map(np.zeros(width), np.ones(width), np.zeros(width), width)


def rescaled(x: np.ndarray, y: np.ndarray) -> Map:
    """Give each dimension of ``x`` the mean and standard deviation that it has in ``y``, both (n, d).

    A dimension that is constant in ``x`` becomes the mean of that of ``y``.
    """
    (centre, sd), (middle, target) = ((z.mean(0, dtype=np.float64), z.std(0, dtype=np.float64)) for z in (x, y))
    varies = sd > 1e-12 * np.maximum(np.abs(centre), 1e-300)
    return Map(centre, np.divide(target, sd, out=np.zeros_like(sd), where=varies), middle, int(varies.sum()))


def mapped(x: np.ndarray, y: np.ndarray, units: int | None = None) -> Map | None:
    """The orthogonal map, with one scale, that brings ``x`` closest to ``y`` (Schönemann 1966), both (n, d).

    The scale is the ratio of the two sides' root mean square distances from their means. With fewer than 2.5 examples
    for each dimension, the map is between as many leading principal components of both sides as there are examples
    for, and drops the other dimensions.

    Parameters
    ----------
    units : int, optional
        The number of independent rows (default: n).

    Returns
    -------
    Map or None
        None with fewer than 20 units.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 8))
    >>> rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 8)))[0]
    >>> bool(np.allclose(mapped(x @ rotation, x)(x @ rotation), x))
    True
    """
    n, d = x.shape
    units = n if units is None else units
    if units < FEWEST:
        return None
    size = min(d, int(units / PER_DIMENSION))
    (a, centre, to_a), (b, middle, to_b) = (_leading(z, size) for z in (x, y))
    scale = np.linalg.norm(b) / np.linalg.norm(a) if a.any() else 0.0
    left, _, right = np.linalg.svd(a.T @ b)
    return Map(centre, scale * (to_a @ (left @ right) @ to_b.T), middle, size)


def _leading(x: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centred rows in their leading components (n, size), the mean (d,), and the components (d, size)."""
    mean = x.mean(0, dtype=np.float64)
    centred = np.asarray(x, dtype=np.float64) - mean
    if size == x.shape[1]:
        return centred, mean, np.eye(size)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :size]
    return centred @ axes, mean, axes


@dataclass(frozen=True, slots=True)
class Fit:
    """A probe of one layer, and two more of disjoint halves of train at the same penalty.

    Attributes
    ----------
    weights : Weights
        Linear; of two classes with one line.
    halves : tuple of Weights
        Of the two halves.
    penalty : float
        The chosen one.
    converged : bool
        Whether all fits that chose it did.
    """

    weights: Weights
    halves: tuple[Weights, Weights]
    penalty: float
    converged: bool


def fit(
    x: np.ndarray, y: np.ndarray, classes: int, fold: np.ndarray, half: np.ndarray, estimator: Estimator,
    penalties: tuple[float, ...] | None = None, max_iter: int = 5000,
) -> Fit:  # fmt: skip
    """Fit a probe whose penalty is chosen on folds, and one on each half.

    Parameters
    ----------
    x, y : np.ndarray
        (n, d) and (n,), codes of ``classes`` or numbers (0 classes).
    fold : np.ndarray
        Int (n,), in which each row is held out; -1 for never.
    half : np.ndarray
        Int (n,), 0 or 1; -1 for rows of both halves.

    Raises
    ------
    NonFiniteError
        If vectors are not finite.
    """
    rows, settings = np.arange(len(y)), grid(estimator, penalties, x.shape[1])
    problem = Problem(x, rows, y[None], classes, fold, estimator, settings, max_iter=max_iter)
    chosen = select(problem, None)
    parts = [one_line_of(refit(problem, half != 1 - k, chosen.setting), classes) for k in (0, 1)]
    return Fit(
        one_line_of(chosen.fitted, classes), (parts[0], parts[1]), float(chosen.setting[0]), bool(chosen.converged[0])
    )


def one_line_of(fitted: Any, classes: int) -> Weights:
    """The weights of a fitted probe; of two classes with one line."""
    return one_line(weights_of(fitted)) if classes == 2 else weights_of(fitted)


def halves(y: np.ndarray, groups: np.ndarray | None, seed: int, *, classes: bool) -> np.ndarray:
    """Halves of train with whole groups, 0 and 1; -1 for rows that both need, since no other row has their class."""
    return folds(y, 2, groups=groups, seed=seed, stratify=classes)


def angle(a: np.ndarray, b: np.ndarray) -> float:
    """The angle in degrees between two directions (K, d), each line without the mean of the lines if K > 1.

    NaN if one of them is 0.
    """
    a, b = (np.asarray(w, dtype=np.float64) - (w.mean(0) if len(w) > 1 else 0) for w in (a, b))
    lengths = np.linalg.norm(a), np.linalg.norm(b)
    if not all(lengths):
        return float("nan")
    a, b = a / lengths[0], b / lengths[1]
    return float(np.degrees(2 * np.arctan2(np.linalg.norm(a - b), np.linalg.norm(a + b))))  # exact for small angles


@lru_cache(maxsize=8)
def by_chance(shape: tuple[int, ...], seed: int, share: float = 0.05) -> float:
    """The angle below which a ``share`` of random directions of this shape (K, d) lies, in degrees."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=shape)
    return float(np.quantile([angle(rng.normal(size=shape), first) for _ in range(RANDOM)], share))


@dataclass(frozen=True, slots=True)
class Side:
    """One layer of one model: the vectors of train and dev, each (n, d), and the probe of train."""

    x: np.ndarray
    x_dev: np.ndarray
    fit: Fit

    def predicts(self, x: np.ndarray, classes: int) -> np.ndarray:
        """The classes of vectors (n, d), or with 0 classes the numbers, by the probe, (n,)."""
        weights = self.fit.weights
        logits = weights.logits(x)
        return weights.log_proba(logits).argmax(1) if classes else logits[:, 0]


@dataclass(frozen=True, slots=True)
class Angles:
    """Angles between directions, in degrees, where each dimension is in its standard deviations in what is read.

    Attributes
    ----------
    whole : float
        Between the probe of the one model after a map, and the native probe of the other.
    across, within : float
        Means between probes of disjoint halves of train: of one half after the map and the other half natively, and of
        both halves natively, which is what the choice of examples alone does.
    """

    whole: float
    across: float
    within: float


def angles(probe: Side, read: Side, of: Map) -> Angles:
    """The angles between the directions of ``probe`` in the space of ``read``, after a map, and the native ones."""

    def scaled(side: Side, weights: Weights, of: Map | None = None) -> np.ndarray:
        weight = weights.arrays["weight"].astype(np.float64)
        return (weight if of is None else of.direction(weight)) * side.x.std(0, dtype=np.float64)

    def between(one: Weights, other: Weights) -> float:
        return angle(scaled(read, one, of), scaled(read, other))

    crossed = [between(probe.fit.halves[k], read.fit.halves[1 - k]) for k in (0, 1)]
    own = [angle(*(scaled(side, half) for half in side.fit.halves)) for side in (probe, read)]
    return Angles(between(probe.fit.weights, read.fit.weights), float(np.mean(crossed)), float(np.mean(own)))


@dataclass(frozen=True, slots=True)
class Maps:
    """The maps from the vectors of one side to those of another.

    Attributes
    ----------
    of : dict
        By :class:`After`; without "mapped" if there are too few examples.
    unrelated : list of Map
        Orthogonal maps between rows that do not belong together.
    """

    of: dict[After, Map]
    unrelated: list[Map]


def maps(x: np.ndarray, y: np.ndarray, units: int | None = None, orders: Sequence[np.ndarray] = ()) -> Maps:
    """The maps from vectors ``x`` to ``y`` of the same examples of train, both (n, d).

    Parameters
    ----------
    units : int, optional
        As in :func:`mapped`.
    orders : sequence of np.ndarray
        Int (n,), orders of ``x`` in which its rows are not those of ``y``.
    """
    found = {After.AS_IS: unchanged(x.shape[1]), After.RESCALED: rescaled(x, y)}
    if (best := mapped(x, y, units)) is None:
        return Maps(found, [])
    unrelated = (mapped(x[order], y, units) for order in orders)
    return Maps(found | {After.MAPPED: best}, [one for one in unrelated if one is not None])
