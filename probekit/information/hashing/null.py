"""Mutual information of two bucketings, and its distribution if labels are shuffled.

The plug-in estimate of mutual information is never negative, and grows with the number of buckets. Its mean under
shuffled labels is known exactly (Vinh, Epps & Bailey 2010, "Information theoretic measures for clusterings comparison",
section 4), and is subtracted here as in their adjusted mutual information. Shuffled labels use the buckets of the
vectors again: only joint counts change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from probekit.information.grouping import Groups
from probekit.information.hashing import _kernels as kernels

DRAWS = 50
"""Shuffles of whole groups that tell what noise gives, where none are asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The information that buckets of vectors and of labels share, in bits, averaged over grids.

    Attributes
    ----------
    raw : float
        Plug-in estimate.
    null_mean : float
        Its mean over shuffled labels: exact, except for groups.
    entropy : float
        H of the label buckets.
    top : float
        The largest possible value: the smaller of the entropies of labels and buckets.
    spread : float
        The joint cells that are occupied beyond those that each bucket and label must have, as a share of those that
        shuffled labels occupy: about 1 under noise, 0 where one determines the other.
    null : np.ndarray
        (draws,) raw of shuffled labels.
    terms : np.ndarray
        (n,) log2 p(a, b) / (p(a) p(b)) of each row: their mean is ``raw``.
    buckets, labels : float
        Numbers of occupied buckets.
    effect : float, default 1.0
        ``null_mean`` divided by its value for independent examples: about the design effect (Kish 1965).
    """

    raw: float
    null_mean: float
    entropy: float
    top: float
    spread: float
    null: np.ndarray
    terms: np.ndarray
    buckets: float
    labels: float
    effect: float = 1.0

    @property
    def noise(self) -> float:
        """About the standard deviation of ``null``: 2 n ln 2 times it is about chi-squared."""
        return float(np.sqrt(max(self.null_mean, 0) * self.effect / (len(self.terms) * np.log(2))))

    @property
    def scale(self) -> float:
        """top / (top - null_mean): what remains to be known, stretched to all of it."""
        room = self.top - self.null_mean
        return self.top / room if room > 1e-12 else 0.0

    @property
    def stretched(self) -> float:
        """(raw - null_mean) / (top - null_mean) · top, the adjusted mutual information: ``top`` at its most."""
        return (self.raw - self.null_mean) * self.scale

    @property
    def value(self) -> float:
        """``raw`` less its bias: all of ``null_mean`` under noise, the less, the fewer cells are occupied.

        The bias of the plug-in estimate is about (cells - buckets - labels + 1) / 2n nats, of occupied ones (Miller
        1955), so it shrinks as dependence empties cells; ``spread`` says how far.
        """
        return self.raw - self.null_mean * self.spread


def measure(
    buckets: np.ndarray,
    types: np.ndarray,
    lookup: np.ndarray | None = None,
    *,
    groups: Groups | None = None,
    draws: int = 0,
    seed: int = 0,
) -> Measured:
    """What is shared by ``buckets`` and the label buckets of ``types``, with ``draws`` shuffled label sets.

    Parameters
    ----------
    buckets : np.ndarray
        int32 (grids, n), from 0.
    types : np.ndarray
        int32 (n,): classes, or with ``lookup`` the type of each row.
    lookup : np.ndarray, optional
        int32 (grids, types), label bucket of each type in each grid; None where types are the buckets.
    groups : Groups, optional
        What draws move as wholes; the mean under shuffled labels is then theirs, of :data:`DRAWS` where none are
        wanted. Labels of single examples have theirs in closed form.
    seed : int, default 0
        Of the shuffled label sets, which are the same for all grids.
    """
    grids, n = buckets.shape
    if lookup is None:
        lookup = np.broadcast_to(np.arange(types.max() + 1, dtype=np.int32), (grids, types.max() + 1))
    lookup, types = np.ascontiguousarray(lookup), np.ascontiguousarray(types, dtype=np.int32)
    columns, logs, xlog = int(lookup.max()) + 1, log_factorials(n), xlogx(n)
    occupied = buckets.max(1).astype(np.int32) + 1
    terms = np.zeros(n)
    found = kernels.shared(buckets, occupied, types, lookup, columns, logs, xlog, terms)
    margins, expected, heights, tops, kinds, beyond, usual = found
    bits = grids * np.log(2)
    terms /= bits
    closed = expected / bits
    null = np.zeros(draws if groups is None else draws or DRAWS)
    states = np.random.default_rng(seed).integers(2**64, size=len(null), dtype=np.uint64)
    if groups is not None:
        whole = (*groups.places, groups.size, *groups.strata)
        usual = kernels.grouped_sums(buckets, occupied, types, lookup, columns, whole, states, xlog, null)
        null /= n * bits
    elif draws:
        kernels.shuffled_sums(buckets, occupied, types, lookup, columns, states, xlog, null)
        null = ((null - margins) / n) / bits + np.log2(n)
    mean = closed if groups is None else float(null.mean())
    return Measured(
        raw=float(terms.mean()),
        null_mean=mean,
        effect=mean / closed if closed > 0 else 1.0,
        entropy=heights / grids,
        top=tops / grids,
        spread=min(beyond / usual, 1.0) if usual > 1e-9 else 0.0,
        null=null[:draws],
        terms=terms,
        buckets=float(occupied.mean()),
        labels=kinds / grids,
    )


def expected_information(a: np.ndarray, b: np.ndarray) -> float:
    """Mean mutual information, in bits, of two labellings with class counts ``a`` and ``b``, one of them shuffled."""
    a, b = (np.asarray(v, dtype=np.int64) for v in (a, b))
    n = int(a.sum())
    return float(kernels.expected_information(a, b, log_factorials(n), xlogx(n))[0] / np.log(2))


@lru_cache(maxsize=8)
def log_factorials(n: int) -> np.ndarray:
    """ln i! for i = 0 … n."""
    return gammaln(np.arange(1.0, n + 2))


@lru_cache(maxsize=8)
def xlogx(n: int) -> np.ndarray:
    """c ln c for c = 0 … n."""
    c = np.arange(n + 1.0)
    return c * np.log(np.maximum(c, 1))
