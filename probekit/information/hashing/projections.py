"""Ways to look at vectors: a few coordinates, found on some rows, by which other rows are cut into buckets.

The candidates differ in what they see:

- linear: discriminant directions (Fisher 1936; Rao 1948), or canonical ones for numbers (Hotelling 1936), the
  covariance shrunk towards a sphere by several amounts. Little shrinkage sees signal of low variance, much shrinkage
  needs few rows.
- raw: the same directions of columns that are centred and not rescaled, which see the columns of much variance first;
- quadratic: a Gaussian for each class on the first principal components (Friedman 1989). It sees what no direction
  shows: |x|, an exclusive or.
- principal: the first principal components themselves.

Of more than two classes, directions are cut up to four at a time, or the two likeliest classes and the margin between
them are what is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cholesky, solve_triangular
from scipy.sparse.linalg import eigsh
from scipy.stats import rankdata

SHRINKAGES = (0.03, 0.2, 0.6, 0.9, 0.99)
RAW = (0.1, 0.9)
"""Shrinkages of the covariance of columns as they are, not rescaled."""
LINEAR = (*(f"linear {s:g}" for s in SHRINKAGES), *(f"raw linear {s:g}" for s in RAW))
COMPONENTS = 16
QUADRATIC = (4, 16)
PRINCIPAL = (2, 4)
DIMENSIONS = 4
MARGINS = 3
BLOCK = 256  # rows, which stay in the processor's cache
GRAM_BLOCK = 1536
FARTHEST = 6.0  # standard deviations: what lies farther out falls into the outermost buckets
TINY = 1e-9
FAR = -1e9


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """What one view shows of some rows.

    Attributes
    ----------
    name : str
        Of the view, its settings too.
    kind : str
        Without what only scales it. Points of one kind can be pooled.
    z : np.ndarray
        (n, q) coordinates, q ≤ 4.
    code : np.ndarray, optional
        Int (n,), a decision between classes, or None.
    axes : np.ndarray, optional
        (f, q), the coordinates in terms of the label features, which tell how those of two fits lie to each other;
        None for coordinates that need no labels.
    labels : np.ndarray, optional
        (n, q') coordinates of numbers in several columns; None for other labels.
    fineness : int, default 1
        How many buckets are made of one.
    """

    name: str
    kind: str
    z: np.ndarray
    code: np.ndarray | None = None
    axes: np.ndarray | None = None
    labels: np.ndarray | None = None
    fineness: int = 1

    def finer(self, fineness: int) -> Points:
        """These points, to be cut more finely: classes may take turns along a coordinate."""
        times = f" / {fineness}" if fineness > 1 else ""
        return replace(self, name=self.name + times, kind=self.kind + times, fineness=fineness)


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Points of some rows, to be cut by a unit grid.

    Attributes
    ----------
    z : np.ndarray
        (n, q), in widths of a bucket.
    free : np.ndarray
        Bool (q,), columns on which the grid is shifted; others are counted as they are.
    labels : np.ndarray, optional
        (n, q'), in widths, too; None where labels are not cut.
    """

    z: np.ndarray
    free: np.ndarray
    labels: np.ndarray | None = None


def pooled(parts: Sequence[Points]) -> Points:
    """The points of one kind that several fits gave, turned to lie as those of the first do."""
    first = parts[0]
    if len(parts) == 1:
        return first
    turned = [_turned(p.z, p.axes, first.axes) for p in parts]
    labels = None
    if first.labels is not None:
        labels = np.concatenate([_turned(p.labels, p.axes, first.axes) for p in parts])  # type: ignore[arg-type]
    code = None if first.code is None else np.concatenate([p.code for p in parts])
    name = "; ".join(dict.fromkeys(p.name for p in parts))
    return Points(name, first.kind, np.concatenate(turned), code, None, labels, first.fineness)


def _turned(z: np.ndarray, axes: np.ndarray | None, onto: np.ndarray | None) -> np.ndarray:
    """Coordinates (n, q), rotated as brings their axes (f, q) closest to others (Schönemann 1966)."""
    if axes is None or onto is None:
        return z
    u, _, v = np.linalg.svd(axes.T @ onto)
    return z @ (u @ v)


def cut(points: Points, examples: float, *, numbers: bool = False) -> Scaled:
    """Points as a view: buckets c n^(-1/(2 + q + q')) deviations wide, c = 3.5 for one coordinate, 2.5 for more.

    n is the number of ``examples`` that do not depend on each other. Each coordinate is turned so that its cubes sum to
    0 or more: of vectors and of their negatives the buckets are the same.

    q' counts the columns that labels are cut by, 0 for classes. A deviation is half of what the middle 68 % span, so
    that outliers do not widen buckets. A decision is counted as it is, beside thirds of its margin.
    """
    n, q = points.z.shape
    if points.code is not None:
        thirds = [MARGINS * rankdata(margin) / n for margin in points.z.T]
        return Scaled(np.column_stack([points.code, *thirds]).astype(np.float64), np.array([False] + [True] * q))
    dimensions = q + (points.labels.shape[1] if points.labels is not None else int(numbers))
    width = (3.5 if dimensions == 1 else 2.5) * examples ** (-1 / (2 + dimensions)) / points.fineness
    labels = None if points.labels is None else _deviations(points.labels) / width
    return Scaled(_deviations(points.z) / width, np.ones(q, dtype=bool), labels)


def _deviations(z: np.ndarray) -> np.ndarray:
    z = z * np.where((z * z * z).sum(0) < 0, -1, 1)
    low, middle, high = np.transpose([np.quantile(column, (0.16, 0.5, 0.84)) for column in z.T])
    scale = (high - low) / 2
    if not (wide := scale > TINY * np.abs(z).max(0)).all():
        scale = np.where(wide, scale, z.std(0))
    return np.clip((z - middle) / np.where(scale > 0, scale, 1), -FARTHEST, FARTHEST)


def roots(covariance: np.ndarray, shrinkages: Sequence[float]) -> Iterator[np.ndarray]:
    """The Cholesky factor, float32 (d, d), of a covariance matrix shrunk by each of these: its lower half."""
    variance = np.trace(covariance) / max((np.diagonal(covariance) > 0).sum(), 1) or 1.0  # constant columns have none
    for shrinkage in shrinkages:
        shrunk = np.float32(1 - shrinkage) * covariance.T
        shrunk[np.diag_indices_from(shrunk)] += np.float32(shrinkage * variance)
        yield cho_factor(shrunk, lower=True, overwrite_a=True, check_finite=False)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """Directions that some rows' labels show, the most telling first.

    Attributes
    ----------
    weights : np.ndarray
        (d, q), on x - centre, of variance 1.
    labels : np.ndarray
        (f, q), what they are directions of, in label features.
    means, offsets : np.ndarray
        (f, q), (f,), by which z @ means.T - offsets are scores of classes.
    """

    weights: np.ndarray
    labels: np.ndarray
    means: np.ndarray
    offsets: np.ndarray

    def within(self, first: int, d: int) -> Directions:
        """The same of d columns, of which those from ``first`` on are looked at."""
        weights = np.zeros((d, self.weights.shape[1]))
        weights[first : first + len(self.weights)] = self.weights
        return replace(self, weights=weights)


def linear_axes(
    covariance: np.ndarray,
    scale: np.ndarray,
    cross: np.ndarray,
    means: np.ndarray,
    most: int,
    shrinkages: Sequence[float] = SHRINKAGES,
) -> Iterator[list[Directions]]:
    """For each shrinkage of the covariance (d, d) of scaled vectors, the axes of every fit, at most ``most``.

    Parameters
    ----------
    scale : np.ndarray
        (d,), what vectors are multiplied with before.
    cross : np.ndarray
        (fits, f, d), covariance of vectors and whitened label features.
    means : np.ndarray
        (fits, f, d), of classes.
    """
    fits, f, d = cross.shape
    for root in roots(covariance, shrinkages):
        white = solve_triangular(root, cross.reshape(fits * f, d).T, lower=True, check_finite=False)
        u, s, v = np.linalg.svd(white.T.reshape(fits, f, d).swapaxes(1, 2), full_matrices=False)
        sign = np.where(v @ np.cos(1.0 + np.arange(f)) < 0, -1, 1).astype(np.float32)  # one of the two
        u, v = (u * sign[:, None])[..., :most], (v * sign[..., None])[:, :most]
        every = solve_triangular(root, np.hstack(list(u)), lower=True, trans="T", check_finite=False)
        spread = np.sqrt(np.maximum((every * (covariance @ every)).sum(0), 0))
        every /= np.where(spread > 0, spread, 1)
        found = []
        for axes, share, labels, m in zip(np.split(every, fits, 1), s[:, :most] ** 2, v, means, strict=True):
            centres = m @ axes
            own = centres / (1 - np.minimum(share, 0.95))  # within classes, axes vary by 1 - share
            found.append(Directions(scale[:, None] * axes, labels.T, own, 0.5 * (own * centres).sum(1)))
        yield found


def principal_axes(covariance: np.ndarray) -> np.ndarray:
    """The first axes (d, k), k ≤ 16, of a covariance matrix, the largest entry of each positive."""
    d = len(covariance)
    if d <= 4 * COMPONENTS:
        axes = np.linalg.eigh(covariance.astype(np.float64))[1][:, ::-1][:, :COMPONENTS]
    else:
        start = np.diagonal(covariance) + np.linspace(1, 2, d)  # any vector will do, if it is always the same
        power, axes = eigsh(covariance, k=COMPONENTS, v0=start.astype(np.float32), tol=1e-2)
        axes = axes[:, np.argsort(-power)].astype(np.float64)
    return axes * np.where(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])] < 0, -1, 1)


