"""Ways to look at vectors: a few coordinates, found on some rows, by which other rows are cut into buckets.

The candidates differ in what they see:

- linear: discriminant directions (Fisher 1936; Rao 1948), or canonical ones for numbers (Hotelling 1936), the covariance
  shrunk towards a sphere by several amounts. Little shrinkage sees signal of low variance, much shrinkage needs few rows.
- quadratic: a Gaussian for each class on the first principal components (Friedman 1989). It sees what no direction
  shows: |x|, an exclusive or.
- principal: the first principal components themselves.

Of more than two classes, directions are cut up to four at a time, or the two likeliest classes and the margin between
them are what is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse.linalg import eigsh
from scipy.stats import rankdata

__all__ = ["Sample", "Vectors", "View", "coordinates", "linear_axes", "principal_axes"]

SHRINKAGES = (0.03, 0.2, 0.6, 0.9, 0.99)
COMPONENTS = 16
QUADRATIC = (4, 16)
PRINCIPAL = (2, 4)
DIMENSIONS = 4
MARGINS = 3
FARTHEST = 6.0  # standard deviations: what lies farther out falls into the outermost buckets
TINY = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Points of some rows, to be cut by a unit grid.

    name : what was looked at; z : (n, q), in widths of a bucket
    free : bool (q,), columns on which the grid may be shifted; others are counted as they are
    labels : (n, q'), of numbers in several columns, in widths, too; None for other labels
    """

    name: str
    z: np.ndarray
    free: np.ndarray
    labels: np.ndarray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """What directions are fitted to: sums over some rows, about a centre.

    count : of rows; total (d,), gram (d, d) : Σ x, Σ x xᵀ; scale (d,) : what rows are multiplied with
    sums (f, d), features (f,) : Σ f xᵀ and Σ f of the label features f: classes as 0 and 1, or whitened numbers
    """

    count: float
    total: np.ndarray
    gram: np.ndarray
    scale: np.ndarray
    sums: np.ndarray
    features: np.ndarray

    def __add__(self, other: Sample) -> Sample:
        return Sample(
            self.count + other.count,
            self.total + other.total,
            self.gram + other.gram,
            self.scale,
            self.sums + other.sums,
            self.features + other.features,
        )

    @property
    def mean(self) -> np.ndarray:
        """(d,), of the scaled rows, less the centre."""
        return self.total / self.count * self.scale

    @property
    def covariance(self) -> np.ndarray:
        """(d, d), of the scaled rows."""
        mean = self.total / self.count
        return (self.gram / self.count - np.outer(mean, mean)) * np.outer(self.scale, self.scale)


