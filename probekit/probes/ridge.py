"""Ridge regression in closed form, all penalties from one decomposition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["ridge_path"]


def ridge_path(x: np.ndarray, y: np.ndarray, alphas: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Minimisers of ‖y - xw - b‖² + alpha ‖w‖² for each alpha; the intercept b is not penalised.

    x : float (n, d); y : float (n,)
    Returns w, float64 (d, alphas), and b, float64 (alphas,). With x = x̄ + UΣVᵀ, w = V (Σ² + alpha)⁻¹ ΣUᵀ(y - ȳ): the
    decomposition of the smaller of xᵀx and xxᵀ serves every alpha. (Hastie, Tibshirani & Friedman 2009, section 3.4.1.)
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    mean, centre = x.mean(0), y.mean()
    x, y = x - mean, y - centre
    wide = x.shape[1] > x.shape[0]
    power, basis = np.linalg.eigh(x @ x.T if wide else x.T @ x)
    shrunk = (basis.T @ (y if wide else x.T @ y))[:, None] / (np.maximum(power, 0)[:, None] + np.asarray(alphas))
    weights = x.T @ (basis @ shrunk) if wide else basis @ shrunk
    return weights, centre - mean @ weights
