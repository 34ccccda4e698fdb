"""scikit-learn's interface to many logistic regressions that are solved together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import torch
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from probekit.constraint import Count, NotNegative, as_array, check
from probekit.errors import UsageError
from probekit.probes.solvers.design import accelerator, check_matrix, unsolved
from probekit.probes.solvers.logistic import CS, balanced, fit_logistic


class LogisticPath(ClassifierMixin, BaseEstimator):
    """L2-penalised logistic regression for many penalties and many label sets on the same features.

    Each model minimises C·Σᵢ sᵢ loss(yᵢ, xᵢ) + ½ ‖w‖² with a free intercept: scikit-learn's ``LogisticRegression``,
    binary for two classes and multinomial for more. All models are solved together and share each pass over X.

    Parameters
    ----------
    Cs : float or sequence of float
        Penalties, inverse strength.
    standardise : bool
        Apply the penalty to standardised features; ``coef_`` still refers to the original features. Means and
        deviations do not depend on sample_weight.
    class_weight : mapping or "balanced", optional
        A weight for each class by label (default: 1); "balanced" is n / (classes · count of the class).
    tol : float, optional
        Newton decrement gᵀH⁻¹g at which a model has converged (twice the remaining decrease of the objective in nats);
        by default 2e-9·n, at most 1e-4, and 1e-6 in float64. A model whose decrement rounding keeps above it stops
        after 300 iterations without a smaller one, with a ConvergenceWarning.
    max_iter : int
        Maximum number of solver iterations.
    device : str
        Device of the products, "cpu" or "cuda".

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    coef_ : ndarray
        float64 (targets, Cs, 1 or classes, d); (1 or classes, d) with one C and y of shape (n,), as in scikit-learn.
    intercept_ : ndarray
        float64 (targets, Cs, 1 or classes), or (1 or classes,). The sum over more than two classes is 0.
    decrement_, n_iter_, converged_ : ndarray
        (targets, Cs).

    Notes
    -----
    A target with only two of more ``classes_`` gets the weights ±w/2 for them, w being that of the binary regression.
    float64 features are computed in float64; all others in float32, or in float64 with fewer than 4·d rows. X is read
    in blocks; memory maps of more than 32 MB are not copied. The solver uses one thread: fit layers in parallel.

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
            For penalties that are not positive, a single class, weights of classes that do not occur while others
            have none, or shapes that do not match.
        """
        tol = check("tol", NotNegative | None, self.tol)
        max_iter = check("max_iter", Count, self.max_iter)
        standardise = check("standardise", bool, self.standardise)
        class_weight = check("class_weight", Literal["balanced"] | Mapping[Any, float] | None, self.class_weight)
        Cs = np.atleast_1d(as_array("Cs", self.Cs, np.float64))
        if Cs.ndim != 1 or not len(Cs) or not (np.isfinite(Cs).all() and (Cs > 0).all()):
            raise UsageError(f"Cs must be positive numbers, not {self.Cs}.")
        X, Y = _validated(self, X, y)
        self.classes_, codes = np.unique(Y, return_inverse=True)
        codes = np.ascontiguousarray(codes.reshape(Y.shape).reshape(len(Y), -1).T)
        weights = _weights(sample_weight, codes.shape)
        rows = None
        if weights is not None and (unused := (weights == 0).all(0)).any():
            rows = np.flatnonzero(~unused)
            codes, weights = codes[:, rows], weights[:, rows]
        _check_classes(codes, weights, len(self.classes_))
        if class_weight == "balanced":
            weights = balanced(codes, len(self.classes_), weights)
        elif class_weight is not None:
            factors = _factors(class_weight, self.classes_)
            weights = factors[codes] * (1 if weights is None else weights)
        fit = fit_logistic(
            X,
            codes,
            len(self.classes_),
            Cs,
            rows=rows,
            standardise=standardise,
            weights=weights,
            tol=tol,
            max_iter=max_iter,
            dtype=torch.float64 if X.dtype == np.float64 else None,
            device=accelerator(self.device),
        )
        intercepts = fit.intercepts - np.einsum("tckd,d->tck", fit.weights, fit.centre)
        if len(self.classes_) > 2:  # one constant for all classes changes no probability
            there = np.array([np.isin(np.arange(len(self.classes_)), y) for y in codes])[:, None]
            shift = intercepts.mean(2, where=there, keepdims=True)
            intercepts, fit = intercepts - shift, replace(fit, intercepts=fit.intercepts - shift)
        self.decrement_, self.n_iter_, self.converged_ = fit.decrement, fit.iterations, fit.converged
        unsolved(fit.converged, "Cs")
        self._fit, self._single = fit, Y.ndim == 1 and len(Cs) == 1
        self.coef_, self.intercept_ = (v[0, 0] if self._single else v for v in (fit.weights, intercepts))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits: (targets, Cs, n), or (targets, Cs, n, classes) for more than two classes.

        With one C and y of shape (n,), the first two axes are dropped, as in ``predict`` and ``predict_proba``.
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
        """Accuracy. Raises UsageError for several Cs or targets, which have no single score."""
        check_is_fitted(self)
        if not self._single:
            raise UsageError("score needs one C and labels of shape (n,); give one C, or use predict.")
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
    for labels in Y.T if Y.ndim == 2 else [Y]:
        check_classification_targets(labels)
    check_matrix(X, len(Y))
    return X, Y


def _factors(class_weight: Mapping[Any, float], classes: np.ndarray) -> np.ndarray:
    """The weight of each class; as in scikit-learn, weights of other classes are ignored if all have one."""
    weights = np.array([check("class_weight", NotNegative, class_weight.get(label, 1.0)) for label in classes])
    known, left = classes.tolist(), [label for label in classes.tolist() if label not in class_weight]
    if left and (others := [label for label in class_weight if label not in known]):
        raise UsageError(
            f"class_weight has a weight of {others[0]!r}, which is not one of the classes; {left[0]!r} has none. The "
            f"classes are {', '.join(map(repr, known[:10]))}{', …' * (len(known) > 10)}."
        )
    return weights


def _weights(given: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    if given is None:
        return None
    weights = np.asarray(given, dtype=np.float64)
    weights = np.broadcast_to(weights, shape[1:])[None] if weights.ndim <= 1 else weights.T
    if weights.shape[1] != shape[1] or len(weights) not in (1, shape[0]):
        raise UsageError(
            f"sample_weight must have the shape (n,) or (n, targets), like Y {shape[::-1]}, not {np.shape(given)}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise UsageError("sample_weight contains negative, NaN or infinite numbers.")
    if (weights.sum(1) == 0).any():
        raise UsageError("every sample_weight is zero; there is nothing to fit.")
    return np.ascontiguousarray(np.broadcast_to(weights, shape))


def _check_classes(codes: np.ndarray, weights: np.ndarray | None, classes: int) -> None:
    for target, y in enumerate(codes):
        seen = np.unique(y if weights is None else y[weights[target] > 0])
        if len(seen) < 2:
            where = f" in target {target}" if len(codes) > 1 else ""
            raise UsageError(f"all labels have the same class{where}; a classifier needs at least two classes.")
