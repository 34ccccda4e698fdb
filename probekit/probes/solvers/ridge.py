"""Ridge regression for many targets and penalties on the same features, with exact leave-one-out errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from probekit.constraint import as_array, check
from probekit.errors import UsageError
from probekit.probes.solvers.basis import Basis, lost
from probekit.probes.solvers.design import (
    Design,
    accelerator,
    check_matrix,
    middle,
    moments,
    narrowed,
    precision,
    product,
    resident,
    unsolved,
)
from probekit.probes.solvers.exact_ridge import ridge_exactly
from probekit.runtime import torch_threads
from probekit.statistics.moments import Moments

ALPHAS = tuple(float(a) for a in np.logspace(-2, 6, 17))
"""Default penalties alpha (strength) to try, for standardised features."""
REFINED = 3  # most corrections of the errors of float32 sums
ALONE = 0.01  # a smaller 1 - leverage, of a row that determines its prediction, is too small for float32
EXACT = 1e-8  # of a target's sum of squares: the correction at this decrement is the last


@dataclass(frozen=True, slots=True)
class RidgeFit:
    """Models of ``targets`` × ``alphas``.

    Attributes
    ----------
    weights : np.ndarray
        float64 (targets, alphas, 1, d), on x - centre; intercepts (targets, alphas, 1).
    leave_one_out : np.ndarray
        Mean squared error of each row under the model fitted to all others (targets, alphas); NaN if not requested.
    decrement : np.ndarray
        gᵀH⁻¹g (targets, alphas), as a share of the target's sum of squares; if features or rows differ much in scale
        and the duality gap is above a millionth, that gap.
    """

    weights: np.ndarray
    intercepts: np.ndarray
    centre: np.ndarray
    leave_one_out: np.ndarray
    decrement: np.ndarray

    @property
    def converged(self) -> np.ndarray:
        """Bool (targets, alphas)."""
        return self.decrement <= 1e-8

    def predict(self, x: Any, rows: np.ndarray | None = None, dtype: torch.dtype = torch.float32) -> np.ndarray:
        """x·w + b of rows of ``x``, (targets, alphas, m)."""
        t, a, _, d = self.weights.shape
        w = torch.as_tensor(self.weights.reshape(-1, d)).to(dtype)
        return Design(x, rows, self.centre, dtype=dtype)(w).numpy().reshape(t, a, -1) + self.intercepts

    def choose(self, penalties: np.ndarray) -> RidgeFit:
        """For each target the model with one penalty, given by index, as a fit with a single alpha."""
        at = (np.arange(len(self.weights)), np.asarray(penalties))
        pick = [v[at][:, None] for v in (self.weights, self.intercepts, self.leave_one_out, self.decrement)]
        return RidgeFit(pick[0], pick[1], self.centre, pick[2], pick[3])


def fit_ridge(
    x: Any,
    y: np.ndarray,
    alphas: Sequence[float] | np.ndarray,
    *,
    rows: np.ndarray | None = None,
    sums: Moments | None = None,
    standardise: bool = True,
    leave_one_out: bool = False,
    dtype: torch.dtype | None = None,
    device: str = "cpu",
) -> RidgeFit:
    """Minimisers of ‖y - xw - b‖² + alpha |w|² for every target and alpha; the intercept b is not penalised.

    In the eigenvectors of XᵀX each penalty is a division (Hastie, Tibshirani & Friedman 2009, section 3.4.1). Sums of
    float32 products are corrected by passes over the residuals until the decrement is negligible.

    Parameters
    ----------
    x : Any
        (n, d) array or memory map.
    y : np.ndarray
        Float (targets, m).
    alphas : Sequence[float] | np.ndarray
        (alphas,), or (targets, alphas) if targets differ.
    rows : np.ndarray, optional
        Int (m,), indices of the rows (default: all).
    sums : Moments, optional
        Moments of those rows (default: computed).
    standardise : bool, default True
        Apply the penalty to standardised features.
    leave_one_out : bool, default False
        Also compute the leave-one-out error of each row from its leverage, (y - ŷ)/(1 - h) (Allen 1974), in a second
        pass.
    """
    count = x.shape[0] if rows is None else len(rows)
    dtype = dtype or precision(count, x.shape[1])
    strength = np.broadcast_to(np.asarray(alphas, dtype=np.float64), (len(y), np.shape(alphas)[-1]))
    if count < x.shape[1]:
        x, sums, mean_of_rows, back, shift = narrowed(x, rows, standardise=standardise)
        fit = fit_ridge(
            x, y, alphas, sums=sums, standardise=False, leave_one_out=leave_one_out, dtype=dtype, device=device
        )
        wide = fit.weights @ back.T
        return replace(fit, weights=wide, intercepts=fit.intercepts + wide @ shift, centre=mean_of_rows)
    x = resident(x, device)
    with torch_threads(1):
        if sums is None:
            [sums] = moments(x, [rows], dtype=dtype, device=device)
        centre = middle(x, sums.mean)
        design = Design(x, rows, centre, sums.inverse_deviation if standardise else None, dtype, device)
        scale = torch.as_tensor(design.factors, dtype=torch.float64, device=device)
        gram = torch.as_tensor(sums.scatter, dtype=torch.float64, device=device) * scale * scale[:, None]
        values, vectors = torch.linalg.eigh(gram)
        basis = Basis(
            vectors, values.clamp_min(0), scale, count, lost(gram.diagonal(), values, float(values[-1]), dtype)
        )
        if not basis.sound(design, float(strength.min())):
            return _with_care(x, y, strength, rows, standardise, leave_one_out, device)
        values = values.clamp_min(0)
        vectors = scale[:, None] * vectors  # of x - centre
        mean = y.mean(1, dtype=np.float64)
        centred = torch.as_tensor(y - mean[:, None], dtype=dtype, device=device)
        power = torch.as_tensor((y - mean[:, None]).astype(np.float64) ** 2).sum(1).to(device).clamp_min(1e-300)
        alpha = torch.as_tensor(strength.copy(), device=device)
        a = torch.zeros((*strength.shape, len(values)), dtype=torch.float64, device=device)
        b = torch.zeros(strength.shape, dtype=torch.float64, device=device)
        decrement = torch.full(strength.shape, torch.inf, dtype=torch.float64, device=device)
        for turn in range(REFINED + 1):
            g, steep = _slopes(design, a @ vectors.T if turn else None, b, centred, vectors)
            g = g - alpha[..., None] * a
            step = g / (values + alpha[..., None])
            decrement = torch.linalg.vecdot(g, step) / power[:, None]
            a, b = a + step, b + steep / count
            if turn and float(decrement.max()) <= EXACT:
                break
        loo = torch.full(strength.shape, torch.nan, dtype=torch.float64)
        if leave_one_out:
            loo, apart = _leave_one_out(design, a, b, centred, vectors, values, alpha)
            if apart < ALONE and dtype == torch.float32:
                return _with_care(x, y, strength, rows, standardise, leave_one_out, device)
        weights = (a @ vectors.T).cpu().numpy()
    intercepts = b.cpu().numpy() + mean[:, None]
    return RidgeFit(weights[:, :, None], intercepts[..., None], centre, loo.cpu().numpy(), decrement.cpu().numpy())


def _with_care(
    x: Any,
    y: np.ndarray,
    strength: np.ndarray,
    rows: np.ndarray | None,
    standardise: bool,
    leave_one_out: bool,
    device: str,
) -> RidgeFit:
    """The same in float64, for each penalty separately."""
    [sums] = moments(x, [rows], dtype=torch.float64, device=device)
    design = Design(
        x, rows, middle(x, sums.mean), sums.inverse_deviation if standardise else None, torch.float64, device
    )
    mean = y.mean(1, dtype=np.float64)
    centred = torch.as_tensor(y - mean[:, None], dtype=torch.float64, device=device)
    w, b, loo, gap = ridge_exactly(
        replace(design, scale=None), design.factors, centred, strength, leave_one_out=leave_one_out
    )
    intercepts = b.cpu().numpy() + mean[:, None]
    return RidgeFit(
        w.cpu().numpy()[:, :, None], intercepts[..., None], design.centre, loo.cpu().numpy(), gap.cpu().numpy()
    )


def _slopes(
    design: Design, weights: torch.Tensor | None, b: torch.Tensor, y: torch.Tensor, vectors: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Residuals times the rotated rows, (targets, alphas, d), and their sums (targets, alphas)."""
    t, k = b.shape
    flat = None if weights is None else weights.reshape(t * k, -1).to(design.dtype)
    out = torch.zeros((t if flat is None else t * k, design.width), dtype=torch.float64, device=y.device)
    total = torch.zeros(len(out), dtype=torch.float64, device=y.device)
    for at, block in design.blocks():
        left = y[:, at]
        if flat is not None:
            left = left.repeat_interleave(k, 0) - product(flat, block) - b.reshape(-1, 1).to(left.dtype)
        out += product(left.contiguous(), block.T)
        total += left.sum(1)
    turned = (out @ vectors).view(t, -1, vectors.shape[1])
    return turned.expand(t, k, -1), total.view(t, -1).expand(t, k)


