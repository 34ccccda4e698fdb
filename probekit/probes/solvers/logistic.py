"""Logistic regression for many label sets and penalties on the same features, solved together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.solvers.design import (
    Design,
    Moments,
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
from probekit.probes.solvers.exact import polished, solve_exactly
from probekit.probes.solvers.newton import Basis, Solution, solve
from probekit.runtime import torch_threads

__all__ = ["CS", "LogisticFit", "LogisticPath", "Turned", "balanced", "fit_logistic"]

CS = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1, 1.0)
"""Penalties C (inverse strength) that are tried where none are given; for standardised features.

Close where the best one usually lies; with C = 1 hardly any penalty is left on thousands of rows.
"""


@dataclass(frozen=True, slots=True)
class LogisticFit:
    """Models of ``targets`` label sets × ``Cs``.

    Attributes
    ----------
    weights : np.ndarray
        float64 (targets, Cs, 1 or classes, d), on x - centre; intercepts (targets, Cs, 1 or classes).
    decrement : np.ndarray
        Newton decrement reached (targets, Cs), converged : whether it is within the tolerance.
    """

    weights: np.ndarray
    intercepts: np.ndarray
    centre: np.ndarray
    decrement: np.ndarray
    iterations: np.ndarray
    tol: float

    @property
    def converged(self) -> np.ndarray:
        """Whether each problem's decrement is within the tolerance, bool (targets, Cs)."""
        return self.decrement <= self.tol

    def logits(self, x: Any, rows: np.ndarray | None = None, dtype: torch.dtype = torch.float32) -> np.ndarray:
        """x·w + b of rows of ``x``, (targets, Cs, 1 or classes, m); one logit, that of class 1, for two classes."""
        t, c, k, d = self.weights.shape
        w = torch.as_tensor(self.weights.reshape(-1, d)).to(dtype)
        out = Design(x, rows, self.centre, dtype=dtype)(w).numpy().reshape(t, c, k, -1)
        out += self.intercepts[..., None]
        return out

    def log_proba(self, x: Any, rows: np.ndarray | None = None, dtype: torch.dtype = torch.float32) -> np.ndarray:
        """Natural logarithms of class probabilities, (targets, Cs, m, classes)."""
        z = self.logits(x, rows, dtype)
        if z.shape[2] == 1:
            return np.stack([-np.logaddexp(0, z[:, :, 0]), -np.logaddexp(0, -z[:, :, 0])], -1)
        return log_softmax(np.moveaxis(z, 2, 3), -1)

    def outcome(self, x: Any, rows: np.ndarray | None, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the models say of rows of ``x`` whose labels are codes (targets, m), without keeping probabilities.

            The log loss of each row, float32 nats (targets, Cs, m), and the class predicted, (targets, Cs, m). Raises
        NonFiniteError where a feature is NaN or infinite.
        """
        t, c, k, d = self.weights.shape
        w = torch.as_tensor(self.weights.reshape(-1, d), dtype=torch.float32)
        b = torch.as_tensor(self.intercepts.reshape(-1, 1), dtype=torch.float32)
        design = Design(x, rows, self.centre)
        loss = np.empty((t, c, len(design)), dtype=np.float32)
        predicted = np.empty(loss.shape, dtype=np.int32)
        for at, block in design.blocks():
            z = (product(w, block) + b).view(t, c, k, -1)
            if not z.sum().isfinite():
                raise NonFiniteError("the features hold NaN or infinity.")
            y = torch.as_tensor(codes[:, at].astype(np.int64))[:, None].expand(t, c, -1)
            if k == 1:
                z = z[:, :, 0]
                right = torch.where(y == 1, z, -z)
                loss[:, :, at], predicted[:, :, at] = torch.nn.functional.softplus(-right), z > 0
            else:
                gold = torch.gather(z, 2, y[:, :, None])[:, :, 0]
                loss[:, :, at], predicted[:, :, at] = torch.logsumexp(z, 2) - gold, z.argmax(2)
        return loss, predicted

    def choose(self, penalties: np.ndarray) -> LogisticFit:
        """The model of one penalty, by number, for each target: of the same kind, with one C."""
        at = (np.arange(len(self.weights)), np.asarray(penalties))
        pick = [v[at][:, None] for v in (self.weights, self.intercepts, self.decrement, self.iterations)]
        return LogisticFit(pick[0], pick[1], self.centre, pick[2], pick[3], self.tol)


def fit_logistic(
    x: Any,
    codes: np.ndarray,
    classes: int,
    Cs: Sequence[float] | np.ndarray,
    *,
    rows: np.ndarray | None = None,
    sums: Moments | None = None,
    standardise: bool = True,
    weights: np.ndarray | None = None,
    start: LogisticFit | None = None,
    tol: float | None = None,
    max_iter: int = 5000,
    dtype: torch.dtype | None = None,
    device: str = "cpu",
    watch: Turned | None = None,
) -> LogisticFit:
    """Multinomial (two classes: binary) logistic regression of every label set at every penalty.

    Parameters
    ----------
    x : Any
        (n, d) array or memory map.
    codes : np.ndarray
        Int (targets, m) below ``classes``.
    Cs : Sequence[float] | np.ndarray
        (Cs,), or (targets, Cs) where targets differ.
    rows : np.ndarray, optional
        Int (m,), which of its rows, None for all.
    sums : Moments, optional
        Moments of those rows, computed for None.
    standardise : bool, default True
        The penalty is on standardised features.
    weights : np.ndarray, optional
        Float (targets, m) of the rows, None for all 1.
    start : LogisticFit, optional
        Models of the same targets and Cs to begin at.
    tol : float, optional
        Newton decrement; for None 2e-9·m, at most 1e-4, which keeps logits within about 1e-4 (root mean square) of the
        optimum's where p(1 - p) is not small; 1e-3 where labels are easy or rare; in float64 1e-6.
    dtype : torch.dtype, optional
        See ``precision``.
    watch : Turned, optional
        Ends a target's path where its loss elsewhere has turned: its weaker penalties have the model of the last one
        solved. Of no effect where all problems are solved at once (two classes; few rows).
    """
    count = x.shape[0] if rows is None else len(rows)
    dtype = dtype or precision(count, x.shape[1])
    close = tol is None
    if tol is None:
        tol = 1e-6 if dtype == torch.float64 else min(1e-4, 2e-9 * count)
    targets = len(codes)
    strength = np.broadcast_to(np.asarray(Cs, dtype=np.float64), (targets, np.shape(Cs)[-1]))
    if count < x.shape[1]:
        own, sums, mean, back, shift = narrowed(x, rows, standardise=standardise)
        fit = fit_logistic(
            own,
            codes,
            classes,
            Cs,
            sums=sums,
            standardise=False,
            weights=weights,
            tol=None if close else tol,
            max_iter=max_iter,
            dtype=dtype,
            device=device,
        )
        wide = fit.weights @ back.T
        return replace(fit, weights=wide, intercepts=fit.intercepts + wide @ shift, centre=mean)
    if classes > 2:  # ±w/2 of two classes are penalised half as much as the one w of a binary regression
        two = [len(np.unique(y)) == 2 for y in codes]
        strength = strength / np.where(two, 2, 1)[:, None]
    x = resident(x, device)
    with torch_threads(1):
        if sums is None:
            [sums] = moments(x, [rows], dtype=dtype, device=device)
        centre = middle(x, sums.mean)
        design = Design(x, rows, centre, sums.inverse_deviation if standardise else None, dtype, device)
        k = 1 if classes == 2 else classes
        first = None
        if start is not None:
            shift = np.einsum("tckd,d->tck", start.weights, centre - start.centre)
            wide = np.broadcast_to(start.weights, (targets, strength.shape[1], k, x.shape[1]))
            bias = np.broadcast_to(start.intercepts + shift, (targets, strength.shape[1], k))
            first = (_flat(wide, device), _flat(bias, device))
        of, penalty = np.repeat(np.arange(targets), strength.shape[1]), 1 / strength.ravel()
        labels = torch.tensor(codes.astype(np.int8 if classes < 128 else np.int32), device=device)
        row_weights = None if weights is None else torch.tensor(weights, dtype=dtype, device=device)
        given = (labels, classes, of, penalty)
        basis = Basis.of(design, sums)
        if basis.sound(design, float(penalty.min())):
            seen = None if watch is None else partial(watch, centre)
            found = solve(
                design, basis, *given, weights=row_weights, start=first, tol=tol, max_iter=max_iter, watch=seen
            )
            if close and dtype == torch.float64:
                plain = replace(design, scale=None)
                found = polished(found, plain, design.factors, *given, weights=row_weights, tol=tol)
        else:
            design, found = _with_care(design, standardise, given, row_weights, tol, max_iter)
            centre = design.centre
    shape = strength.shape
    return LogisticFit(
        found.weights.cpu().numpy().reshape(*shape, k, -1),
        found.intercepts.cpu().numpy().reshape(*shape, k),
        centre,
        found.decrement.reshape(shape),
        found.iterations.reshape(shape),
        tol,
    )


class Turned:
    """Held-out rows of x, and the loss of each target's models there, from strong penalties to weak ones.

    A target's path has turned when its two last losses are above its least one, the last by more, each by a hundredth
    and by three standard errors of the difference: what follows fits the noise closer still.
    """

    def __init__(self, x: Any, rows: np.ndarray, codes: np.ndarray) -> None:
        self.x, self.rows, self.codes = x, rows, codes
        self._least: dict[int, np.ndarray] = {}
        self._last: dict[int, tuple[bool, float]] = {}

    def __call__(
        self, centre: np.ndarray, targets: np.ndarray, weights: torch.Tensor, intercepts: torch.Tensor
    ) -> np.ndarray:
        """Which targets (b,) have turned, given their models (b, classes, d) and (b, classes) at the next penalty."""
        w, b = (v.cpu().numpy()[:, None] for v in (weights, intercepts))
        none = np.zeros((len(targets), 1))
        loss, _ = LogisticFit(w, b, centre, none, none, 0.0).outcome(self.x, self.rows, self.codes[targets])
        out = np.zeros(len(targets), dtype=bool)
        for i, (t, [own]) in enumerate(zip(targets.tolist(), loss, strict=True)):
            least, mean = self._least.get(t), float(own.mean(dtype=np.float64))
            if least is None or mean <= float(least.mean(dtype=np.float64)):
                self._least[t], self._last[t] = own, (False, mean)
                continue
            gap = (own - least).astype(np.float64)
            worse = gap.mean() > max(0.01 * float(least.mean()), 3 * gap.std() / np.sqrt(len(gap)))
            before, last = self._last[t]
            out[i] = worse and before and mean > last
            self._last[t] = bool(worse), mean
        return out


def _with_care(
    rough: Design,
    standardise: bool,
    given: tuple[torch.Tensor, int, np.ndarray, np.ndarray],
    weights: torch.Tensor | None,
    tol: float,
    max_iter: int,
) -> tuple[Design, Solution]:
    """The same from sums in float64, and by Newton's method on each problem where they do not serve either."""
    x, rows, device = rough.x, rough.rows, rough.device
    [sums] = moments(x, [rows], dtype=torch.float64, device=device)
    plain = Design(x, rows, middle(x, sums.mean), None, torch.float64, device)
    design = replace(plain, scale=sums.inverse_deviation if standardise else None)
    weights = None if weights is None else weights.double()
    basis = Basis.of(design, sums)
    if basis.sound(design, float(given[3].min())):
        return design, solve(design, basis, *given, weights=weights, tol=tol, max_iter=max_iter)
    return design, solve_exactly(plain, design.factors, *given, weights=weights, tol=tol)


def _flat(values: np.ndarray, device: str) -> torch.Tensor:
    return torch.tensor(values.reshape(-1, *values.shape[2:]), dtype=torch.float64, device=device)


class LogisticPath(ClassifierMixin, BaseEstimator):
    """L2-penalised logistic regression for many penalties and many label sets on the same features.

    Each model minimises C·Σᵢ sᵢ loss(yᵢ, xᵢ) + ½ |w|² with a free intercept: scikit-learn's ``LogisticRegression``,
    binary for two classes and multinomial for more. All are solved together, a pass over X serving every one.

    Parameters
    ----------
    Cs : float or sequence of float
        Penalties, inverse strength.
    standardise : bool
        Put the penalty on standardised features; ``coef_`` still belongs to the features as given. Means and deviations
        are those of the rows, whatever their sample_weight.
    class_weight : mapping or "balanced", optional
        A weight for each class by label; "balanced" is n / (classes · count of the class).
    tol : float, optional
        Newton decrement gᵀH⁻¹g at which a model has converged (twice the nats the objective can still fall by); None
        for 2e-9·n, at most 1e-4, and 1e-6 in float64.
    max_iter : int
        Iterations of the solver at most.
    device : str
        Where the products are computed, "cpu" or "cuda".

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    coef_ : ndarray
        float64 (targets, Cs, 1 or classes, d).
    intercept_ : ndarray
        float64 (targets, Cs, 1 or classes).
    decrement_, n_iter_, converged_ : ndarray
        (targets, Cs).

    Notes
    -----
    A target that has two of more ``classes_`` gets the weights ±w/2 for them, w being the binary regression's. float64
    features are computed in float64; all others in float32, or float64 with fewer than 4·d rows. X is read in blocks: a
    memory map is never held whole. One thread is used: fit layers side by side.

    References
    ----------
    Nocedal & Wright 2006, Numerical Optimization, chapter 7 (Newton's method by conjugate gradients).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(400, 5)), np.arange(400) % 3
    >>> X[:, 0] += 3 * y
    >>> path = LogisticPath(Cs=(0.01, 0.1, 1)).fit(X, np.column_stack([y, rng.permutation(y)]))
    >>> path.coef_.shape  # (targets, Cs, classes, d)
    (2, 3, 3, 5)
    >>> bool((path.predict(X)[0, 2] == y).mean() > 0.8)
    True
    """

    def __init__(
        self,
        Cs: float | Sequence[float] = CS,
        *,
        standardise: bool = False,
        class_weight: str | Mapping[Any, float] | None = None,
        tol: float | None = None,
        max_iter: int = 5000,
        device: str = "cpu",
    ) -> None:
        self.Cs = Cs
        self.standardise = standardise
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.device = device

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit all models.

        Parameters
        ----------
        X : ndarray
            (n, d).
        y : ndarray
            (n,) or (n, targets), labels of any kind.
        sample_weight : ndarray, optional
            (n,) or (n, targets).

        Raises
        ------
        UsageError
            For penalties that are not positive, one class only, or shapes that do not fit together.
        """
        Cs = np.atleast_1d(np.asarray(self.Cs, dtype=np.float64))
        if Cs.ndim != 1 or not len(Cs) or not (np.isfinite(Cs).all() and (Cs > 0).all()):
            raise UsageError(f"Cs are positive numbers, not {self.Cs}.")
        if not (self.class_weight in (None, "balanced") or isinstance(self.class_weight, Mapping)):
            raise UsageError(f"class_weight is None, 'balanced' or a mapping, not {self.class_weight!r}.")
        X, Y = _validated(self, X, y)
        self.classes_, codes = np.unique(Y, return_inverse=True)
        codes = np.ascontiguousarray(codes.reshape(Y.shape).reshape(len(Y), -1).T)
        weights = _weights(sample_weight, codes.shape)
        rows = None
        if weights is not None and (unused := (weights == 0).all(0)).any():
            rows = np.flatnonzero(~unused)
            codes, weights = codes[:, rows], weights[:, rows]
        _check_classes(codes, weights, len(self.classes_))
        if self.class_weight == "balanced":
            weights = balanced(codes, len(self.classes_), weights)
        elif isinstance(self.class_weight, Mapping):
            own = np.array([self.class_weight.get(label, 1.0) for label in self.classes_])
            weights = own[codes] * (1 if weights is None else weights)
        fit = fit_logistic(
            X,
            codes,
            len(self.classes_),
            Cs,
            rows=rows,
            standardise=self.standardise,
            weights=weights,
            tol=self.tol,
            max_iter=self.max_iter,
            dtype=torch.float64 if X.dtype == np.float64 else None,
            device=accelerator(self.device),
        )
        self.coef_ = fit.weights
        self.intercept_ = fit.intercepts - np.einsum("tckd,d->tck", fit.weights, fit.centre)
        self.decrement_, self.n_iter_, self.converged_ = fit.decrement, fit.iterations, fit.converged
        unsolved(fit.converged, "Cs")
        self._fit, self._single = fit, Y.ndim == 1 and len(Cs) == 1
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits: (targets, Cs, n), or (targets, Cs, n, classes) for more than two classes.

        Here as in ``predict`` and ``predict_proba``: with one C and y of shape (n,), without the first two axes.
        """
        z = self._logits(X)
        z = z[:, :, 0] if z.shape[2] == 1 else np.moveaxis(z, 2, 3)
        return z[0, 0] if self._single else z

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (targets, Cs, n)."""
        z = self._logits(X)
        best = (z[:, :, 0] > 0).astype(int) if z.shape[2] == 1 else z.argmax(2)
        return self.classes_[best[0, 0] if self._single else best]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy. Raises UsageError for several Cs or targets, which have no one number."""
        check_is_fitted(self)
        if not self._single:
            raise UsageError("a score wants one C and labels of shape (n,); give one C, or use predict.")
        return float(super().score(X, y, sample_weight))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of ``classes_``, (targets, Cs, n, classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their natural logarithms, (targets, Cs, n, classes)."""
        z = self._logits(X)
        if z.shape[2] == 1:
            out = np.stack([-np.logaddexp(0, z[:, :, 0]), -np.logaddexp(0, -z[:, :, 0])], -1)
        else:
            out = log_softmax(np.moveaxis(z, 2, 3), -1)
        return out[0, 0] if self._single else out

    def _logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype="numeric")
        return self._fit.logits(X, dtype=torch.float64 if X.dtype == np.float64 else torch.float32)


def _validated(estimator: Any, X: Any, Y: Any) -> tuple[Any, np.ndarray]:
    X, Y = validate_data(estimator, X, Y, dtype="numeric", multi_output=True, ensure_min_samples=2)
    check_classification_targets(Y[:, 0] if Y.ndim == 2 else Y)
    check_matrix(X, len(Y))
    return X, Y


def _weights(given: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    if given is None:
        return None
    weights = np.asarray(given, dtype=np.float64)
    weights = np.broadcast_to(weights, shape[1:])[None] if weights.ndim <= 1 else weights.T
    if weights.shape[1] != shape[1] or len(weights) not in (1, shape[0]):
        raise UsageError(f"sample_weight {np.shape(given)} does not go with Y {shape[::-1]}.")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise UsageError("sample_weight holds negative, NaN or infinite numbers.")
    if (weights.sum(1) == 0).any():
        raise UsageError("every sample_weight is zero; there is nothing to fit.")
    return np.ascontiguousarray(np.broadcast_to(weights, shape))


def _check_classes(codes: np.ndarray, weights: np.ndarray | None, classes: int) -> None:
    for target, y in enumerate(codes):
        seen = np.unique(y if weights is None else y[weights[target] > 0])
        if len(seen) < 2:
            where = f" in target {target}" if len(codes) > 1 else ""
            raise UsageError(f"all labels are one class{where}; a classifier needs at least two classes.")


def balanced(codes: np.ndarray, classes: int, weights: np.ndarray | None) -> np.ndarray:
    """Weights (targets, n) that give every class of a target the same total: n / (classes · count)."""
    out = np.ones(codes.shape) if weights is None else weights.copy()
    for y, w in zip(codes, out, strict=True):
        count = np.bincount(y, w, classes)
        w *= (count.sum() / (np.count_nonzero(count) * np.maximum(count, 1e-300)))[y]
    return out
