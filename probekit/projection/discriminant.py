"""Linear discriminants with shrinkage: directions that separate classes, and a linear probe in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from probekit.errors import UsageError
from probekit.projection.plane import Plane, blocks, centre, upright


@dataclass(frozen=True, slots=True, eq=False)
class Discriminant:
    """A linear discriminant (classes) or a ridge regression (numbers).

    Attributes
    ----------
    plane : Plane
        The two directions that separate most, uncorrelated within the classes and each scaled to a variance of 1 there;
        ``explained`` is their share of the variance between classes.
    coef, intercept : np.ndarray
        float64 (classes, d) and (classes,): the log posterior of each class up to a constant; one row for numbers.
    shrinkage : float
        Weight of the multiple of the identity in the covariance, from 0 to 1 (Ledoit & Wolf 2004).
    n : int
        Number of examples that it was fitted on.
    directions : int
        How many of the axes separate the labels: 1 for two classes and for numbers, where the second axis is the first
        principal component of what the first one does not predict within the classes, so that on the examples that it
        was fitted on it says nothing of the labels; otherwise 2.
    """

    plane: Plane
    coef: np.ndarray
    intercept: np.ndarray
    shrinkage: float
    n: int
    directions: int

    def logits(self, x: Any) -> np.ndarray:
        """float64 (n, classes), or (n, 1) for numbers."""
        return np.concatenate([part @ self.coef.T + self.intercept for part in blocks(x)])


def fit_discriminant(x: Any, y: np.ndarray) -> Discriminant:
    """Fisher's linear discriminant with the covariance of Ledoit & Wolf; for numbers, ridge with the same shrinkage.

    With two classes, or numbers, there is one direction; the second axis is then the first principal component of what
    it does not predict within the classes.

    Parameters
    ----------
    x : array
        (n, d).
    y : np.ndarray
        (n,), int classes from 0 with -1 for unlabelled, or float with NaN for unlabelled.

    Raises
    ------
    UsageError
        If fewer than two classes have two labelled examples, or fewer than four examples have a number.
    """
    numbers = y.dtype.kind == "f"
    known = np.flatnonzero(~np.isnan(y) if numbers else y >= 0)
    x, y = np.asarray(x[known]), y[known]
    mean = centre(x) if len(x) else np.zeros(x.shape[1])
    if numbers:
        if len(x) < 4 or y.min() == y.max():
            raise UsageError(f"a direction needs 4 examples with different numbers; {len(x)} are labelled.")
        return _regression(x, y, mean)
    count = np.bincount(y)
    if (count > 1).sum() < 2:
        raise UsageError(f"directions that separate classes need two classes with two examples each; found {count}.")
    return _classes(x, y, mean, count)


def _classes(x: np.ndarray, y: np.ndarray, mean: np.ndarray, count: np.ndarray) -> Discriminant:
    d, classes = x.shape[1], np.flatnonzero(count)
    means = np.array([centre(x[y == c]) for c in classes])
    code = np.searchsorted(classes, y)
    within, shrinkage = _covariance(x, means, code)
    share = count[classes] / len(y)
    between = (np.sqrt(share)[:, None] * (means - mean)).T  # (d, classes)
    solved = linalg.solve(within, between, assume_a="pos")  # directions lie in the span of these
    basis, _ = np.linalg.qr(solved)
    found, inner = linalg.eigh(basis.T @ between @ between.T @ basis, basis.T @ within @ basis + 0.0)
    order = np.argsort(found)[::-1][: min(2, len(classes) - 1)]
    axes = np.zeros((d, 2))
    axes[:, : len(order)] = basis @ inner[:, order]
    if len(order) < 2:
        axes[:, 1] = _remainder(within, axes[:, 0])
    explained = np.full(2, np.nan)
    explained[: len(order)] = np.maximum(found[order], 0) / max(np.maximum(found, 0).sum(), 1e-300)
    weights = linalg.solve(within, means.T, assume_a="pos").T
    top = int(classes.max()) + 1
    coef, intercept = np.zeros((top, d)), np.full(top, -np.inf)
    coef[classes], intercept[classes] = weights, -0.5 * (weights * means).sum(1) + np.log(share)
    plane = Plane(mean, upright(_scaled(axes, within)), explained)
    return Discriminant(plane, coef, intercept, shrinkage, len(y), len(order))


def _regression(x: np.ndarray, y: np.ndarray, mean: np.ndarray) -> Discriminant:
    within, shrinkage = _covariance(x, mean[None], np.zeros(len(y), dtype=np.int64))
    cross = (x.astype(np.float64) - mean).T @ (y - y.mean()) / len(y)
    weights = linalg.solve(within, cross, assume_a="pos")
    axes = _scaled(np.stack([weights, _remainder(within, weights)], axis=1), within)
    plane = Plane(mean, axes, np.full(2, np.nan))
    return Discriminant(plane, weights[None], np.array([y.mean() - mean @ weights]), shrinkage, len(y), 1)


def _scaled(axes: np.ndarray, within: np.ndarray) -> np.ndarray:
    """Axes along which the variance within the classes is 1."""
    return axes / np.sqrt(np.maximum(np.einsum("ij,ij->j", axes, within @ axes), 1e-300))


def _covariance(x: np.ndarray, means: np.ndarray, code: np.ndarray) -> tuple[np.ndarray, float]:
    """The covariance around the means of the classes with the shrinkage of Ledoit & Wolf (2004), and its weight."""
    n, d = x.shape
    product, fourth, start = np.zeros((d, d)), 0.0, 0
    for part in blocks(x):
        part -= means[code[start : start + len(part)]]
        start += len(part)
        product += part.T @ part
        fourth += float(((part * part).sum(1) ** 2).sum())
    product /= n
    mu = float(np.trace(product)) / d
    if not mu > 0:
        raise UsageError("all vectors of a class are equal, so no direction separates the classes.")
    delta = float((product * product).sum()) - d * mu**2
    beta = max(0.0, fourth / n - float((product * product).sum())) / n
    shrinkage = 1.0 if delta <= 0 else min(1.0, beta / delta)
    shrinkage = max(shrinkage, 1e-9)  # keeps the matrix invertible if a feature is constant
    product *= 1 - shrinkage
    product[np.diag_indices(d)] += shrinkage * mu
    return product, shrinkage


def _remainder(within: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The first principal component of what the scores along a direction do not predict; uncorrelated with them."""
    shared = within @ direction
    variance = max(float(direction @ shared), 1e-300)
    rest = within - np.outer(shared, shared) / variance
    found = upright(linalg.eigh(rest, subset_by_index=[len(rest) - 1, len(rest) - 1])[1])[:, 0]
    return found - direction * (shared @ found) / variance