def _leave_one_out(
    design: Design,
    a: torch.Tensor,
    b: torch.Tensor,
    y: torch.Tensor,
    vectors: torch.Tensor,
    values: torch.Tensor,
    alpha: torch.Tensor,
) -> tuple[torch.Tensor, float]:
    """Errors (targets, alphas), and the smallest 1 - leverage, which limits their precision."""
    t, k = b.shape
    least = 1.0
    turn = vectors.T.contiguous().to(design.dtype)
    flat = a.reshape(t * k, -1).to(design.dtype)
    distinct, back = torch.unique(alpha, return_inverse=True)
    shrink = torch.where(values + distinct[:, None] > 0, 1 / (values + distinct[:, None]), 0.0).to(design.dtype)
    total = torch.zeros((t, k), dtype=torch.float64, device=y.device)
    for at, block in design.blocks():
        z = product(block, turn)
        left = (y[:, at].repeat_interleave(k, 0) - product(flat, z)).view(t, k, -1) - b[..., None].to(z.dtype)
        leverage = product(shrink, z * z) + 1 / len(design)
        least = min(least, float(1 - leverage.max()))
        left /= (1 - leverage)[back]
        total += left.square().sum(2)
    return total / len(design), least


def fit_weighted_ridge(x: Any, y: np.ndarray, alphas: np.ndarray, weights: np.ndarray, standardise: bool) -> RidgeFit:
    """Minimisers of Σᵢ sᵢ (yᵢ - xᵢw - b)² + alpha |w|² for rows with weights s (n,), from one singular value
    decomposition in float64; leave-one-out errors are exact, and their mean has the same weights.
    """
    x, total, root = np.asarray(x, dtype=np.float64), weights.sum(), np.sqrt(weights)
    centre, mean = weights @ x / total, y @ weights / total
    scale = np.ones(x.shape[1])
    if standardise:
        deviation = x.std(0)
        scale = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    u, sizes, v = np.linalg.svd((x - centre) * root[:, None] * scale, full_matrices=False)
    rotated = ((y - mean[:, None]) * root) @ u  # (targets, r)
    power = sizes**2 + alphas[:, None]
    w = (rotated[:, None] * (sizes / power)) @ v * scale  # (targets, alphas, d)
    left = (y - mean[:, None])[:, None] - w @ (x - centre).T
    leverage = (sizes**2 / power) @ (u**2).T + weights / total  # (alphas, n)
    loo = ((left / np.maximum(1 - leverage, np.finfo(float).tiny)) ** 2 @ weights) / total
    intercepts = np.broadcast_to(mean[:, None, None], (len(y), len(alphas), 1))
    return RidgeFit(w[:, :, None], intercepts, centre, loo, np.zeros(loo.shape))


