"""Ways to look at vectors: a few coordinates, found on some rows, by which other rows are cut into buckets.

The candidates differ in what they see:

- linear: discriminant directions (Fisher 1936; Rao 1948), or canonical ones for numbers (Hotelling 1936), the
  covariance shrunk towards a sphere by several amounts. Little shrinkage sees signal of low variance, much shrinkage
  needs few rows.
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

__all__ = ["Vectors", "View", "coordinates", "principal_axes", "project", "roots"]

SHRINKAGES = (0.03, 0.2, 0.6, 0.9, 0.99)
COMPONENTS = 16
QUADRATIC = (4, 16)
PRINCIPAL = (2, 4)
DIMENSIONS = 4
MARGINS = 3
BLOCK = 1024
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


def roots(covariance: np.ndarray) -> Iterator[np.ndarray]:
    """The Cholesky factor, float32 (d, d), of a covariance matrix shrunk by each of SHRINKAGES."""
    variance = max(np.trace(covariance) / len(covariance), TINY)
    for shrinkage in SHRINKAGES:
        shrunk = (1 - shrinkage) * covariance
        shrunk[np.diag_indices_from(shrunk)] += shrinkage * variance
        yield cholesky(shrunk.astype(np.float32), lower=True, overwrite_a=True, check_finite=False)


def linear_axes(root: np.ndarray, cross: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The axes (d, q), q ≤ ``most``, on which vectors and label features share most, those of the features (f, q), and
    the share of each axis's variance that the features account for (q,).

    root : Cholesky factor of the vectors' covariance; cross : (f, d), their covariance with whitened label features
    """
    white = solve_triangular(root, cross.T.astype(np.float32), lower=True, check_finite=False)
    u, s, v = np.linalg.svd(white, full_matrices=False)
    axes = solve_triangular(root, u[:, :most], lower=True, trans="T", check_finite=False)
    return axes.astype(np.float64), v[:most].T, s[:most].astype(np.float64) ** 2


def principal_axes(covariance: np.ndarray) -> np.ndarray:
    """The first axes (d, k), k ≤ 16, of a covariance matrix, the largest entry of each positive."""
    d = len(covariance)
    if d <= 4 * COMPONENTS:
        axes = np.linalg.eigh(covariance)[1][:, ::-1][:, :COMPONENTS]
    else:
        start = np.diagonal(covariance) + np.linspace(1, 2, d)  # any vector will do, if it is always the same
        power, axes = eigsh(covariance.astype(np.float32), k=COMPONENTS, v0=start.astype(np.float32), tol=1e-3)
        axes = axes[:, np.argsort(-power)].astype(np.float64)
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


