"""Probes from sums over any number of rows: ridge regression exactly, difference of means with a sample of the rows.

The procedure is that of :func:`probekit.probes.protocol.selection.select`: each fold is left out by subtracting its
sums, the setting with the least loss on the folds is fitted again to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.probes.protocol.selection import Board, Chosen, Outcome, Paths, Ridge, digest_of, edge_of
from probekit.probes.solvers.design import Moments
from probekit.probes.solvers.mass_mean import MassMeanPath, calibrated, discriminant
from probekit.probes.solvers.ridge import RidgeFit

__all__ = ["Classifier", "Crossed", "Sample", "select_mass_mean", "select_ridge"]


@dataclass(frozen=True, eq=False, slots=True)
class Crossed:
    """Sums of the labels y of T label sets with C columns (1 for numbers, else one a class) over F folds, float64.

    Attributes
    ----------
    cross : np.ndarray
        (F, T, C, d): Σ y (x - centre).
    total, square : np.ndarray
        (F, T, C): Σ y and Σ y².
    """

    cross: np.ndarray
    total: np.ndarray
    square: np.ndarray

    @property
    def classes(self) -> int:
        """The number of classes; 0 for numbers."""
        return 0 if self.total.shape[2] == 1 else self.total.shape[2]

    def without(self, f: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Σ y (x - centre), (T, C, d), and Σ y, (T, C), of all folds but ``f``."""
        kept = np.arange(len(self.total)) != f
        return self.cross[kept].sum(0), self.total[kept].sum(0)


@dataclass(frozen=True, eq=False, slots=True)
class Sample:
    """Some of the rows: x (m, d), their codes (T, m) in each label set, and their folds (m,)."""

    x: np.ndarray
    y: np.ndarray
    fold: np.ndarray


@dataclass(frozen=True, slots=True)
class Classifier:
    """Ridge regression on one column for each class; the largest prediction wins."""

    fit: RidgeFit
    classes: int

    @property
    def converged(self) -> np.ndarray:
        return self.fit.converged[:: self.classes]

    @property
    def decrement(self) -> np.ndarray:
        return self.fit.decrement[:: self.classes]

    def outcome(self, x: Any, rows: np.ndarray | None, y: np.ndarray) -> Outcome:
        return None, self.log_proba(x, rows).argmax(3)

    def log_proba(self, x: Any, rows: np.ndarray | None) -> np.ndarray:
        """The predictions, which are not probabilities, (T, settings, m, classes)."""
        found = self.fit.predict(x, rows)
        return found.reshape(-1, self.classes, *found.shape[1:]).transpose(0, 2, 3, 1)


def rest(folds: Sequence[Moments], f: int | None) -> Moments:
    """The moments of all folds but ``f``."""
    kept = [m for i, m in enumerate(folds) if i != f]
    total = kept[0]
    for other in kept[1:]:
        total = total + other
    return total


def select_ridge(folds: Sequence[Moments], y: Crossed, alphas: Sequence[float]) -> Chosen:
    """Ridge regression of each label set on standardised features, with the alpha of least squared error on the folds.

    Classes are one column each, with one alpha for all (least squares on indicators; Hastie, Tibshirani & Friedman
    2009, section 4.2). Everything follows from the sums, also the errors on the fold that is left out.

    Parameters
    ----------
    folds : sequence of Moments
        Of each fold, with one centre.
    y : Crossed
        The labels, about the same centre.
    alphas : sequence of float
        Penalties, the strongest first.
    """
    grid = np.asarray(alphas, dtype=np.float64)
    t, c = y.total.shape[1:]
    error, count = np.zeros((t, len(grid))), sum(m.weight for m in folds)
    for f, held in enumerate(folds if len(grid) > 1 else ()):
        if held.weight:
            error += _held_out(held, *_solved(rest(folds, f), *y.without(f), grid[None].repeat(t, 0)), y, f)
    error /= count
    best = error.argmin(1)
    total = rest(folds, None)
    w, b, centre = _solved(total, *y.without(None), grid[best][:, None])
    shape = (t * c, 1)
    nothing = np.full(shape, np.nan)
    fit = RidgeFit(
        w.transpose(0, 2, 1, 3).reshape(t * c, 1, 1, -1), b.transpose(0, 2, 1).reshape(t * c, 1, 1), centre, nothing,
        np.zeros(shape),
    )  # fmt: skip
    at, several = np.arange(t), len(grid) > 1
    return Chosen(
        Classifier(fit, c) if y.classes else Ridge(fit), grid[best],
        error[at, best] if several else np.full(t, np.nan), edge_of(error, best) & several, np.ones(t, dtype=bool),
        np.zeros(t), tuple(digest_of(Ridge(fit), i * c) for i in range(t)), np.ones(t),
    )  # fmt: skip


