"""What some units hold: probes in closed form on many subsets of the units of a layer, from the moments of all.

Of classes it is the linear discriminant of :mod:`probekit.probes.solvers.mass_mean`, of numbers a ridge regression,
both on standardised units. The shrinkage of k units fitted on n rows is k / (k + n): next to nothing for few units, a
half for as many as there are rows. All subsets of a size have the same, so their comparison is fair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from probekit.probes.solvers._path import class_moments
from probekit.threads import go_on


@dataclass(frozen=True, slots=True, eq=False)
class Subsets:
    """Moments of n rows of train, from which a probe on any subset of the d units is fitted.

    Attributes
    ----------
    mean, scale : np.ndarray
        float64 (d,), of the units; the scale of a unit that does not vary is 0.
    within : np.ndarray
        float64 (d, d), the covariance of standardised units, of classes that within the classes.
    means : np.ndarray
        float64 (K, d), the means of the classes; of numbers (1, d), the covariance with them.
    share : np.ndarray
        float64 (K,), of the classes; of numbers their mean.
    n : int
        The number of rows.
    classify : bool
        Whether the labels are classes.
    """

    mean: np.ndarray
    scale: np.ndarray
    within: np.ndarray
    means: np.ndarray
    share: np.ndarray
    n: int
    classify: bool

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, classes: int) -> Subsets:
        """Parameters
        ----------
        x : np.ndarray
            Float (n, d).
        y : np.ndarray
            Int (n,), classes 0 … classes - 1; with ``classes`` 0, numbers.
        """
        mean, sd = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
        scale = np.divide(1, sd, out=np.zeros_like(sd), where=sd > 1e-5 * np.abs(mean))
        z, ones = (x - mean) * scale, np.ones(len(x))
        codes = (y if classes else np.zeros(len(y)))[None].astype(np.int64)
        _, gram, means, share = class_moments(z, codes, classes or 1, ones)
        if not classes:
            middle = y.mean(keepdims=True)
            return cls(mean, scale, gram, (y - middle)[None] @ z / len(y), middle, len(x), classify=False)
        within = gram - (share[0][:, None] * means[0]).T @ means[0]
        return cls(mean, scale, within, means[0], share[0], len(x), classify=True)

    def standardised(self, x: np.ndarray) -> np.ndarray:
        """Vectors (n, d) of other rows as the probes read them, float32."""
        return ((x - self.mean) * self.scale).astype(np.float32)

    def predictions(self, z: np.ndarray, subset: np.ndarray) -> np.ndarray:
        """The classes, or numbers, that a probe on a subset of units predicts for standardised vectors, (n,)."""
        go_on()
        k = len(subset)
        shrinkage = k / (k + self.n)
        own, target = self.within[np.ix_(subset, subset)], self.means[:, subset]
        if self.classify:
            own = (1 - shrinkage) * own
        own[np.diag_indices(k)] += max(shrinkage * float(np.diag(self.within)[subset].mean()), 1e-9)
        lines = np.linalg.solve(own, target.T)  # (k, K)
        if not self.classify:
            return np.asarray(z[:, subset] @ lines[:, 0] + self.share[0])
        with np.errstate(divide="ignore"):
            offset = np.log(self.share) - 0.5 * (target * lines.T).sum(1)
        return np.asarray((z[:, subset] @ lines.astype(np.float32) + offset).argmax(1))


def sizes(d: int) -> list[int]:
    """1, 2, 4 … and d."""
    return [*(1 << i for i in range(d.bit_length()) if 1 << i < d), d]


def curves(subsets: Subsets, z: np.ndarray, orders: np.ndarray, ks: list[int]) -> Iterator[np.ndarray]:
    """For each k the predictions (orders, n) of probes on the first k units of each order (orders, d)."""
    for k in ks:
        yield np.stack([subsets.predictions(z, order[:k]) for order in orders])