def gaussian_scores(fitted: np.ndarray, codes: np.ndarray, classes: int, points: np.ndarray) -> np.ndarray:
    """ln p(point | class), but for a constant, by a Gaussian fitted to each class's points (m, k): (n, classes).

    A tenth of each covariance is the diagonal of all points' covariance. Classes of fewer than 2 points are taken to be
    far away.
    """
    out = np.full((len(points), classes), FAR)
    common = np.diag(np.maximum(fitted.var(0), TINY))
    for c in range(classes):
        own = fitted[codes == c]
        if len(own) < 2:
            continue
        mean = own.mean(0)
        own = own - mean
        root = cholesky(0.9 * own.T @ own / len(own) + 0.1 * common, lower=True, check_finite=False)
        white = solve_triangular(root, (points - mean).T, lower=True, check_finite=False)
        out[:, c] = -0.5 * (white**2).sum(0) - np.log(np.diagonal(root)).sum()
    return out


def decisions(name: str, scores: np.ndarray) -> Iterator[Points]:
    """The likeliest class by scores (n, classes); and with the margin to the next, and with the next one itself."""
    rows, classes = np.arange(len(scores)), scores.shape[1]
    two = np.argpartition(scores, classes - 2, axis=1)[:, -2:]  # the second, then the first
    margin = (scores[rows, two[:, 1]] - scores[rows, two[:, 0]])[:, None]
    both = two[:, 1] * classes + two[:, 0]
    for kind, z, code in (
        ("likeliest class", margin[:, :0], two[:, 1]),
        ("likeliest class and margin", margin, two[:, 1]),
        ("two likeliest classes and margin", margin, both),
    ):
        yield Points(f"{name}, {kind}", kind, z, code)


