"""Transferability scores: how well linear functions of vectors explain labels, without training a classifier.

Vectors are read in blocks; everything else is computed from their Gram matrices. With fewer examples than columns, the
vectors are first rotated into as many columns as there are examples, which changes none of the scores. Many sets of
labels of the same vectors (permutations) share the decompositions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import log, pi
from typing import Any

import numpy as np

from probekit.errors import NonFiniteError, UsageError

ROWS = 4096  # rows of vectors in a block
BLOCK = 1 << 22  # numbers held at once
EXACT = 1e-10  # the share of squared labels that is left by labels that are a linear function of the vectors
STEP = 0.5  # of the grid of log ratios on which the evidence is evaluated


class Vectors:
    """The vectors of one layer, and what the scores need of them.

    Parameters
    ----------
    x : array_like
        (n, d), an array or a memory map; it is read in blocks, and accumulated in float64.

    Raises
    ------
    UsageError
        If x is not a matrix.
    NonFiniteError
        If x contains NaN or infinity.
    """

    def __init__(self, x: Any) -> None:
        if len(x.shape) != 2 or not x.shape[1]:
            raise UsageError(f"vectors must have the shape (n, d), not {x.shape}.")
        self.n, self.width = x.shape
        self.x = x
        if self.n < self.width:
            self.x = np.asarray(np.linalg.qr(np.asarray(x, dtype=np.float64).T, mode="r")).T
        total = sum((part.sum(0) for _, part in self._blocks()), start=np.zeros(self.x.shape[1]))
        if not np.isfinite(total).all():
            raise NonFiniteError("the vectors contain NaN or infinity.")
        self.mean = total / self.n
        d = self.x.shape[1]
        self.gram, self.fourth = np.zeros((d, d)), 0.0
        for _, part in self._blocks():
            centred = part - self.mean
            self.gram += centred.T @ centred
            self.fourth += float(((centred**2).sum(1) ** 2).sum())

    def _blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Slices of rows, and these rows in float64."""
        for start in range(0, self.n, ROWS):
            rows = slice(start, min(self.n, start + ROWS))
            yield rows, np.asarray(self.x[rows], dtype=np.float64)

    def centred(self, rows: np.ndarray) -> np.ndarray:
        """Some rows without the mean of all, float64."""
        return np.asarray(self.x[rows], dtype=np.float64) - self.mean

    @cached_property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors (columns) of XᵀX, without those that are 0 but for rounding."""
        return self._positive(self.gram + self.n * np.outer(self.mean, self.mean))

    @cached_property
    def centred_spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """The same of the centred vectors."""
        return self._positive(self.gram)

    def _positive(self, gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = np.linalg.eigh(gram)
        largest = np.trace(self.gram) + self.n * self.mean @ self.mean
        kept = values > max(self.n, self.width) * np.finfo(np.float64).eps * largest
        return values[kept], vectors[:, kept]

    def sums(self, targets: np.ndarray) -> np.ndarray:
        """Sums of the centred vectors weighted with targets (L, n), float64 (L, 1, d)."""
        found = np.zeros((len(targets), self.x.shape[1]))
        for rows, part in self._blocks():
            found += targets[:, rows] @ (part - self.mean)
        return found[:, None]

    def class_sums(self, codes: np.ndarray, classes: int) -> np.ndarray:
        """Sums of the centred vectors by class, float64 (L, K, d), for L sets of labels (L, n)."""
        from scipy import sparse

        sets = len(codes)
        found = np.zeros((sets * classes, self.x.shape[1]))
        target = codes + classes * np.arange(sets)[:, None]
        for rows, part in self._blocks():
            m = len(part)
            where = target[:, rows].ravel(), np.tile(np.arange(m), sets)
            found += sparse.csr_array((np.ones(sets * m), where), shape=(len(found), m)) @ (part - self.mean)
        return found.reshape(sets, classes, -1)

    def scores(self, y: np.ndarray, classes: int, measures: Sequence[str], *, eps: float) -> dict[str, np.ndarray]:
        """The scores of L sets of labels, (L,) each.

        Parameters
        ----------
        y : ndarray
            (L, n), class codes, of which each set has all; or float targets, which have only LogME.
        classes : int
            The number of classes, 0 for targets.
        measures : sequence of str
            "logme", "h-score" and "transrate"; LogME for targets.
        eps : float
            Of :func:`transrate`.
        """
        found: dict[str, list[np.ndarray]] = {name: [] for name in measures}
        step = max(1, BLOCK // (max(1, classes) * self.x.shape[1]))
        for part in (y[i : i + step] for i in range(0, len(y), step)):
            if not classes:
                found["logme"].append(self.logme(self.sums(part), part.sum(1)[:, None], (part**2).sum(1)[:, None]))
                continue
            counts = class_counts(part, classes)
            if {"logme", "h-score"} & set(measures):
                sums = self.class_sums(part, classes)
            if "logme" in measures:
                found["logme"].append(self.logme(sums, counts, counts))
            if "h-score" in measures:
                found["h-score"].append(self.h_score(sums, counts))
            if "transrate" in measures:
                found["transrate"].append(self.transrate(part, classes, eps=eps))
        return {name: np.concatenate(parts) for name, parts in found.items()}

    def logme(self, sums: np.ndarray, totals: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """The mean of :func:`log_evidence` over T targets, for L sets of them, (L,).

        sums (L, T, d) : of the centred vectors, weighted with the targets
        totals, squares (L, T) : sums of the targets and of their squares
        """
        values, vectors = self.spectrum
        flat = (sums + totals[..., None] * self.mean).reshape(-1, sums.shape[2])
        each, step = squares.astype(np.float64).ravel(), max(1, BLOCK // max(1, len(values)))
        parts = [
            log_evidence((flat[i : i + step] @ vectors) ** 2 / values, values, each[i : i + step], self.n)
            for i in range(0, len(flat), step)
        ]
        return np.concatenate(parts).reshape(squares.shape).mean(1)

    def shrinkage(self) -> tuple[float, float]:
        """The intensity of Ledoit and Wolf's shrinkage, and the mean variance towards which they shrink."""
        n, d = self.n, self.width
        square, mean = float((self.gram**2).sum()) / n**2, float(np.trace(self.gram)) / n / d
        distance = square - d * mean**2
        error = min((self.fourth / n - square) / n, distance)
        return (error / distance if error > 0 else 0.0), mean

    def h_score(self, sums: np.ndarray, counts: np.ndarray, *, shrunk: bool = True) -> np.ndarray:
        """H-score of L sets of labels, (L,), from sums by class (L, K, d); NaN if all vectors are equal."""
        values, vectors = self.centred_spectrum
        if not len(values):
            return np.full(len(counts), np.nan)
        between = ((sums @ vectors) ** 2 / counts[..., None]).sum(1)
        if not shrunk:
            return (between / values).sum(1)
        intensity, mean = self.shrinkage()
        variances = (1 - intensity) * values / self.n + intensity * mean
        return (1 - intensity) / (self.n - 1) * (between / variances).sum(1)

    def transrate(self, codes: np.ndarray, classes: int, *, eps: float, equal: bool = False) -> np.ndarray:
        """TransRate of L sets of labels, (L,), in nats; ``equal``: classes have equal weights."""
        whole = _coding_rate(self.gram, self.n, eps)
        return np.array([whole - self._conditional_rate(one, classes, eps, equal) for one in codes])

    def _conditional_rate(self, codes: np.ndarray, classes: int, eps: float, equal: bool) -> float:
        counts = np.bincount(codes, minlength=classes)
        weights = np.full(classes, 1 / classes) if equal else counts / self.n
        return sum(weights[k] * _coding_rate(gram, counts[k], eps) for k, gram in self._class_grams(codes, counts))

    def _class_grams(self, codes: np.ndarray, counts: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Classes, and the Gram matrix of the rows or of the columns of each, whichever are fewer.

        That of the largest class is what the others leave.
        """
        d = self.x.shape[1]
        largest = int(counts.argmax()) if counts.max() >= d else None
        rest = self.gram
        for k in range(len(counts)):
            if k == largest:
                continue
            part = self.centred(np.flatnonzero(codes == k))
            if largest is not None or counts[k] >= d:
                gram = part.T @ part
                rest = rest - gram
            yield k, gram if counts[k] >= d else part @ part.T
        if largest is not None:
            yield largest, rest


def _coding_rate(gram: np.ndarray, n: int, eps: float) -> float:
    """½ log det(I + G / nε), nats."""
    try:
        return float(np.log(np.linalg.cholesky(np.eye(len(gram)) + gram / (n * eps)).diagonal()).sum())
    except np.linalg.LinAlgError:  # rounding errors of such large vectors exceed eps
        return float(np.log1p(np.maximum(np.linalg.eigvalsh(gram), 0) / (n * eps)).sum()) / 2


def class_counts(codes: np.ndarray, classes: int) -> np.ndarray:
    """The number of examples of each class, int (L, K), for L sets of labels (L, n)."""
    return np.stack([np.bincount(one, minlength=classes) for one in codes])


def log_evidence(projected: np.ndarray, values: np.ndarray, squares: np.ndarray, n: int) -> np.ndarray:
    """The largest log evidence per example of Bayesian linear regressions, over both precisions.

    Parameters
    ----------
    projected : ndarray
        (T, k), squared coordinates of T targets along the left singular vectors of X (n, d).
    values : ndarray
        (k,), squared singular values of X, all above 0.
    squares : ndarray
        (T,), the sum of squares of each target.
    n : int
        The number of examples.

    Returns
    -------
    ndarray
        (T,), nats; infinite for targets that are a linear function of fewer than n columns.

    Notes
    -----
    With the ratio t = α / β of the precisions, the noise has a closed form, and the evidence is a function of log t
    only: with w = t / (t + s), log β = log n - log(r + Σ wz²), and 2 log p = n log β + Σ log w - n - n log 2π. A grid
    finds the highest maximum (there may be several), and Newton's method with bisection refines it.
    """
    left = np.zeros(len(squares)) if len(values) == n else np.maximum(squares - projected.sum(1), 0)
    exact = (len(values) < n) & (left <= EXACT * squares)
    left = np.where(exact, 1.0, left)
    if not len(values):
        return (n * np.log(n / squares) - n - n * log(2 * pi)) / (2 * n)

    def at(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Twice the log evidence at log ratios u (T,) without its constant, its first and second derivative."""
        logits = u[:, None] - np.log(values)
        w = 1 / (1 + np.exp(-logits))
        v = w / (1 + np.exp(logits))
        q = left + (projected * w).sum(1)
        q1, q2 = (projected * v).sum(1), (projected * v * (1 - 2 * w)).sum(1)
        value = -n * np.log(q) - np.logaddexp(0, -logits).sum(1)
        return value, -n * q1 / q + (1 - w).sum(1), -n * (q2 / q - (q1 / q) ** 2) - v.sum(1)

    grid = np.arange(np.log(values.min()) - 28, np.log(values.max()) + 28 + STEP, STEP)
    w = 1 / (1 + np.exp(np.log(values)[:, None] - grid))
    coarse = -n * np.log(left[:, None] + projected @ w) + np.log(w).sum(0)
    best = coarse.argmax(1)
    u, low, high = grid[best], grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    for _ in range(60):
        _, slope, curvature = at(u)
        low, high = np.where(slope > 0, u, low), np.where(slope > 0, high, u)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = u - slope / curvature
        inside = (curvature < 0) & (step > low) & (step < high)
        following = np.where(inside, step, (low + high) / 2)
        done = np.abs(following - u).max() < 1e-9
        u = following
        if done:
            break
    value = np.maximum(at(u)[0], coarse.max(1))
    return np.where(exact, np.inf, (value + n * log(n) - n - n * log(2 * pi)) / (2 * n))


def _coded(vectors: Vectors, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Class codes (1, n), and the number of examples of each class (1, K)."""
    y = np.asarray(y)
    if y.shape != (vectors.n,):
        raise UsageError(f"labels must have the shape ({vectors.n},), as many as vectors, not {y.shape}.")
    names, codes = np.unique(y, return_inverse=True)
    check_classes(vectors.n, len(names))
    return codes.reshape(1, -1), class_counts(codes.reshape(1, -1), len(names))


def check_classes(n: int, classes: int) -> None:
    """Raise UsageError for fewer than two classes, and without more examples than classes."""
    if classes < 2:
        raise UsageError(f"all {n:,} labels are equal; a transferability score needs two or more classes.")
    if n <= classes:
        raise UsageError(f"{n:,} examples have {classes:,} classes; a score needs more examples than classes.")


def logme(x: Any, y: Any) -> float:
    """LogME: the largest log evidence per example of a Bayesian linear model of the labels.

    Parameters
    ----------
    x : array_like
        (n, d), the vectors, as they are: neither centred nor standardised, as published. The model has no intercept, so
        a common mean of the vectors takes its place and raises the score. Rotations and common factors change nothing.
    y : array_like
        Class labels (n,), of which each is a regression on 0 and 1, or float targets (n,) or (n, targets). The score is
        the mean over classes or targets. That of float targets depends on their unit.

    Returns
    -------
    float
        Nats per example, larger is better; infinite if a target is exactly a linear function of fewer than n columns.

    Raises
    ------
    UsageError
        For one class, or no more examples than classes.
    NonFiniteError
        If x contains NaN or infinity.

    Notes
    -----
    Both precisions are those of the highest maximum of the evidence. Published code stops its fixed-point iteration
    after 11 steps at most, which gives values up to 0.04 away.

    References
    ----------
    You, Liu, Wang & Long 2021, "LogME: Practical assessment of pre-trained models for transfer learning", ICML.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=200)
    >>> x = rng.normal(size=(200, 8))
    >>> round(logme(x, y), 3), round(logme(x + 2 * y[:, None], y), 3)
    (-1.069, -0.396)
    """
    vectors, y = Vectors(np.asanyarray(x)), np.asarray(y)
    if y.dtype.kind != "f":
        codes, counts = _coded(vectors, y)
        return float(vectors.logme(vectors.class_sums(codes, counts.shape[1]), counts, counts)[0])
    if y.ndim not in (1, 2) or len(y) != vectors.n:
        raise UsageError(f"targets must have the shape ({vectors.n},) or ({vectors.n}, targets), not {y.shape}.")
    targets = np.atleast_2d(y.T).astype(np.float64)
    return float(vectors.scores(targets, 0, ["logme"], eps=1.0)["logme"].mean())


def h_score(x: Any, y: Any, *, shrunk: bool = True) -> float:
    """H-score: the trace of the covariance between classes relative to that of all vectors.

    Parameters
    ----------
    x : array_like
        (n, d), the vectors; their mean is subtracted.
    y : array_like
        (n,), class labels.
    shrunk : bool
        Whether the covariance is shrunk as in Ledoit and Wolf (Ibrahim et al. 2021). Without shrinkage (Bao et al.
        2019), the score of n ≤ d linearly independent vectors is the number of classes minus 1, whatever the labels.

    Returns
    -------
    float
        From 0 to the number of classes minus 1, which is the score of classes with one vector each; NaN if all vectors
        are equal.

    Raises
    ------
    UsageError
        For one class, or no more examples than classes.
    NonFiniteError
        If x contains NaN or infinity.

    References
    ----------
    Bao et al. 2019, "An information-theoretic approach to transferability in task transfer learning", ICIP; Ibrahim,
    Ponomareva & Mazumder 2021, "Newer is not always better: rethinking transferability metrics, their peculiarities,
    stability and performance".

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(3, size=300)
    >>> x = rng.normal(size=(300, 4))
    >>> round(h_score(x, y), 2), round(h_score(np.eye(3)[y], y, shrunk=False), 2)
    (0.0, 2.0)
    """
    vectors = Vectors(np.asanyarray(x))
    codes, counts = _coded(vectors, y)
    return float(vectors.h_score(vectors.class_sums(codes, counts.shape[1]), counts, shrunk=shrunk)[0])


def transrate(x: Any, y: Any, eps: float = 1e-4, *, equal: bool = False) -> float:
    """TransRate: how many nats shorter a code of the vectors is if the classes are known.

    Parameters
    ----------
    x : array_like
        (n, d), the vectors; their mean is subtracted, not that of classes.
    y : array_like
        (n,), class labels.
    eps : float
        The squared error with which vectors are coded. The score depends on it and on the scale of the vectors, so
        compare only layers of similar scale.
    equal : bool
        Whether classes have equal weights, as in published code, instead of their shares, as in the paper.

    Returns
    -------
    float
        Nats, 0 or more with the shares as weights.

    Raises
    ------
    UsageError
        For one class, no more examples than classes, or an ``eps`` of 0 or less.
    NonFiniteError
        If x contains NaN or infinity.

    References
    ----------
    Huang, Huang, Rong, Yang & Wei 2022, "Frustratingly easy transferability estimation", ICML.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(3, size=300)
    >>> x = rng.normal(size=(300, 4))
    >>> round(transrate(x, y), 2), round(transrate(x + 2 * np.eye(4)[y], y), 2)
    (0.03, 0.22)
    """
    if not 0 < eps < np.inf:
        raise UsageError(f"eps is {eps}; it must be above 0.")
    vectors = Vectors(np.asanyarray(x))
    codes, counts = _coded(vectors, y)
    return float(vectors.transrate(codes, counts.shape[1], eps=eps, equal=equal)[0])
