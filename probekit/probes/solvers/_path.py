"""Common parts of probes with a grid of settings: their interface, input checks, scikit-learn's methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, Self

import numpy as np

from probekit.errors import NonFiniteError, UsageError
from probekit.threads import go_on

ROWS = 4096  # rows of x per block
CELLS = 1 << 26  # and numbers


class Path(Protocol):
    """Fitted probes of all targets T and settings S."""

    @property
    def converged(self) -> np.ndarray:
        """Which fits converged, bool (T, S)."""

    def log_proba(self, x: np.ndarray) -> np.ndarray:
        """Natural logarithms of the classes' probabilities: x float (n, d) to float32 (T, S, n, K)."""


class Probe:
    """scikit-learn's interface to a path: ``fit``, then ``predict`` for all targets and settings."""

    classes_: np.ndarray
    path_: Any

    def _path(self, x: np.ndarray, codes: np.ndarray, classes: int) -> Path:
        raise NotImplementedError

    def fit(self, X: np.ndarray, Y: np.ndarray) -> Self:
        """Parameters
        ----------
        X : np.ndarray
            float32 (n, d), features of comparable scale.
        Y : np.ndarray
            (n,) or (n, targets), classes; -1 for unlabelled.
        """
        y = np.asarray(Y)
        if y.ndim not in (1, 2):
            raise UsageError(f"labels must have the shape (n,) or (n, targets), not {y.shape}.")
        unknown = y == -1 if y.dtype.kind in "if" else np.zeros(y.shape, dtype=bool)
        self.classes_ = np.unique(y[~unknown])
        codes = np.where(unknown, -1, np.searchsorted(self.classes_, y))
        self.path_ = self._path(X, codes.reshape(len(y), -1).T, len(self.classes_))
        return self

    def predict_log_proba(self, X: np.ndarray) -> np.ndarray:
        """Natural logarithms, float32 (targets, settings, n, classes)."""
        return self.path_.log_proba(X)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Probabilities, float32 (targets, settings, n, classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The likeliest class, (targets, settings, n)."""
        return self.classes_[self.predict_log_proba(X).argmax(-1)]


def checked(
    x: np.ndarray, codes: np.ndarray, classes: int, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x unchanged, codes int64 (T, n) within 0 … classes-1, weights float32 (T, n), 0 for unlabelled rows.

    Raises
    ------
    UsageError
        For shapes that do not match, codes or weights out of range, and a target with fewer than two classes.
    NonFiniteError
        If x contains NaN or infinity.
    """
    x, codes = finite(x), np.asarray(codes)
    if codes.dtype.kind not in "iu" or (codes < -1).any() or (codes >= classes).any():
        raise UsageError(f"codes must be whole numbers from 0 to {classes - 1}, or -1 for unlabelled.")
    w = weighted(codes >= 0, len(x), weights)
    for target, (code, weight) in enumerate(zip(codes, w, strict=True)):
        if len(np.unique(code[weight > 0])) < 2:
            raise UsageError(f"target {target} has fewer than two classes; a probe needs two.")
    return x, np.maximum(codes, 0).astype(np.int64), w


def weighted(known: np.ndarray, n: int, weights: np.ndarray | None) -> np.ndarray:
    """Weights float32 (T, n): those given, (n,) or (T, n), or 1, and 0 where a label is not ``known``, bool (T, n)."""
    if known.ndim != 2 or known.shape[1] != n:
        raise UsageError(f"labels must have the shape (targets, {n}), like the {n} rows of x, not {known.shape}.")
    w = np.ones(known.shape, dtype=np.float32) if weights is None else np.asarray(weights, dtype=np.float32)
    if w.shape not in (known.shape, known.shape[1:]):
        raise UsageError(
            f"weights must have the shape (n,) or (targets, n), like the labels {known.shape}, not {w.shape}."
        )
    if not (np.isfinite(w).all() and (w >= 0).all()):
        raise UsageError("weights must be finite and not negative.")
    return np.where(known, w, np.float32(0))


def finite(x: np.ndarray) -> np.ndarray:
    """Return ``x`` if it is float (n, d) without NaN and infinity; raise otherwise."""
    x = x if isinstance(x, np.ndarray) else np.asarray(x)
    if x.ndim != 2 or x.dtype.kind != "f":
        raise UsageError(f"x must be a float array of shape (n, d), not {x.dtype} {x.shape}.")
    for rows in blocks(len(x)):
        if not np.isfinite(x[rows]).all():
            raise NonFiniteError(f"x contains NaN or infinity, between rows {rows.start} and {rows.stop - 1}.")
    return x


def block_rows(width: int) -> int:
    """Rows of a block of vectors of this width."""
    return max(1, min(ROWS, CELLS // width))


def blocks(n: int, size: int = ROWS) -> Iterator[slice]:
    """Slices of at most ``size`` rows that cover n."""
    for start in range(0, n, size):
        go_on()
        yield slice(start, min(start + size, n))


def alike(w: np.ndarray) -> list[tuple[list[int], np.ndarray]]:
    """Targets that share their weights, and the weights (n,): rows of w (T, n)."""
    found: dict[bytes, list[int]] = {}
    for target, weight in enumerate(w):
        found.setdefault(weight.tobytes(), []).append(target)
    return [(members, w[members[0]]) for members in found.values()]


def class_moments(
    x: np.ndarray, codes: np.ndarray, classes: int, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean (d,), covariance (d, d), class means minus the mean (T, K, d), and shares of the classes (T, K); float64."""
    (targets, n), d, total = codes.shape, x.shape[1], float(weight.sum(dtype=np.float64))
    weight = weight.astype(np.float64)
    mean = sum((weight[rows] @ x[rows] for rows in blocks(n)), np.zeros(d)) / total
    gram, sums = np.zeros((d, d)), np.zeros((targets * classes, d))
    counts = np.zeros((targets, classes))
    for rows in blocks(n):
        centred = x[rows] - mean
        member = (codes[:, None, rows] == np.arange(classes)[:, None]) * weight[rows]
        gram += centred.T @ (centred * weight[rows, None])
        sums += member.reshape(targets * classes, -1) @ centred
        counts += member.sum(2, dtype=np.float64)
    means = sums.reshape(targets, classes, d) / np.maximum(counts, np.finfo(np.float32).tiny)[:, :, None]
    return mean, gram / total, means, counts / total


def normalised(logits: np.ndarray, absent: np.ndarray, n: float) -> np.ndarray:
    """Log probabilities of logits (…, K); classes ``absent`` (…, K) from training count as half an example of n."""
    logits = np.where(absent, -np.inf, logits)
    logits = logits - logits.max(-1, keepdims=True)
    log_proba = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    if not absent.any():
        return log_proba
    rare = 0.5 / (n + 0.5 * absent.sum(-1, keepdims=True))
    return np.where(absent, np.log(rare), log_proba + np.log1p(-rare * absent.sum(-1, keepdims=True)))
