"""Probes from sums over any number of rows: ridge regression exactly, difference of means with a sample of the rows.

The procedure is that of :func:`probekit.probes.protocol.selection.select`: each fold is left out by subtracting its
sums, the setting with the least loss on the folds is fitted again to all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from scipy.special import log_softmax

from probekit.errors import UsageError
from probekit.probes.protocol.selection import Board, Chosen, Outcome, Paths, Ridge, digest_of, edge_of
from probekit.probes.solvers.mass_mean import MassMeanPath, calibrated, discriminant
from probekit.probes.solvers.ridge import RidgeFit
from probekit.statistics.calibration import temperature
from probekit.statistics.moments import Moments


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
    """Ridge regression on one column for each class; the largest score wins.

    Attributes
    ----------
    heat : np.ndarray, optional
        (T,): probabilities are softmax(score / heat); None for no probabilities.
    """

    fit: RidgeFit
    classes: int
    heat: np.ndarray | None = None

    @property
    def converged(self) -> np.ndarray:
        return self.fit.converged[:: self.classes]

    @property
    def decrement(self) -> np.ndarray:
        return self.fit.decrement[:: self.classes]

    def outcome(self, x: Any, rows: np.ndarray | None, y: np.ndarray) -> Outcome:
        scores = self._scores(x, rows)
        if self.heat is None:
            return None, scores.argmax(3)
        loss = -np.take_along_axis(self._log_proba(scores), y[:, None, :, None], 3)[..., 0]
        return loss, scores.argmax(3)

    def log_proba(self, x: Any, rows: np.ndarray | None) -> np.ndarray:
        return self._log_proba(self._scores(x, rows))

    def _scores(self, x: Any, rows: np.ndarray | None) -> np.ndarray:
        found = self.fit.predict(x, rows)
        return found.reshape(-1, self.classes, *found.shape[1:]).transpose(0, 2, 3, 1)

    def _log_proba(self, scores: np.ndarray) -> np.ndarray:
        if self.heat is None:
            raise UsageError("ridge regression gives no probabilities without a sample of the rows.")
        return np.asarray(log_softmax(scores / self.heat[:, None, None, None], axis=3))


def rest(folds: Sequence[Moments], f: int | None) -> Moments:
    """The moments of all folds but ``f``."""
    return reduce(add, (m for i, m in enumerate(folds) if i != f))


def select_ridge(folds: Sequence[Moments], y: Crossed, alphas: Sequence[float], sample: Sample | None = None) -> Chosen:
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
    sample : Sample, optional
        Some rows: scores of classes become probabilities by a temperature that their held-out scores determine.
    """
    grid = np.asarray(alphas, dtype=np.float64)
    t, c = y.total.shape[1:]
    several, heated = len(grid) > 1, bool(y.classes) and sample is not None and len(sample.x) > 0
    error, count = np.zeros((t, len(grid))), sum(m.weight for m in folds)
    solutions = {}
    for f, held in enumerate(folds if several or heated else ()):
        if held.weight:
            solutions[f] = _solved(rest(folds, f), *y.without(f), grid[None].repeat(t, 0))
            error += _held_out(held, *solutions[f], y, f)
    error /= count
    best, at = error.argmin(1), np.arange(t)
    w, b, centre = _solved(rest(folds, None), *y.without(None), grid[best][:, None])
    shape = (t * c, 1)
    fit = RidgeFit(
        w.transpose(0, 2, 1, 3).reshape(t * c, 1, 1, -1), b.transpose(0, 2, 1).reshape(t * c, 1, 1), centre,
        np.full(shape, np.nan), np.zeros(shape),
    )  # fmt: skip
    heat = None
    if heated and sample is not None:
        chosen = {f: (w[at, best], b[at, best], mean) for f, (w, b, mean) in solutions.items()}
        heat = _heat(sample, chosen, c)
    return Chosen(
        Classifier(fit, c, heat) if y.classes else Ridge(fit), grid[best],
        error[at, best] if several else np.full(t, np.nan), edge_of(error, best) & several, np.ones(t, dtype=bool),
        np.zeros(t), tuple(digest_of(Ridge(fit), i * c) for i in range(t)), np.ones(t),
    )  # fmt: skip


def _heat(
    sample: Sample, solutions: Mapping[int, tuple[np.ndarray, np.ndarray, np.ndarray]], classes: int
) -> np.ndarray:
    """The temperature of each label set, (T,), from the scores of each row by the probe of the other folds."""
    scores = np.zeros((len(sample.y), len(sample.x), classes))
    for f, (w, b, mean) in solutions.items():
        rows = sample.fold == f
        scores[:, rows] = np.einsum("nd,tcd->tnc", sample.x[rows] - mean, w, optimize=True) + b[:, None]
    return np.concatenate([temperature(one[None], y) for one, y in zip(scores, sample.y, strict=True)])


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
        coef[t], intercept[t] = calibrated(x, sample.y[t], ones, coef[t], intercept[t], absent[t])
    path = MassMeanPath(coef, intercept, absent, np.full(targets, m.weight), converged)
    return Paths(((np.arange(targets), path),), mean, factor)
