"""What all measures of two sides share: their layers, examples, permutations and intervals.

Resampling rows puts copies of an example beside each other: their similarity is perfect in both layers, and kernels,
distances and neighbours of a resample are more alike than those of the sample. So the linearised statistic is resampled
(Davison & Hinkley 1997, section 2.7.2): influences are computed once, and drawn with replacement.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import stats

from probekit.runtime import Progress, no_progress
from probekit.similarity.features import Layers
from probekit.similarity.options import SimilarityOptions
from probekit.similarity.orders import Cycles, choose_rows, exchange
from probekit.similarity.products import Map
from probekit.statistics.bootstrap import FEWEST, draws, freedom, intervals

SAME = 1e-6  # values so near to 1 are those of equal layers
PAIRS = 64  # pairs of layers whose replicates are held at once


def bootstrapped(
    value: np.ndarray,
    influence: np.ndarray,
    units: np.ndarray | None,
    *,
    resamples: int,
    level: float,
    seed: int,
    fisher: bool = True,
    heavy: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Studentised bootstrap intervals (Efron & Tibshirani 1993, section 12.5) of all pairs of layers.

    Parameters
    ----------
    value : ndarray
        (layers a, layers b).
    influence : ndarray
        (n, layers a, layers b): change of the value if the weight of an example grows from 1 to 2, linearised.
    units : ndarray, optional
        (n,) code of each example's cluster.
    resamples, level, seed
        As in the options. All pairs have the same draws.
    fisher : bool
        Intervals on the scale of Fisher's z, for values in [-1, 1].
    heavy : bool
        Whether influences have heavy tails, as those of squared distances do: the standard error then has the degrees
        of freedom of the examples (clusters) that carry most of it, by which intervals are wider.

    Returns
    -------
    tuple of ndarray
        Lower and upper ends; NaN if there are fewer than five clusters, or the influence is 0 throughout, unless the
        value is 1 but for rounding: equal layers are equal in all resamples.
    """
    flat = influence.reshape(len(influence), -1)
    count = len(flat) if units is None else int(units.max()) + 1
    ends = np.full((2, flat.shape[1]), np.nan)
    if count < FEWEST:
        return ends[0].reshape(value.shape), ends[1].reshape(value.shape)
    for start in range(0, flat.shape[1], PAIRS):
        columns = slice(start, start + PAIRS)
        part = flat[:, columns] - flat[:, columns].mean(0)
        if units is not None:
            part = np.stack([np.bincount(units, column, count) for column in part.T], axis=1)
        ends[:, columns] = _ends(value.ravel()[columns], part, resamples, level, seed, fisher, heavy)
    return ends[0].reshape(value.shape), ends[1].reshape(value.shape)


def _ends(
    value: np.ndarray, part: np.ndarray, resamples: int, level: float, seed: int, fisher: bool, heavy: bool
) -> tuple[np.ndarray, np.ndarray]:
    count = len(part)
    error = np.sqrt((part**2).sum(0) * count / (count - 1))
    ratios = []
    for w in draws(count, resamples, seed):
        w = w.astype(np.float64)
        away = w @ part
        ratios.append(away / np.sqrt(np.maximum(w @ part**2 - away**2 / count, 1e-300)))
    t = intervals(np.concatenate(ratios).T, level=level)
    wider = np.full(part.shape[1], np.sqrt(count / (count - 1)))
    if heavy:
        wider = stats.t.ppf((1 + level) / 2, freedom(part.T)) / stats.norm.ppf((1 + level) / 2)
    known = error > 1e-12
    with np.errstate(invalid="ignore", divide="ignore"):
        z, slope = (np.arctanh(value), 1 / (1 - value**2)) if fisher else (value, np.ones_like(value))
        low, high = (z - wider * t[:, side] * error * slope for side in (1, 0))
        if fisher:
            low, high = np.tanh(low), np.tanh(high)
    known &= np.isfinite(z) & np.isfinite(slope)
    same = np.where(np.abs(value - 1) <= SAME, value, np.nan)
    return np.where(known, low, same), np.where(known, high, same)


ORDERED = 1500  # examples in clusters that cannot be permuted in cycles
SILENT, NEARLY_ALL = 0.99, 0.9
"""Shares of the examples that are permuted: from the first on nothing is said; from the second on values of all
examples are compared with their chance level, which depends on the number of examples for some measures."""
LARGEST = 10_000  # examples whose n × n matrices are permuted