def _row_weights(given: Any, rows: int) -> np.ndarray:
    """Weights (rows,) of numbers, or one for all."""
    weights = np.asarray(given, dtype=np.float64)
    if weights.shape not in ((), (rows,)):
        raise UsageError(f"sample_weight must have the shape (n,), here ({rows},), not {weights.shape}.")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise UsageError("sample_weight contains negative, NaN or infinite numbers.")
    if not weights.any():
        raise UsageError("every sample_weight is zero; there is nothing to fit.")
    return np.broadcast_to(weights, (rows,))


class RidgePath(RegressorMixin, BaseEstimator):
    """Ridge regression for many penalties and many targets on the same features, scikit-learn's objective.

    Parameters
    ----------
    alphas : float or sequence of float
        Penalties (strength).
    standardise : bool
        Apply the penalty to standardised features; ``coef_`` still refers to the original features.
    device : str
        Device of the products, "cpu" or "cuda".

    Attributes
    ----------
    coef_ : ndarray
        float64 (targets, alphas, 1, d); (d,) with one alpha and y of shape (n,), as in scikit-learn.
    intercept_ : ndarray
        float64 (targets, alphas, 1), or a number.
    leave_one_out_ : ndarray
        Mean squared leave-one-out error (targets, alphas), exact for the given scale, weighted as the fit is.
    alpha_ : ndarray
        Alpha with the smallest leave-one-out error, (targets,).
    decrement_ : ndarray
        (targets, alphas).

    Notes
    -----
    float64 features are computed in float64; all others with float32 sums that are corrected until they are exact, or
    in float64 with fewer than 4·d rows.

    References
    ----------
    Hoerl & Kennard 1970, Ridge Regression; Allen 1974, on leaving one out (PRESS).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 5))
    >>> path = RidgePath(alphas=(1, 10, 100)).fit(X, X @ np.arange(5.0) + rng.normal(size=100))
    >>> path.coef_.shape, path.alpha_
    ((1, 3, 1, 5), array([1.]))
    """

    def __init__(
        self, alphas: float | Sequence[float] = ALPHAS, *, standardise: bool = False, device: str = "cpu"
    ) -> None:
        self.alphas = alphas
        self.standardise = standardise
        self.device = device

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit all models.

        Parameters
        ----------
        X : ndarray
            (n, d).
        y : ndarray
            float (n,) or (n, targets).
        sample_weight : ndarray, optional
            (n,), the factors of the rows' squared errors. With them, X is copied, and all is in float64.

        Raises
        ------
        UsageError
            For penalties that are not positive, or weights that are negative or of another shape.
        """
        standardise = check("standardise", bool, self.standardise)
        alphas = np.atleast_1d(as_array("alphas", self.alphas, np.float64))
        if alphas.ndim != 1 or not len(alphas) or not (np.isfinite(alphas).all() and (alphas > 0).all()):
            raise UsageError(f"alphas must be positive numbers, not {self.alphas}.")
        X, Y = validate_data(self, X, y, dtype="numeric", multi_output=True, y_numeric=True, ensure_min_samples=2)
        check_matrix(X, len(Y))
        values = np.asarray(Y, dtype=np.float64).reshape(len(Y), -1).T
        if sample_weight is not None:
            fit = fit_weighted_ridge(X, values, alphas, _row_weights(sample_weight, len(X)), standardise)
        else:
            fit = fit_ridge(
                X,
                values,
                alphas,
                standardise=standardise,
                leave_one_out=True,
                dtype=torch.float64 if X.dtype == np.float64 else None,
                device=accelerator(self.device),
            )
        intercepts = fit.intercepts - np.einsum("takd,d->tak", fit.weights, fit.centre)
        self.leave_one_out_, self.decrement_ = fit.leave_one_out, fit.decrement
        self.alpha_ = alphas[np.nan_to_num(fit.leave_one_out, nan=np.inf).argmin(1)]
        unsolved(fit.converged, "alphas")
        self._fit, self._single = fit, Y.ndim == 1 and len(alphas) == 1
        self.coef_, self.intercept_ = (v[0, 0, 0] if self._single else v for v in (fit.weights, intercepts))
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R². Raises UsageError for several alphas or targets, which have no single score."""
        check_is_fitted(self)
        if not self._single:
            raise UsageError("score needs one alpha and values of shape (n,); give one alpha, or use predict.")
        return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> np.ndarray:
        """(targets, alphas, n), and (n,) with one alpha and y of shape (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype="numeric")
        out = self._fit.predict(X, dtype=torch.float64 if X.dtype == np.float64 else torch.float32)
        return out[0, 0] if self._single else out