@dataclass(frozen=True, slots=True, eq=False)
class Projections:
    """Vectors and labels of all rows, as views of some rows are fitted to the labels of others.

    Whatever takes no labels rests on all rows: means, covariance, principal components.

    Attributes
    ----------
    x : np.ndarray
        (n, d).
    centre : np.ndarray
        (d,), their mean.
    components : np.ndarray
        (n, k), first principal components.
    parts : list[np.ndarray]
        Row numbers of each part.
    axes : Mapping[tuple[int, ...], Sequence[Directions]]
        Of a fit to some parts, for each shrinkage.
    codes : np.ndarray
        (n,), classes, or slices of numbers.
    classes : int
        How many.
    features : np.ndarray, optional
        (n, m), whitened numbers; None for classes.
    several : bool, default False
        They were in several columns.
    """

    x: np.ndarray
    centre: np.ndarray
    components: np.ndarray
    parts: list[np.ndarray]
    axes: Mapping[tuple[int, ...], Sequence[Directions]]
    codes: np.ndarray
    classes: int
    features: np.ndarray | None = None
    several: bool = False

    def views(self, fit: Sequence[int], part: int, only: str | None = None) -> Iterator[Points]:
        """What every view shows of a part's rows, fitted to the labels of the parts ``fit``; or the view of a name."""
        rows = self.parts[part]
        requested = [at for at, name in enumerate(LINEAR) if only is None or only.startswith(f"{name},")]
        if requested:
            yield from (v for v in self._linear(fit, rows, requested) if only in (None, v.name))
        points = self.components[rows]
        for k in _up_to(points.shape[1], QUADRATIC):
            name = f"quadratic in {k}"
            if (only is None or only.startswith(name)) and not self.several:
                fitted = np.concatenate([self.parts[p] for p in fit])
                scores = gaussian_scores(self.components[fitted, :k], self.codes[fitted], self.classes, points[:, :k])
                yield from (v for v in self._by_scores(name, scores) if only in (None, v.name))
        for k in _up_to(points.shape[1], PRINCIPAL):
            name = f"{k} principal components"
            if only in (None, name) and not self.several:
                yield Points(name, name, points[:, :k])

    def _by_scores(self, name: str, scores: np.ndarray) -> Iterator[Points]:
        if self.features is not None:  # the mean slice
            weight = np.exp(scores - scores.max(1, keepdims=True))
            yield Points(name, name, (weight @ np.arange(self.classes) / weight.sum(1))[:, None])
        elif self.classes > 2:
            yield from decisions(name, scores)
        else:
            yield Points(name, name, scores[:, 1:] - scores[:, :1])

    def _linear(self, fit: Sequence[int], rows: np.ndarray, requested: Sequence[int]) -> Iterator[Points]:
        found = [self.axes[tuple(fit)][at] for at in requested]
        scores = project(self.x, self.centre, np.hstack([axes.weights for axes in found]), rows)
        for at, z, axes in zip(requested, np.split(scores, len(requested), 1), found, strict=True):
            name, most = LINEAR[at], min(z.shape[1], DIMENSIONS)
            for q in [most] if self.several else range(1, most + 1):
                labels = self.features[rows] @ axes.labels[:, :q] if self.several else None  # type: ignore[index]
                yield Points(f"{name}, {q} directions", f"{q} directions", z[:, :q], None, axes.labels[:, :q], labels)
            if self.features is None and self.classes > 2:
                yield from decisions(name, z @ axes.means.T - axes.offsets)


