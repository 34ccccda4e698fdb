"""EDGE, the ensemble dependency graph estimator, as computed by its author's scripts.

Noshad, Zeng & Hero, Scalable Mutual Information Estimation Using Dependence Graphs, ICASSP 2019; the scripts are
EDGE_4_2_0.py, EDGE_4_3_1.py and EDGE_4_4_1.py of github.com/mrtnoshad/EDGE. They differ from the paper: only the
scripts have bandwidths that adapt to the data, a second pass and a median; only the paper has a random second hash and
an estimate without the lower clip.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal, cast

import numpy as np

from probekit.calls import checked
from probekit.constraint import Checked, Ge, Gt, Most, NotNegative, Said, Threads, as_array
from probekit.errors import UsageError
from probekit.information.edge import _kernels as kernels
from probekit.information.edge.sides import Run, alone, as_they_are, projected, shared
from probekit.information.response import SMALLEST, vectors
from probekit.runtime import cores

SMALL = 1 << 21  # with fewer hashed numbers, a second thread costs more than it saves
TOGETHER = 10  # most members that share one pass over the points
SHRINK = {"4.2.0": 1.0, "4.3.1": 0.9, "4.4.1": 0.4}


class Bandwidths(StrEnum):
    """Bucket widths of the members."""

    FIXED = "fixed"
    RANGE = "range"


class Ensemble(StrEnum):
    """How the members are combined."""

    MEDIAN = "median"
    AVERAGE = "average"
    OPTIMAL_WEIGHTS = "optimal_weights"


class Hashing(StrEnum):
    """What is divided into buckets: random projections, or the columns themselves."""

    P_STABLE = "p-stable"
    FLOOR = "floor"


Width = Annotated[
    float, Gt(0), Said("above 0, because buckets need a width; for discrete values use a small one, 0.001")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSettings(Checked):
    """The settings of :func:`edge`, where they are described."""

    version: Literal["4.2.0", "4.3.1", "4.4.1"] = "4.3.1"
    U: float = 10
    gamma: tuple[Width, Width] = (1, 1)
    epsilon: tuple[NotNegative, NotNegative] = (0, 0)
    epsilon_vector: Bandwidths | None = None
    eps_range_factor: Annotated[float, Gt(-1)] = 0.1
    normalize_epsilon: bool = True
    ensemble_estimation: Ensemble = Ensemble.MEDIAN
    L_ensemble: Annotated[int, Ge(1), Most(10_000)] | None = None
    hashing: Hashing = Hashing.P_STABLE
    stochastic: bool = False

    def together(self) -> None:
        old = self.version == "4.2.0"
        if self.epsilon_vector is None:
            object.__setattr__(self, "epsilon_vector", Bandwidths.FIXED if old else Bandwidths.RANGE)
        if self.L_ensemble is None:
            object.__setattr__(self, "L_ensemble", 5 if old else 10)
        if self.epsilon[0] and not self.epsilon[1]:
            raise UsageError("epsilon[0] is given without epsilon[1]; give both, or (0, 0) to adapt both to the data.")


@dataclass(frozen=True, slots=True, eq=False)
class EdgePass:
    """One pass over the L members of the ensemble.

    Attributes
    ----------
    value : float
        In bits.
    members : np.ndarray
        Value of each member in bits, float64 (L,).
    width_x, width_y : np.ndarray
        Bucket widths of the first member, float64 (columns,).
    buckets_x, buckets_y, buckets_xy : np.ndarray
        Numbers of occupied buckets, int64 (L,).
    """

    value: float
    members: np.ndarray
    width_x: np.ndarray
    width_y: np.ndarray
    buckets_x: np.ndarray
    buckets_y: np.ndarray
    buckets_xy: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class EdgeDetails:
    """The settings of EDGE and its one or two passes. ``value``, in bits, is that of the last pass."""

    settings: EdgeSettings
    passes: tuple[EdgePass, ...]

    @property
    def value(self) -> float:
        return self.passes[-1].value


@checked
def edge(
    x: Any,
    y: Any,
    version: Any = "4.3.1",
    *,
    U: float = 10,
    gamma: Any = (1, 1),
    epsilon: Any = (0, 0),
    epsilon_vector: str | None = None,
    eps_range_factor: float = 0.1,
    normalize_epsilon: bool = True,
    ensemble_estimation: Any = "median",
    L_ensemble: int | None = None,
    hashing: Any = "p-stable",
    stochastic: bool = False,
    rng: np.random.Generator | None = None,
    threads: Threads | None = None,
) -> float:
    """Mutual information of two arrays by EDGE, in bits, exactly as in the author's script of this version.

    Parameters
    ----------
    x, y : ndarray
        (n,) or (n, d) numbers, n >= 20; float32 is projected in float32, float16 is read as float32, other types as
        float64. Labels are treated as numbers: their codes, or one-hot rows; strings are not accepted.
    version : {"4.2.0", "4.3.1", "4.4.1"}
        Version of the script. The t-SNE hash of 4.4.1 is not included.
    U : float
        Largest contribution of a pair of buckets, in bits.
    gamma : tuple of float
        Factors of the bucket widths of x and y; close to 0 for discrete values.
    epsilon : tuple of float
        Bucket widths before their factors; (0, 0) uses the mean distance of near neighbours in each projection.
    epsilon_vector : {"fixed", "range"}, optional
        With "range", the widths of the members grow up to 1 + eps_range_factor times the first (default: "range", in
        4.2.0 "fixed").
    eps_range_factor : float
        See ``epsilon_vector``.
    normalize_epsilon : bool
        Measure again with widths derived from the first value; with False, only the first pass is made.
    ensemble_estimation : {"median", "average", "optimal_weights"}
        How the members are combined.
    L_ensemble : int, optional
        Number of members (default: 10, in 4.2.0 5).
    hashing : {"p-stable", "floor"}
        "p-stable" divides random projections into buckets; "floor" divides the columns themselves (4.4.1 always does
        this with up to 6 columns).
    stochastic : bool
        Draw projections and shifts from ``rng``. Otherwise they are those of the scripts, from a separate instance of
        NumPy's legacy generator with seed 3334, so that the global generator is unchanged.
    rng : Generator, optional
        The generator for ``stochastic``.
    threads : int, optional
        Number of threads (default: one per core); the result does not depend on it.

    Returns
    -------
    float
        In bits.

    Raises
    ------
    UsageError
        For invalid settings, shapes and types, also where the scripts fail or silently continue (NaN, a gamma of 0,
        fewer than 20 rows).
    NonFiniteError
        For NaN and infinity.

    See Also
    --------
    probekit.mutual_information : The calibrated estimate, without the problems in the notes.

    Notes
    -----
    Known properties of this number, which are reproduced (n = 400 … 20,000, 768 columns):

    - Every term of the sum is at least 0.001 bits: smaller ones, also negative ones, are raised to 0.001. A binary
      channel of 0.390 bits gives 0.652; the first pass gives 0.04 … 0.11 bits for random binary labels, more for more
      classes.
    - The second pass widens buckets if the first found little, often until one is left: the value is then exactly
      0.001, whether the truth is 0 or 0.9 bits. For 20 classes or continuous y, random labels still give up to 0.2.
    - 4.4.1 gives 0.65 … 0.99 of 1 bit for random binary labels.
    - It is not symmetric in x and y, and changes if x is shifted, if its columns are permuted, or if labels are merged.
      Classes with fewer examples than the neighbours that set the bucket width share a bucket with the next class.
    - If the first number of ``epsilon`` is 0, both widths are estimated, even if the second is not 0.

    References
    ----------
    Noshad, Zeng & Hero (2019), "Scalable Mutual Information Estimation Using Dependence Graphs", ICASSP; the scripts
    EDGE_4_2_0.py, EDGE_4_3_1.py and EDGE_4_4_1.py of github.com/mrtnoshad/EDGE.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.arange(200) % 2
    >>> x = y[:, None] + 0.01 * np.random.default_rng(0).standard_normal((200, 4))
    >>> 0.5 < edge(x, y, gamma=(1, 0.001), normalize_epsilon=False) <= 1
    True
    """
    settings = EdgeSettings(
        version=version, U=U, gamma=gamma, epsilon=epsilon, epsilon_vector=cast("Any", epsilon_vector),
        eps_range_factor=eps_range_factor, normalize_epsilon=normalize_epsilon,
        ensemble_estimation=ensemble_estimation, L_ensemble=L_ensemble, hashing=hashing, stochastic=stochastic,
    )  # fmt: skip
    return edge_details(x, y, settings, rng=rng, threads=threads).value


def edge_details(
    x: np.ndarray,
    y: np.ndarray,
    settings: EdgeSettings | None = None,
    *,
    rng: np.random.Generator | None = None,
    threads: int | None = None,
) -> EdgeDetails:
    """The result of :func:`edge` with all members, widths and buckets; ``passes[0].value`` is the first pass.

    Parameters
    ----------
    settings : EdgeSettings, optional
        Settings of :func:`edge` (default: its defaults); x, y, rng, threads and errors are as for :func:`edge`.
    """
    settings = EdgeSettings() if settings is None else settings
    if settings.stochastic and rng is None:
        raise UsageError("stochastic hashing draws from a generator: give rng=numpy.random.default_rng(seed).")
    x, y = _matrices(x, y)
    threads = cores() if threads is None else threads
    if threads < 1:
        raise UsageError(f"threads must be 1 or more, not {threads}.")
    with ThreadPoolExecutor(threads) as pool:
        few = threads == 1 or len(x) * max(x.shape[1], 100) < SMALL
        run = alone if few else partial(shared, pool)
        return _passes(x, y, settings, rng if settings.stochastic else None, run, threads)


def _matrices(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """x and y as float32 or float64 (n, d), row after row in memory."""
    y = as_array("y", y)
    if y.dtype.kind in "USO":
        raise UsageError("EDGE treats labels as numbers, with order and distances; these are "
                         f"{'strings' if y.dtype.kind in 'US' else 'objects'}. "
                         "Give codes, such as numpy.unique(y, return_inverse=True)[1].")  # fmt: skip
    y = vectors(y, y.shape[0] if y.ndim else 0)
    x = vectors(x, len(y))
    if len(x) < SMALLEST:
        raise UsageError(f"EDGE needs at least {SMALLEST} examples; there are {len(x)}.")
    return np.ascontiguousarray(x), np.ascontiguousarray(y)


def _passes(
    x: np.ndarray, y: np.ndarray, settings: EdgeSettings, rng: np.random.Generator | None, run: Run, threads: int
) -> EdgeDetails:
    n, version, L = len(x), settings.version, int(settings.L_ensemble or 0)
    floor = settings.hashing == Hashing.FLOOR or (version == "4.4.1" and max(x.shape[1], y.shape[1]) <= 6)
    sides = [as_they_are(v, run) for v in (x, y)] if floor else projected(x, y, rng, run)
    top = 1 + settings.eps_range_factor if settings.epsilon_vector == Bandwidths.RANGE else 1
    stretch = np.linspace(1, top, L)
    epsilon = settings.epsilon if settings.epsilon[0] else (None, None)
    gamma = np.array(settings.gamma, dtype=np.float64)
    passes: list[EdgePass] = []
    while len(passes) < (2 if settings.normalize_epsilon else 1):
        if passes:
            gamma = gamma * _second(passes[0].value)
        gamma = gamma * SHRINK[version]
        width = [side.width(version, e, g) for side, e, g in zip(sides, epsilon, gamma, strict=True)]
        share = [side.shares(L, rng) for side in sides]
        values, buckets = np.empty(L), np.empty((L, 3), dtype=np.int64)
        size = min(TOGETHER, -(-L // threads))
        jobs = []
        for j in range(0, L, size):
            part = slice(j, j + size)
            given = [(*side.hashed, w, s[part]) for side, w, s in zip(sides, width, share, strict=True)]
            jobs.append(partial(kernels.members, *given, stretch[part], float(settings.U), values[part], buckets[part]))
        run(jobs)
        if buckets.min() < 0:
            raise UsageError(f"a column has more than 2**52 / {n} buckets; use a larger gamma or epsilon.")
        match settings.ensemble_estimation:
            case Ensemble.MEDIAN:
                value = float(np.median(values))
            case Ensemble.AVERAGE:
                value = float(values.mean())
            case _:
                value = float(_optimal_weights(stretch, n, x.shape[1]) @ values)
        passes.append(EdgePass(value, values, *width, *buckets.T))
    return EdgeDetails(settings, tuple(passes))


def _second(value: float) -> float:
    """The factor of the widths in the second pass, from the value of the first."""
    if value < 0.0005:  # weights below 0 can do that; 2 ** (0.5 / value) is beyond float64 then
        raise UsageError(f"the first pass gave {value:.4g} bits, too little to set the widths of the second; "
                         "give normalize_epsilon=False.")  # fmt: skip
    return 2 ** (-math.sqrt(2 * value) + 0.5 / value)


def _optimal_weights(stretch: np.ndarray, n: int, d: int) -> np.ndarray:
    """Weights w of the members that minimise max(2 |w|, a·w / 2), with sum 1 and a = (stretch / n) ** (1 / 2d).

    They are the scripts' convex programme, whose further constraints, on powers of a, do not bind: w is equal weights
    where 2 |w| is the larger then (up to 16 members always), else on the line 1 / L + s (a - mean a) where both are
    the same. d : columns of x; the recorded outputs tell so where y has fewer, and nothing where it has more.
    """
    a, L = (stretch / n) ** (0.5 / d), len(stretch)
    mean, spread = a.mean(), ((a - a.mean()) ** 2).sum()
    if mean <= 4 / math.sqrt(L) or spread < 1e-30:
        return np.full(L, 1 / L)
    b, c = mean * spread, 16 / L - mean**2
    slope = (b - math.sqrt(b**2 - (16 * spread - spread**2) * c)) / (16 * spread - spread**2)
    return 1 / L + slope * (a - mean)