def _solved(
    m: Moments, cross: np.ndarray, total: np.ndarray, alphas: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (T, A, C, d) on x - mean, intercepts (T, A, C), and the mean (d,), for alphas (T, A)."""
    scale = m.inverse_deviation
    values, vectors = np.linalg.eigh(m.scatter * scale * scale[:, None])
    turned = ((cross - total[..., None] * m.total / m.weight) * scale) @ vectors
    a = turned[:, None] / (np.maximum(values, 0) + alphas[..., None, None])
    b = np.broadcast_to((total / m.weight)[:, None], a.shape[:3])
    return (a @ vectors.T) * scale, b, m.mean


def _held_out(m: Moments, w: np.ndarray, b: np.ndarray, mean: np.ndarray, y: Crossed, f: int) -> np.ndarray:
    """The sum of squared errors on a fold, over the columns, (T, A)."""
    b = b - w @ (mean - m.centre)  # of x - centre
    own = y.square[f][:, None] - 2 * np.einsum("tacd,tcd->tac", w, y.cross[f]) - 2 * b * y.total[f][:, None]
    square = np.einsum("tacd,tacd->tac", (w.reshape(-1, w.shape[-1]) @ m.gram).reshape(w.shape), w)
    return np.asarray((own + square + 2 * b * (w @ m.total) + m.weight * b**2).sum(2))


def select_mass_mean(folds: Sequence[Moments], y: Crossed, sample: Sample, shrinkages: Sequence[float]) -> Chosen:
    """Difference of means of each label set, with the shrinkage of least log loss on held-out rows of the sample.

    Means and covariance are those of all rows. The sample calibrates the probabilities and chooses the shrinkage: of
    its rows, those of a fold are evaluated by the probe of the other folds.

    Parameters
    ----------
    folds, y
        As for :func:`select_ridge`.
    sample : Sample
        Some rows.
    shrinkages : sequence of float
        The strongest first.
    """
    grid = np.asarray(shrinkages, dtype=np.float64)
    t = len(sample.y)
    board, converged = Board((t, len(grid))), np.ones((t, len(grid)), dtype=bool)
    for f in range(len(folds)) if len(grid) > 1 else ():
        held = sample.fold == f
        if not held.any() or held.all():
            continue
        cross, count = y.without(f)
        part = Sample(sample.x[~held], sample.y[:, ~held], sample.fold[~held])
        fitted = _means(rest(folds, f), cross, count, part, grid[None].repeat(t, 0))
        converged &= fitted.converged
        loss, _ = fitted.outcome(sample.x[held], None, sample.y[:, held])
        board.add(np.asarray(loss), np.take_along_axis(count > 0, sample.y[:, held], 1))
    best = board.mean.argmin(1)
    final = _means(rest(folds, None), *y.without(None), sample, grid[best][:, None])
    at, several = np.arange(t), len(grid) > 1
    return Chosen(
        final, grid[best], board.mean[at, best] if several else np.full(t, np.nan), board.edge(best),
        converged[at, best] & final.converged[:, 0], np.full(t, np.nan), ("",) * t, np.ones(t),
    )  # fmt: skip


def _means(m: Moments, cross: np.ndarray, count: np.ndarray, sample: Sample, settings: np.ndarray) -> Paths:
    """The probes of settings (T, S)."""
    scale, (targets, classes) = m.inverse_deviation, count.shape
    power, basis = np.linalg.eigh(m.scatter / m.weight * scale * scale[:, None])
    means = (cross / np.maximum(count, 1)[..., None] - m.total / m.weight) * scale
    shape = (targets, settings.shape[1], classes)
    coef, intercept = np.empty((*shape, len(scale)), dtype=np.float32), np.empty(shape, dtype=np.float32)
    converged, absent = np.empty(shape[:2], dtype=bool), count == 0
    mean, factor = m.mean.astype(np.float32), scale.astype(np.float32)
    x, ones = (sample.x - mean) * factor, np.ones(len(sample.x), dtype=np.float32)
    for t in range(targets):
        centred = np.where(absent[t][:, None], 0, means[t])
        for i, s in enumerate(settings[t]):
            coef[t, i], intercept[t, i], converged[t, i] = discriminant(
                power, basis, centred, count[t] / m.weight, float(s)
            )
        slope, shift = calibrated(x, sample.y[t], ones, coef[t], intercept[t], absent[t])
        coef[t] *= slope[:, None, None]
        intercept[t] = intercept[t] * slope[:, None] + shift
    path = MassMeanPath(coef, intercept, absent, np.full(targets, m.weight), converged)
    return Paths(((np.arange(targets), path),), mean, factor)
