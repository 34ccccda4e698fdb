"""Difference of means: a probe in closed form, from class means, with or without the covariance within classes.

One family contains both variants of mass-mean probing (Marks & Tegmark 2023): classes are Gaussians with the common
covariance (1 - s) W + s mean(diag W) I, where W is the covariance within classes and s, from 0 to 1, the shrinkage. At
s = 1 the direction for two classes is the difference of their means, and the nearest mean wins; at s = 0 the space is
whitened first, which is linear discriminant analysis (Hastie, Tibshirani & Friedman 2009, sections 4.3 and 18.3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probekit.errors import UsageError
from probekit.probes.solvers._path import Path, Probe, alike, blocks, checked, class_moments, finite, normalised
from probekit.runtime import Progress, no_progress
from probekit.threads import go_on

SHRINKAGES = (1.0, 0.9, 0.5, 0.1, 0.01, 0.001)
FLOOR = 1e-6  # smallest variance: along a direction, of the largest; within classes, of the total


@dataclass(frozen=True, slots=True)
class MassMeanPath:
    """Linear scores of each class: ``coef`` float32 (T, S, K, d), ``intercept`` float32 (T, S, K).

    Attributes
    ----------
    absent : np.ndarray
        Bool (T, K), classes without an example.
    n : np.ndarray
        Float (T,), the sum of the weights.
    converged : np.ndarray
        Bool (T, S), False if W is singular after shrinkage, so that the classes are perfectly separated.
    """

    coef: np.ndarray
    intercept: np.ndarray
    absent: np.ndarray
    n: np.ndarray
    converged: np.ndarray

    def log_proba(self, x: np.ndarray) -> np.ndarray:
        """Parameters
        ----------
        x : np.ndarray
            Float (n, d). Natural logarithms of the probabilities, float32 (T, S, n, K).
        """
        targets, settings, classes, d = self.coef.shape
        x, out = finite(x), np.empty((targets, settings, len(x), classes), dtype=np.float32)
        flat = self.coef.reshape(-1, d).T
        for rows in blocks(len(x)):
            logits = (x[rows] @ flat).reshape(-1, targets, settings, classes).transpose(1, 2, 0, 3)
            for t in range(targets):
                out[t, :, rows] = normalised(logits[t] + self.intercept[t, :, None], self.absent[t], self.n[t])
        return out


class MassMean(Probe):
    """Difference of means for every target and shrinkage: 1 is plain, 0 is whitened (see ``path``)."""

    def __init__(self, shrinkages: Sequence[float] = SHRINKAGES, *, calibrate: bool = True) -> None:
        self.shrinkages, self.calibrate = shrinkages, calibrate

    def _path(self, x: np.ndarray, codes: np.ndarray, classes: int) -> Path:
        return path(x, codes, classes, self.shrinkages, calibrate=self.calibrate)


def path(
    x: np.ndarray,
    codes: np.ndarray,
    classes: int,
    settings: Sequence[float] = SHRINKAGES,
    *,
    seed: int = 0,
    weights: np.ndarray | None = None,
    progress: Progress | None = None,
    calibrate: bool = True,
) -> MassMeanPath:
    """Fit every target and shrinkage, with one pass over x for all means and one decomposition of its covariance.

    With x = x̄ + Q√Λ z the total covariance is I in z, and that between classes is UUᵀ, with K columns. W⁻¹ is needed
    only on U, (I - UUᵀ)⁻¹ U = U (I - UᵀU)⁻¹: a target costs K × K, independent of n.

    Parameters
    ----------
    x : np.ndarray
        float32 (n, d), may be memory-mapped.
    codes : np.ndarray
        Int (T, n), 0 … classes-1, -1 for unlabelled.
    settings : Sequence[float], default SHRINKAGES
        Shrinkages.
    seed : int, default 0
        Not used.
    weights : np.ndarray, optional
        Float (n,) or (T, n); targets with different weights are decomposed separately.
    calibrate : bool, default True
        Fit one slope for all classes and one intercept per class to the scores by maximum likelihood on train (for two
        classes: logistic regression on the projection; Platt 1999), because the scores of a Gaussian with the wrong
        covariance are overconfident. Otherwise the probabilities are the posterior of the Gaussians.

    Raises
    ------
    UsageError, NonFiniteError
        As from ``checked``.
    UsageError
        For a shrinkage out of range.
    """
    if not len(settings) or not all(0 <= s <= 1 for s in settings):
        raise UsageError(f"shrinkages must lie between 0 and 1, not {tuple(settings)}.")
    x, codes, w = checked(x, codes, classes, weights)
    shape = (len(codes), len(settings), classes)
    coef, intercept = np.empty((*shape, x.shape[1]), dtype=np.float32), np.empty(shape, dtype=np.float32)
    converged, absent = np.empty(shape[:2], dtype=bool), np.empty((len(codes), classes), dtype=bool)
    done = 0
    for members, weight in alike(w):
        mean, gram, means, share = class_moments(x, codes[members], classes, weight)
        power, basis = np.linalg.eigh(gram)
        for target, m, p in zip(members, means, share, strict=True):
            absent[target] = p == 0
            for i, s in enumerate(settings):
                go_on()
                lines, offset, converged[target, i] = discriminant(power, basis, m, p, s)
                coef[target, i], intercept[target, i] = lines, offset - lines @ mean
            if calibrate:
                coef[target], intercept[target] = calibrated(
                    x, codes[target], weight, coef[target], intercept[target], absent[target]
                )
            done += 1
            (progress or no_progress)("mass-mean", done, len(codes))
    return MassMeanPath(coef, intercept, absent, w.sum(1, dtype=np.float64), converged)


def discriminant(
    power: np.ndarray, basis: np.ndarray, means: np.ndarray, share: np.ndarray, shrinkage: float
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Lines (K, d) and offsets (K,) of the log posterior up to a constant, and whether the covariance was regular."""
    between = means @ basis  # (K, d), along the principal axes
    spread = (power.sum() - (share @ between**2).sum()) / len(power)
    diagonal = (1 - shrinkage) * power + shrinkage * spread
    keep = diagonal > FLOOR * diagonal.max()
    white = np.where(keep, 1 / np.sqrt(np.where(keep, diagonal, 1)), 0)
    u = np.sqrt(share)[:, None] * between * white
    value, vector = np.linalg.eigh(u @ u.T)
    left = 1 - (1 - shrinkage) * value  # of variance, within the classes
    inverse = (vector / np.maximum(left, FLOOR)) @ vector.T
    root = np.where(share > 0, 1 / np.sqrt(np.where(share > 0, share, 1)), 0)
    lines = root[:, None] * ((inverse @ u) * white) @ basis.T
    offset = np.log(np.where(share > 0, share, 1)) - 0.5 * (lines * means).sum(1)
    return lines, offset, bool(left.min() > FLOOR)


