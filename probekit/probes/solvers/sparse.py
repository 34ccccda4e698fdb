"""Probes on sparse input, such as a bag of word pieces, with scikit-learn's solvers, which keep it sparse."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression, Ridge

from probekit.errors import UsageError
from probekit.threads import go_on

SPARSE_CS = (1e-4, 1e-3, 1e-2, 1e-1, 0.3, 1.0, 10.0, 100.0)


@dataclass(frozen=True, slots=True)
class SparsePath:
    """Logistic regressions on sparse input, one for each of S penalties.

    Attributes
    ----------
    coef : np.ndarray
        float64 (S, K, d).
    intercept : np.ndarray
        float64 (S, K).
    converged : np.ndarray
        Bool (S,).
    """

    coef: np.ndarray
    intercept: np.ndarray
    converged: np.ndarray

    def log_proba(self, x: sparse.csr_matrix) -> np.ndarray:
        """Natural logarithms of the classes' probabilities, float32 (S, n, K)."""
        return np.stack(
            [
                log_softmax(x @ w.T + b, axis=1).astype(np.float32)
                for w, b in zip(self.coef, self.intercept, strict=True)
            ]
        )


def sparse_path(
    x: sparse.csr_matrix, codes: np.ndarray, classes: int, Cs: Sequence[float] = SPARSE_CS, *, balanced: bool = False
) -> SparsePath:
    """scikit-learn's logistic regressions (Newton's method) for each C, each starting from the previous one.

    On one core, 8 values of C take 6 s for SST-2 (67,349 texts, 11,570 pieces) and 17 s for 5,452 texts of 50 classes.

    Parameters
    ----------
    x : sparse.csr_matrix
        Csr (n, d), not standardised, which would make it dense.
    codes : np.ndarray
        Int (n,), 0 … classes-1, or -1 for rows to leave out. A class that does not occur gets probability 0 (-inf).
    balanced : bool, default False
        Give all classes the same weight.

    Raises
    ------
    UsageError
        For fewer than two classes, and codes or penalties out of range.
    """
    codes = np.asarray(codes)
    if codes.shape != x.shape[:1] or codes.min() < -1 or codes.max() >= classes:
        raise UsageError(
            f"codes must be -1 or 0 … {classes - 1} for each of the {x.shape[0]} rows; their shape is {codes.shape}."
        )
    if not (len(Cs) and all(0 < c < np.inf for c in Cs)):
        raise UsageError(f"penalties must be positive numbers, not {tuple(Cs)}.")
    there = np.unique(codes[codes >= 0])
    if len(there) < 2:
        raise UsageError("fewer than two classes are labelled; a probe needs two.")
    x, codes = x[codes >= 0].astype(np.float64), codes[codes >= 0]
    coef = np.zeros((len(Cs), classes, x.shape[1]))
    intercept = np.full((len(Cs), classes), -np.inf)
    converged = np.zeros(len(Cs), dtype=bool)
    weight = "balanced" if balanced else None
    model = LogisticRegression(solver="newton-cg", warm_start=True, tol=1e-6, max_iter=200, class_weight=weight)
    for s in np.argsort(Cs, kind="stable"):
        go_on()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reported in ``converged``
            model.set_params(C=Cs[s]).fit(x, codes)
        w, b = model.coef_, model.intercept_
        binary = len(there) == 2  # one row of weights, for the second class
        coef[s, there] = np.vstack([0 * w, w]) if binary else w
        intercept[s, there] = np.append(0, b) if binary else b
        converged[s] = int(np.max(model.n_iter_)) < model.max_iter
    return SparsePath(coef, intercept, converged)


@dataclass(frozen=True, slots=True)
class SparseRidge:
    """Ridge regressions on sparse input: coef float64 (S, d), intercept float64 (S,)."""

    coef: np.ndarray
    intercept: np.ndarray

    def predict(self, x: sparse.csr_matrix) -> np.ndarray:
        """Predicted values, float64 (S, n)."""
        return (x @ self.coef.T + self.intercept).T


def sparse_ridge(x: sparse.csr_matrix, y: np.ndarray, alphas: Sequence[float]) -> SparseRidge:
    """Minimisers of ‖y - xw - b‖² + alpha ‖w‖² for each alpha, with free b, from scikit-learn's conjugate gradients.

    Parameters
    ----------
    x : sparse.csr_matrix
        Csr (n, d).
    y : np.ndarray
        Float (n,), NaN for rows to leave out.
    """
    known = ~np.isnan(y)
    x, y = x[known].astype(np.float64), y[known]
    models = [Ridge(alpha=alpha, solver="sparse_cg", tol=1e-8).fit(x, y) for alpha in alphas]
    return SparseRidge(np.stack([m.coef_ for m in models]), np.array([m.intercept_ for m in models]))