def _up_to(most: int, sizes: Sequence[int]) -> list[int]:
    return sorted({min(most, k) for k in sizes})


def centred(x: np.ndarray, centre: np.ndarray, rows: np.ndarray | None, size: int) -> Iterator[np.ndarray]:
    """x[rows] - centre, ``size`` rows at a time, in the precision of x; the memory is used again for the next rows."""
    n = len(x) if rows is None else len(rows)
    centre, buffer = centre.astype(x.dtype), np.empty((min(size, n), x.shape[1]), dtype=x.dtype)
    for at in range(0, n, size):
        part = buffer[: min(size, n - at)]
        if rows is None:
            np.subtract(x[at : at + size], centre, out=part)
        else:
            np.take(x, rows[at : at + size], axis=0, out=part, mode="clip")  # without a copy in between
            part -= centre
        yield part


def project(x: np.ndarray, centre: np.ndarray, weights: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """(x[rows] - centre) @ weights in the precision of x; float64 (rows, q)."""
    weights = weights.astype(x.dtype)
    return np.concatenate([part @ weights for part in centred(x, centre, rows, BLOCK)]).astype(np.float64)


def covariance(x: np.ndarray, centre: np.ndarray, scale: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of (x[rows] - centre) * scale about 0, float32 (d, d)."""
    total, part = np.zeros((2, x.shape[1], x.shape[1]), dtype=np.float32)
    for block in centred(x, centre, rows, GRAM_BLOCK):
        scaled = np.multiply(block, scale, dtype=np.float32, casting="same_kind")
        total += np.matmul(scaled.T, scaled, out=part)
    return total / np.float32(len(rows))
