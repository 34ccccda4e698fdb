"""Monitors: a linear probe fitted on the means of texts, which scores each piece; the pieces' scores become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probekit.errors import UsageError
from probekit.probes.solvers.attention import Sequences
from probekit.probes.solvers.logistic import CS, fit_logistic
from probekit.probes.solvers.mass_mean import slope_and_shifts
from probekit.probes.solvers.scores import Score

__all__ = ["CS", "MonitorPath", "path"]


@dataclass(frozen=True, slots=True)
class MonitorPath:
    """Probes of T targets and S penalties.

    Attributes
    ----------
    weights : np.ndarray
        float32 (T S, d), of a piece.
    intercept, slope, shift : np.ndarray
        Float64 (T S,): the logit of class 1 is slope · score + shift, where the score is of pieces' x·w + intercept.
    score : Score
        How the scores of pieces become one.
    converged : np.ndarray
        Bool (T, S).
    """

    weights: np.ndarray
    intercept: np.ndarray
    slope: np.ndarray
    shift: np.ndarray
    score: Score
    converged: np.ndarray

    def scores(self, x: Sequences) -> np.ndarray:
        """The score of each text, float64 (n, T S)."""
        if (x.length < 1).any():
            raise UsageError(f"text {int((x.length < 1).argmax())} has no pieces; a monitor needs one at least.")
        parts = [self._scores(x.at(at)) for at in x.blocks()]
        return np.concatenate(parts) if parts else np.empty((0, len(self.slope)))

    def _scores(self, x: Sequences) -> np.ndarray:
        return self.score.of(x.pieces() @ self.weights.T + self.intercept, x.length)

    def log_proba(self, x: Sequences) -> np.ndarray:
        """Natural logarithms of the probabilities of the two classes, float32 (T, S, n, 2)."""
        z = (self.scores(x) * self.slope + self.shift).T.reshape(*self.converged.shape, -1)
        return np.stack([-np.logaddexp(0, z), -np.logaddexp(0, -z)], -1).astype(np.float32)


def path(
    x: Sequences,
    codes: np.ndarray,
    classes: int,
    settings: Sequence[float] = CS,
    *,
    score: Score,
    weights: np.ndarray | None = None,
    max_iter: int = 5000,
) -> MonitorPath:
    """Fit a monitor for every target and penalty.

    Logistic regression on the mean of each text's pieces gives the weights; then slope and shift are fitted to the
    scores of train's texts, because a maximum of many scores is larger than their mean (Platt 1999).

    Parameters
    ----------
    x : Sequences
        The pieces of n texts.
    codes : np.ndarray
        Int (T, n), 0 or 1.
    classes : int
        2.
    settings : sequence of float
        Inverse penalties C.
    score : Score
        How the scores of pieces become one.
    weights : np.ndarray, optional
        Float (T, n), weights of the texts.

    Raises
    ------
    UsageError
        For more than two classes, and for a text without pieces.
    """
    if classes != 2:
        raise UsageError(f"monitors tell two classes apart, not {classes}; use --estimator attention or logistic.")
    fit = fit_logistic(np.asarray(x), codes, 2, settings, weights=weights, max_iter=max_iter)
    lines = fit.weights[:, :, 0].reshape(-1, x.shape[1])
    intercept = fit.intercepts[:, :, 0].reshape(-1) - lines @ np.asarray(fit.centre, dtype=np.float64)
    ones = np.ones(len(lines))
    found = MonitorPath(lines.astype(np.float32), intercept, ones, 0 * ones, score, np.asarray(fit.converged))
    scores, slope, shift = found.scores(x), ones.copy(), 0 * ones
    for k in range(len(lines)):
        target = k // len(settings)
        w = np.ones(len(scores)) if weights is None else weights[target].astype(np.float64)
        slope[k], shift[k] = _platt(scores[:, k], codes[target], w)
    return MonitorPath(found.weights, intercept, slope, shift, score, found.converged)


def _platt(score: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[float, float]:
    """Slope and shift of the logit of class 1."""
    centre = float(np.average(score, weights=w))
    scale = max(float(np.sqrt(np.average((score - centre) ** 2, weights=w))), 1e-30)
    standard = (score - centre) / scale
    slope, shifts = slope_and_shifts(np.stack([-standard, standard], 1) / 2, y[:, None] == np.arange(2), w)
    return slope / scale, float(shifts[1] - shifts[0]) - slope * centre / scale