def calibrated(
    x: np.ndarray, codes: np.ndarray, weight: np.ndarray, coef: np.ndarray, intercept: np.ndarray, absent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lines (S, K, d) and intercepts (S, K) that maximise the likelihood of softmax(slope · score + shift).

    By Newton's method. A weak prior (½ slope² + ½ |shift|², with scores of unit deviation) keeps slope and shift (K,)
    finite for separable classes.
    """
    settings, classes, d = coef.shape
    use = weight > 0
    y, w = codes[use], weight[use].astype(np.float64)
    scores = np.concatenate([x[rows][use[rows]] @ coef.reshape(-1, d).T for rows in blocks(len(x))])
    slope, shift = np.empty(settings), np.zeros((settings, classes))
    present = np.flatnonzero(~absent)
    hit = y[:, None] == present
    for i in range(settings):
        score = scores[:, i * classes + present] + intercept[i, present]
        score = score - score.mean(1, keepdims=True)
        scale = max(float(np.sqrt(np.average(score**2, axis=0, weights=w).sum())), 1e-30)
        score = score.astype(np.float64) / scale
        slope[i], shift[i, present] = slope_and_shifts(score, hit, w)
        slope[i] /= scale
    return coef * slope[:, None, None], intercept * slope[:, None] + shift


def slope_and_shifts(score: np.ndarray, hit: np.ndarray, w: np.ndarray) -> tuple[float, np.ndarray]:
    """Slope and shifts (K,) of softmax(slope · score + shift) for score (n, K), hits bool (n, K) and weights (n,)."""
    theta = np.zeros(1 + score.shape[1])
    loss = np.inf
    step = np.zeros_like(theta)
    for _ in range(60):
        logits = score * theta[0] + theta[1:]
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(1, keepdims=True)
        p /= total
        now = float(w @ (np.log(total[:, 0]) - (logits * hit).sum(1)) + 0.5 * theta @ theta)
        if now > loss + 1e-9 * abs(loss):
            step /= 2
            theta -= step
            continue
        loss = now
        error, weighted = w[:, None] * (p - hit), w[:, None] * p
        inner = (p * score).sum(1, keepdims=True)
        across = (weighted * (score - inner)).sum(0)
        hessian = np.eye(len(theta))
        hessian[0, 0] += (weighted * score * (score - inner)).sum()
        hessian[0, 1:] += across
        hessian[1:, 0] += across
        hessian[1:, 1:] += np.diag(weighted.sum(0)) - p.T @ weighted
        gradient = np.append((error * score).sum(), error.sum(0)) + theta
        step = -np.linalg.solve(hessian, gradient)
        if -gradient @ step < 1e-10 * len(w):
            break
        theta += step
    return float(theta[0]), theta[1:]
