"""Calibration: whether a probe is right as often as its probabilities say.

All functions take log-probabilities of many fits at once, float (F, n, K), and gold classes, int (n,), as indices into
K, and return float64 (F,). They compute in float64, one fit at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import logsumexp

from probekit.errors import UsageError

BINS = 15
COLDEST, HOTTEST = 1e-2, 1e2


def calibration_error(log_p: np.ndarray, gold: np.ndarray, *, bins: int = BINS) -> np.ndarray:
    """Expected calibration error of the predicted class, in [0, 1] (Guo et al. 2017, equation 3).

    The examples are sorted by confidence and divided into ``bins`` bins of equal mass (sizes differ by at most one), or
    n bins if there are fewer examples (Guo et al. divide the range evenly instead, which leaves most bins nearly empty;
    Nguyen & O'Connor 2015). Examples with the same confidence get their mean accuracy, so the order of the examples
    does not matter. Biased upwards: even a calibrated probe gets about sqrt(bins / n) / 3.
    """
    n = _check(log_p, gold)
    stop = np.arange(1, min(bins, n) + 1) * n // min(bins, n)
    start = np.append(0, stop[:-1])
    out = []
    for p in _probabilities(log_p):
        confidence, right = p.max(1), (p.argmax(1) == gold).astype(np.float64)
        level, tie = np.unique(confidence, return_inverse=True)
        accuracy = np.bincount(tie, right) / np.bincount(tie)
        order = np.argsort(confidence, kind="stable")
        gap = np.add.reduceat((accuracy - level)[tie[order]], start)
        out.append(np.abs(gap).sum() / n)
    return np.array(out)


def brier_score(log_p: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Mean squared distance of the probabilities from the gold class, summed over classes: in [0, 2] (Brier 1950).

    For two classes this is twice the score of the second class's probability, which is also called the Brier score.
    """
    n = _check(log_p, gold)
    rows = np.arange(n)
    return np.array([((p**2).sum(1) - 2 * p[rows, gold] + 1).mean() for p in _probabilities(log_p)])


def temperature(log_p: np.ndarray, gold: np.ndarray, *, tol: float = 1e-10) -> np.ndarray:
    """The temperature T of each fit that minimises the log loss of softmax(log_p / T) (Guo et al. 2017, section 4.2).

    Fit it on examples that were held out from the probe; T is above 1 if the probe is overconfident. The log loss is
    convex in 1/T and minimised with Newton's method within [0.01, 100]; T is at the boundary if the optimum is outside:
    0.01 if every prediction is right, 100 if predictions are no better than chance.

    Parameters
    ----------
    tol : float, default 1e-10
        Tolerance for the slope of the mean log loss, in nats per unit of 1/T.
    """
    n = _check(log_p, gold)
    rows = np.arange(n)
    return np.array([_coldness(_finite(scores), rows, gold, tol) ** -1 for scores in log_p])


def _coldness(scores: np.ndarray, rows: np.ndarray, gold: np.ndarray, tol: float) -> float:
    """1/T with Newton's method; halves the bracket if a step would leave it."""
    low, high, cold = 1 / HOTTEST, 1 / COLDEST, 1.0
    target = scores[rows, gold].mean()
    for bound, sign in ((low, 1), (high, -1)):
        if sign * (_moments(scores, bound)[0] - target) >= 0:
            return bound
    for _ in range(200):
        mean, variance = _moments(scores, cold)
        slope = mean - target
        low, high = (low, cold) if slope > 0 else (cold, high)
        step = cold - slope / variance if variance > 0 else np.inf
        new = step if low < step < high else (low * high) ** 0.5
        if abs(slope) <= tol or high - low <= 1e-14 * high:
            break
        cold = new
    return cold


def _moments(scores: np.ndarray, cold: float) -> tuple[float, float]:
    """Mean over examples of the mean and of the variance of the scores under softmax(cold * scores)."""
    p = np.exp(cold * scores - logsumexp(cold * scores, axis=1, keepdims=True))
    mean = (p * scores).sum(1)
    return float(mean.mean()), float((p * (scores - mean[:, None]) ** 2).sum(1).mean())


def tempered(log_p: np.ndarray, temperature: np.ndarray) -> np.ndarray:
    """Log-probabilities at a temperature, float64 (F, n, K); temperature : (F,)."""
    scaled = np.asarray(log_p, dtype=np.float64) / np.asarray(temperature)[:, None, None]
    return scaled - logsumexp(scaled, axis=2, keepdims=True)


def _finite(scores: np.ndarray) -> np.ndarray:
    """float64 scores; a probability of 0 becomes a very small one, because 0 times infinity is undefined."""
    return np.maximum(np.asarray(scores, dtype=np.float64), -1e4)


def _probabilities(log_p: np.ndarray) -> Iterator[np.ndarray]:
    return (np.exp(np.asarray(fit, dtype=np.float64)) for fit in log_p)


def _check(log_p: np.ndarray, gold: np.ndarray) -> int:
    if log_p.ndim != 3 or gold.shape != log_p.shape[1:2] or not len(gold):
        raise UsageError(f"expected log-probabilities (F, n, K) and classes (n,), got {log_p.shape} and {gold.shape}.")
    if gold.min() < 0 or gold.max() >= log_p.shape[2]:
        raise UsageError(
            f"gold classes range from {gold.min()} to {gold.max()}, but there are {log_p.shape[2]} classes."
        )
    return len(gold)


MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    f"calibration-error-{BINS}": calibration_error,
    "brier": brier_score,
}
"""Calibration metrics of rows, by name; lower is better."""