@dataclass(frozen=True, eq=False)
class Null:
    """The examples that are permuted, and how.

    Attributes
    ----------
    a, b : Layers
        The same objects as those of the comparison, if all examples are permuted.
    orders : Cycles or ndarray
        Cycles, or (draws, n) permutations, of positions in these layers.
    note : str
        What to say of them.
    nearly_all : bool
        Whether they are so many that a value of all examples can be compared with them.
    """

    a: Layers
    b: Layers
    orders: Cycles | np.ndarray
    note: str = ""
    nearly_all: bool = True

    @property
    def fixed(self) -> int:
        """The first permutations that leave some examples where they are."""
        return self.orders.fixed if isinstance(self.orders, Cycles) else 0


@dataclass(frozen=True, eq=False)
class Measured:
    """One measure: values (layers a, layers b), interval, and null (1 + draws, layers a, layers b), observed first."""

    value: np.ndarray
    ends: tuple[np.ndarray, np.ndarray] | None = None
    null: np.ndarray | None = None
    notes: tuple[str, ...] = ()

    def without(self, pairs: np.ndarray, note: str) -> Measured:
        """The same without null and interval of some pairs (layers a, layers b), and why."""
        low, high = (np.where(pairs, np.nan, end) for end in self.ends or (np.nan, np.nan))
        ends = None if self.ends is None else (low, high)
        null = None if self.null is None else np.where(pairs, np.nan, self.null)
        return Measured(self.value, ends, null, (note, *self.notes))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two sides with the same n examples; ``b`` is ``a`` if a side is compared with itself.

    Attributes
    ----------
    units : ndarray or None
        (n,) code of each example's cluster.
    """

    a: Layers
    b: Layers
    units: np.ndarray | None
    options: SimilarityOptions
    run: Map
    progress: Progress = field(default=no_progress)

    @property
    def n(self) -> int:
        return len(self.a.x[0])

    @property
    def same(self) -> bool:
        return self.b is self.a

    def interval(self, value: np.ndarray, influence: np.ndarray, **how: bool) -> tuple[np.ndarray, np.ndarray]:
        """Bootstrap interval from the influences (n, layers a, layers b); ``how`` as in `bootstrapped`."""
        o = self.options
        return bootstrapped(value, influence, self.units, resamples=o.resamples, level=o.level, seed=o.seed, **how)

    @cached_property
    def null(self) -> Null | None:
        """How n × n matrices are permuted; None if permutations are not wanted or no two clusters have one size."""
        draws = 1000 if self.options.draws is None else self.options.draws
        if not draws:
            return None
        rng = np.random.default_rng([self.options.seed, 1])
        rows = choose_rows(self.n, self.units, LARGEST, rng)
        units = None if self.units is None else self.units[rows]
        places = exchange(units, len(rows))
        if not places.moving:
            return None
        orders: Cycles | np.ndarray | None = places.cycles(draws, rng)
        note = ""
        if isinstance(orders, Cycles) and len(rows) <= ORDERED and _one_by_one_is_quicker(orders, draws):
            orders = None
        if orders is None:
            used = choose_rows(len(rows), units, ORDERED, rng)
            places = exchange(None if units is None else units[used], len(used))
            if not places.moving:
                return None
            orders, note = places.random(draws, rng), few_move(places.moving, len(used))
            rows = rows[used]
        nearly = len(rows) >= NEARLY_ALL * self.n
        if len(rows) < SILENT * self.n:
            what = "p is" if nearly else "p and calibrated are"
            note = f"{what} from {len(rows):,} of the {self.n:,} examples. {note}".strip()
        a = self.a.take(rows)
        return Null(a, a if self.same else self.b.take(rows), orders, note, nearly)

    @property
    def cycles(self) -> Cycles | None:
        """The permutations of n × n matrices, if one pass over all examples computes them."""
        null = self.null
        return null.orders if null is not None and null.a is self.a and isinstance(null.orders, Cycles) else None

    def permutations(self, draws: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """Random permutations (draws, n) of all examples, and what to say of them; none if nothing can be exchanged."""
        places = exchange(self.units, self.n)
        if not draws or not places.moving:
            return np.empty((0, self.n), np.int64), ()
        note = few_move(places.moving, self.n)
        return places.random(draws, np.random.default_rng([self.options.seed, 2])), (note,) if note else ()


def _one_by_one_is_quicker(cycles: Cycles, draws: int) -> bool:
    """Whether random permutations take less time than many small cycles, of ten layers (measured on a 3 GHz core)."""
    cosets, classes, length = cycles.cosets.shape
    n = classes * length + len(cycles.rest)
    blocks = classes + len(cycles.rest) / length
    return cosets * blocks * (blocks + 1) / 2 * 1e-3 > draws * (1e-4 + 3e-8 * n**2)


def few_move(moving: int, n: int) -> str:
    """A note if many examples stay where they are."""
    if 2 * moving >= n:
        return ""
    return (
        f"only {moving:,} of {n:,} examples are in clusters with another one of their size and can be permuted, so "
        "chance looks more similar than it is."
    )