def linear_axes(
    sample: Sample, shrinkages: Sequence[float], *, classes: bool
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each shrinkage: axes (d, q) on scaled rows, class means on them (f, q), axes of the label features (f, q).

    Axes are ordered by what they tell apart and scaled so that the shrunken covariance within classes (that of all
    rows for numbers) is 1. q is the number of classes less one; for numbers that of their columns, at most 4.
    """
    mean, covariance = sample.mean, sample.covariance
    if classes:
        held = np.maximum(sample.features, TINY)
        means = np.where(sample.features[:, None] > 0, sample.sums * sample.scale / held[:, None] - mean, 0)
        cross = np.sqrt(held / sample.count)[:, None] * means
        covariance = covariance - cross.T @ cross
    else:
        cross = sample.sums * sample.scale / sample.count - np.outer(sample.features / sample.count, mean)
        means = np.zeros_like(cross)
    variance = max(np.trace(covariance) / len(covariance), TINY)
    most = min(len(mean), len(cross) - 1 if classes else min(len(cross), DIMENSIONS))
    for shrinkage in shrinkages:
        shrunk = (1 - shrinkage) * covariance
        shrunk[np.diag_indices_from(shrunk)] += shrinkage * variance
        root = cholesky(shrunk, lower=True, overwrite_a=True, check_finite=False)
        white = solve_triangular(root, cross.T, lower=True, check_finite=False)
        u, _, v = np.linalg.svd(white, full_matrices=False)
        axes = solve_triangular(root, u[:, :most], lower=True, trans="T", check_finite=False)
        yield axes, means @ axes, v[:most].T


def principal_axes(covariance: np.ndarray) -> np.ndarray:
    """The first axes (d, k), k ≤ 16, of a covariance matrix, the largest entry of each positive."""
    d = len(covariance)
    if d <= 4 * COMPONENTS:
        axes = np.linalg.eigh(covariance)[1][:, ::-1][:, :COMPONENTS]
    else:
        start = np.diagonal(covariance) + np.linspace(1, 2, d)  # any vector will do, if it is always the same
        power, axes = eigsh(covariance, k=COMPONENTS, v0=start, tol=1e-6)
        axes = axes[:, np.argsort(-power)]
    return axes * np.where(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])] < 0, -1, 1)


def gaussian_scores(fitted: np.ndarray, codes: np.ndarray, classes: int, points: np.ndarray) -> np.ndarray:
    """ln p(point | class), but for a constant, by a Gaussian fitted to each class's points (m, k): (n, classes).

    A tenth of each covariance is the diagonal of all points' covariance. Classes of fewer than 2 points get -inf.
    """
    out = np.full((len(points), classes), -np.inf)
    common = np.diag(np.maximum(fitted.var(0), TINY))
    for c in range(classes):
        own = fitted[codes == c]
        if len(own) < 2:
            continue
        mean = own.mean(0)
        root = cholesky(0.9 * (own - mean).T @ (own - mean) / len(own) + 0.1 * common, lower=True, check_finite=False)
        white = solve_triangular(root, (points - mean).T, lower=True, check_finite=False)
        out[:, c] = -0.5 * (white**2).sum(0) - np.log(np.diagonal(root)).sum()
    return out


def coordinates(name: str, z: np.ndarray, labels: np.ndarray | None = None, *, numbers: bool = False) -> View:
    """A view of coordinates z (n, q): buckets c n^(-1/(2 + q + q')) deviations wide, c = 3.5 for one, 2.5 for more.

    q' counts the columns that labels are cut by, 0 for classes. A deviation is half of what the middle 68 % span, so
    that outliers do not widen the buckets.
    """
    dimensions = z.shape[1] + (labels.shape[1] if labels is not None else int(numbers))
    width = (3.5 if dimensions == 1 else 2.5) * len(z) ** (-1 / (2 + dimensions))
    cut = None if labels is None else _deviations(labels) / width
    return View(name, _deviations(z) / width, np.ones(z.shape[1], dtype=bool), cut)


def _deviations(z: np.ndarray) -> np.ndarray:
    z = np.nan_to_num(z, posinf=1e30, neginf=-1e30)
    low, middle, high = np.quantile(z, (0.16, 0.5, 0.84), axis=0)
    scale = (high - low) / 2
    scale = np.where(scale > TINY * np.abs(z).max(0), scale, z.std(0))
    return np.clip((z - middle) / np.where(scale > 0, scale, 1), -FARTHEST, FARTHEST)


def decision(name: str, scores: np.ndarray) -> View:
    """A view of the two likeliest classes by their scores (n, classes), and thirds of the margin between the two."""
    rows, classes = np.arange(len(scores)), scores.shape[1]
    scores = np.nan_to_num(scores, neginf=-1e30)
    two = np.argpartition(scores, classes - 2, axis=1)[:, -2:]  # the second, then the first
    margin = scores[rows, two[:, 1]] - scores[rows, two[:, 0]]
    z = np.column_stack([two[:, 1] * classes + two[:, 0], MARGINS * rankdata(margin) / len(scores)])
    return View(name, z.astype(np.float64), np.array([False, True]))


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Vectors and labels of all rows, as views of some rows are fitted to others.

    x : (n, d); centre, scale : (d,). parts : row numbers of each part; samples : their sums
    components : (n, k), first principal components. codes : (n,), classes, or slices of numbers; classes : how many
    features : (n, m), whitened numbers; None for classes
    """

    x: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    parts: list[np.ndarray]
    samples: list[Sample]
    components: np.ndarray
    codes: np.ndarray
    classes: int
    features: np.ndarray | None = None

    def views(self, fit: Sequence[int], rows: np.ndarray, only: str | None = None) -> Iterator[View]:
        """Every view that the parts ``fit`` give of ``rows``; or the one of that name."""
        wanted = [s for s in SHRINKAGES if only is None or only.startswith(f"linear {s:g},")]
        if wanted:
            yield from (v for v in self._linear(fit, rows, wanted) if only in (None, v.name))
        points, numbers = self.components[rows], self.features is not None
        several = numbers and self.features.shape[1] > 1  # type: ignore[union-attr]
        for k in _up_to(points.shape[1], QUADRATIC):
            name = f"quadratic, {k} components"
            if only in (None, name) and not several:
                fitted = np.concatenate([self.parts[p] for p in fit])
                scores = gaussian_scores(self.components[fitted, :k], self.codes[fitted], self.classes, points[:, :k])
                yield self._by_scores(name, scores)
        for k in _up_to(points.shape[1], PRINCIPAL):
            name = f"principal, {k} components"
            if only in (None, name):
                labels = self.features[rows][:, :k] if several else None  # type: ignore[index]
                yield coordinates(name, points[:, :k], labels, numbers=numbers)

    def _by_scores(self, name: str, scores: np.ndarray) -> View:
        if self.features is not None:  # the mean slice
            weight = np.exp(scores - scores.max(1, keepdims=True))
            return coordinates(name, (weight @ np.arange(self.classes) / weight.sum(1))[:, None], numbers=True)
        if self.classes > 2:
            return decision(name, scores)
        return coordinates(name, np.clip(scores[:, 1:], -1e30, 1e30) - np.clip(scores[:, :1], -1e30, 1e30))

    def _linear(self, fit: Sequence[int], rows: np.ndarray, shrinkages: Sequence[float]) -> Iterator[View]:
        sample = self.samples[fit[0]]
        for part in fit[1:]:
            sample += self.samples[part]
        numbers = self.features is not None
        found = list(linear_axes(sample, shrinkages, classes=not numbers))
        weights = np.hstack([axes for axes, _, _ in found])
        scores = _project(self.x, rows, self.centre, self.scale[:, None] * weights) - sample.mean @ weights
        for at, (shrinkage, (axes, means, theirs)) in enumerate(zip(shrinkages, found, strict=True)):
            most = axes.shape[1]
            z = scores[:, at * most : (at + 1) * most]
            for q in range(1, min(most, DIMENSIONS) + 1):
                labels = self.features[rows] @ theirs[:, :q] if numbers and len(theirs) > 1 else None  # type: ignore[index]
                yield coordinates(f"linear {shrinkage:g}, {q} directions", z[:, :q], labels, numbers=numbers)
            if not numbers and self.classes > 2:
                yield decision(f"linear {shrinkage:g}, decision", z @ means.T - 0.5 * (means**2).sum(1))


def _up_to(most: int, sizes: Sequence[int]) -> list[int]:
    return sorted({min(most, k) for k in sizes})


def _project(x: np.ndarray, rows: np.ndarray, centre: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(x[rows] - centre) @ weights, some rows at a time."""
    out = np.empty((len(rows), weights.shape[1]))
    centre, weights = centre.astype(x.dtype), weights.astype(x.dtype)
    for at in range(0, len(rows), 4096):
        out[at : at + 4096] = (x[rows[at : at + 4096]] - centre) @ weights
    return out
