"""Cosines between directions of probes: what random directions, permuted labels and halves of train give.

Two probes of the same labels share the noise of the examples that they were fitted on. So what is tested is the cosine
between one probe of one half of train and the other probe of the other half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from probekit.probes.kept import one_line, weights_of
from probekit.probes.protocol.labels import Labels
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.selection import Problem, refit
from probekit.statistics.relabelling import shuffles


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The cosines between directions (…, d) and (…, d), float64; NaN if one of them is 0."""
    a, b = (np.asarray(w, dtype=np.float64) for w in (a, b))
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    product = (a * b).sum(-1)
    return np.clip(np.divide(product, lengths, out=np.full_like(product, np.nan), where=lengths > 0), -1, 1)


def random_p(cosines: np.ndarray, width: int) -> np.ndarray:
    """How likely two random directions of ``width`` dimensions have at least this absolute cosine (two-sided).

    The square of the cosine has the distribution Beta(1/2, (d - 1)/2) if one of the two is uniform on the sphere.

    Examples
    --------
    >>> float(random_p(np.array(0.5), 3))  # in three dimensions, cosines are uniform
    0.5
    """
    return np.asarray(stats.beta.sf(np.square(cosines), 0.5, (width - 1) / 2))


def random_high(width: int, level: float) -> float:
    """The absolute cosine below which a share ``level`` of random directions lies."""
    return float(np.sqrt(stats.beta.ppf(level, 0.5, (width - 1) / 2)))


@dataclass(frozen=True, slots=True)
class Refits:
    """Directions of one probe's estimator and penalty, fitted again on train, float64.

    Attributes
    ----------
    gold : np.ndarray
        (d,), of the labels.
    halves : np.ndarray
        (2, d), of the labels of two halves of train.
    permuted : np.ndarray
        (2, draws, d), of permuted labels of each half.
    spread : np.ndarray
        (d,), the standard deviation of each dimension in train.
    """

    gold: np.ndarray
    halves: np.ndarray
    permuted: np.ndarray
    spread: np.ndarray


def refits(
    x: np.ndarray, labels: Labels, half: np.ndarray, classes: int, estimator: Estimator, penalty: float, *,
    balanced: bool = False, draws: int = 199, seed: int = 0,
) -> Refits:  # fmt: skip
    """Fit a probe again on train, on its halves, and on permuted labels of these, all with one penalty.

    Parameters
    ----------
    x : np.ndarray
        float32 (n, d).
    labels : Labels
        Of these rows, all known; two classes, or numbers. Their groups are permuted as a whole.
    half : np.ndarray
        Int (n,), 0 or 1; -1 for rows of both, as :func:`probekit.probes.directions.halves` makes them.
    classes : int
        2, or 0 for numbers.
    """

    def fit(rows: np.ndarray, sets: np.ndarray) -> np.ndarray:
        problem = Problem(x, rows, sets, classes, np.full(len(rows), -1), estimator, (penalty,), balanced)
        found = refit(problem, np.ones(len(rows), dtype=bool), np.full(len(sets), penalty))
        lines = [one_line(weights_of(found, target)).arrays["weight"][0] for target in range(len(sets))]
        return np.stack(lines).astype(np.float64)

    parts = []
    for k in (0, 1):
        rows = np.flatnonzero(half != 1 - k)
        own = labels[rows]
        orders = shuffles(len(rows), own.groups, draws=draws, seed=seed + k)
        parts.append(fit(rows, np.concatenate([own.y[None], *(own.y[order] for order in orders)])))
    found = np.stack(parts)
    return Refits(fit(np.arange(len(x)), labels.y[None])[0], found[:, 0], found[:, 1:], x.std(0, dtype=np.float64))