def decisions(name: str, scores: np.ndarray) -> Iterator[View]:
    """Views of the likeliest class by scores (n, classes), and of the likeliest two, each with thirds of the margin."""
    rows, classes = np.arange(len(scores)), scores.shape[1]
    scores = np.nan_to_num(scores, neginf=-1e30)
    two = np.argpartition(scores, classes - 2, axis=1)[:, -2:]  # the second, then the first
    margin = scores[rows, two[:, 1]] - scores[rows, two[:, 0]]
    thirds = MARGINS * rankdata(margin) / len(scores)
    for kind, code in (("likeliest class", two[:, 1]), ("two likeliest classes", two[:, 1] * classes + two[:, 0])):
        z = np.column_stack([code, thirds]).astype(np.float64)
        yield View(f"{name}, {kind}", z, np.array([False, True]))


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Vectors and labels of all rows, as views of some rows are fitted to the labels of others.

    Whatever takes no labels rests on all rows: means, covariance, principal components.

    x : (n, d); centre, scale : (d,), mean and 1 / standard deviation. roots : of the shrunken covariances
    components : (n, k), first principal components
    parts : row numbers of each part. sums : (parts, f, d), Σ f (x - centre) over a part's rows, f being label features:
    classes as 0 and 1, or whitened numbers; held : (parts, f), Σ f
    codes : (n,), classes, or slices of numbers; classes : how many
    features : (n, m), whitened numbers; None for classes. repeated : share of rows that equal another one
    """

    x: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    roots: tuple[np.ndarray, ...]
    components: np.ndarray
    parts: list[np.ndarray]
    sums: np.ndarray
    held: np.ndarray
    codes: np.ndarray
    classes: int
    features: np.ndarray | None = None
    repeated: float = 0.0

    def views(self, fit: Sequence[int], rows: np.ndarray, only: str | None = None) -> Iterator[View]:
        """Every view of ``rows`` that the labels of the parts ``fit`` give; or the one of that name."""
        wanted = [at for at, s in enumerate(SHRINKAGES) if only is None or only.startswith(f"linear {s:g},")]
        if wanted:
            yield from (v for v in self._linear(fit, rows, wanted) if only in (None, v.name))
        points, numbers = self.components[rows], self.features is not None
        several = numbers and self.features.shape[1] > 1  # type: ignore[union-attr]
        for k in _up_to(points.shape[1], QUADRATIC):
            name = f"quadratic, {k} components"
            if (only is None or only.startswith(name)) and not several:
                fitted = np.concatenate([self.parts[p] for p in fit])
                scores = gaussian_scores(self.components[fitted, :k], self.codes[fitted], self.classes, points[:, :k])
                yield from (v for v in self._by_scores(name, scores) if only in (None, v.name))
        for k in _up_to(points.shape[1], PRINCIPAL):
            name = f"principal, {k} components"
            if only in (None, name):
                labels = self.features[rows][:, :k] if several else None  # type: ignore[index]
                yield coordinates(name, points[:, :k], labels, numbers=numbers)

    def _by_scores(self, name: str, scores: np.ndarray) -> Iterator[View]:
        if self.features is not None:  # the mean slice
            weight = np.exp(scores - scores.max(1, keepdims=True))
            yield coordinates(name, (weight @ np.arange(self.classes) / weight.sum(1))[:, None], numbers=True)
        elif self.classes > 2:
            yield from decisions(name, scores)
        else:
            yield coordinates(name, np.clip(scores[:, 1:], -1e30, 1e30) - np.clip(scores[:, :1], -1e30, 1e30))

    def _linear(self, fit: Sequence[int], rows: np.ndarray, wanted: Sequence[int]) -> Iterator[View]:
        sums, held = self.sums[list(fit)].sum(0) * self.scale, self.held[list(fit)].sum(0)
        count, numbers = sum(len(self.parts[p]) for p in fit), self.features is not None
        if numbers:
            means, most = np.zeros_like(sums), min(len(sums), DIMENSIONS)
            cross = sums / count
        else:
            middle = sums.sum(0) / count
            means = np.where(held[:, None] > 0, sums / np.maximum(held, 1)[:, None] - middle, 0)
            cross, most = np.sqrt(held / count)[:, None] * means, len(sums) - 1
        found = [linear_axes(self.roots[at], cross, min(most, self.x.shape[1])) for at in wanted]
        scores = project(self.x, self.centre, self.scale[:, None] * np.hstack([axes for axes, _, _ in found]), rows)
        for at, z, (axes, theirs, share) in zip(wanted, np.split(scores, len(wanted), axis=1), found, strict=True):
            name = f"linear {SHRINKAGES[at]:g}"
            for q in range(1, min(axes.shape[1], DIMENSIONS) + 1):
                labels = self.features[rows] @ theirs[:, :q] if numbers and len(theirs) > 1 else None  # type: ignore[index]
                yield coordinates(f"{name}, {q} directions", z[:, :q], labels, numbers=numbers)
            if not numbers and self.classes > 2:
                own = means @ axes / (1 - np.minimum(share, 0.95))  # within classes, axes vary by 1 - share
                yield from decisions(name, z @ own.T - 0.5 * np.einsum("kq,kq->k", own, means @ axes))


def _up_to(most: int, sizes: Sequence[int]) -> list[int]:
    return sorted({min(most, k) for k in sizes})


def project(x: np.ndarray, centre: np.ndarray, weights: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """(x[rows] - centre) @ weights, some rows at a time, in the precision of x; float64 (rows, q)."""
    n = len(x) if rows is None else len(rows)
    out = np.empty((n, weights.shape[1]))
    centre, weights = centre.astype(x.dtype), weights.astype(x.dtype)
    for at in range(0, n, BLOCK):
        part = x[at : at + BLOCK] if rows is None else x[rows[at : at + BLOCK]]
        out[at : at + BLOCK] = (part - centre) @ weights
    return out
