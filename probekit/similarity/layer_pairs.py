"""Similarity of all pairs of layers of two models: values, chance level, p and intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.runtime import Progress, no_progress
from probekit.similarity.canonical import CANONICAL, Basis, bases, measure_canonical, no_room
from probekit.similarity.chance import Chance, judged
from probekit.similarity.comparison import Comparison, Measured
from probekit.similarity.features import Layers, read
from probekit.similarity.inner import measure_kernels, measure_linear, null_products
from probekit.similarity.kernel_measures import LINEAR
from probekit.similarity.matrices import Matrices, leave_one_out, linear, projections, squares
from probekit.similarity.neighbours import NEIGHBOURS, RANKED, measure_neighbours
from probekit.similarity.options import Similarity, SimilarityOptions
from probekit.similarity.orders import choose_rows
from probekit.similarity.products import Map, workers

ALONE = 0.99  # leverage of an example that decides a direction by itself, at half of the degrees of freedom
OUTLYING = (
    "an example is so far from the others that it decides a direction by itself, and cannot be predicted without it: "
    "the value is too low for the others."
)
OVERLAPS = {"cca-r2": np.minimum, "eigenspace-overlap": np.maximum}
"""Measures that are inner products of projections, and the rank they are divided by, of the two layers'."""
LARGE = 1 << 28  # numbers held at once
FREEDOM = (0.1, 0.5, 0.99)
"""Degrees of freedom of the ridge regressions, as shares of the rank; each pair has the one that predicts best."""


def measure_overlap(c: Comparison, name: str) -> Measured:
    """One of OVERLAPS: ⟨projection on X, projection on Y⟩, the sum of squared canonical correlations, / rank."""
    size = OVERLAPS[name]
    a = bases(c.a, c.run)
    b = a if c.same else bases(c.b, c.run)
    values = np.empty((len(a), len(b)))
    change = np.empty((c.n, *values.shape)) if c.options.resamples else None

    def of(i: int) -> None:
        for j, y in enumerate(b):
            u, v = a[i].u, y.u
            cross = u.T @ v
            rank = max(size(*cross.shape), 1)
            values[i, j] = np.sum(cross.astype(np.float64) ** 2) / rank
            if change is not None:
                mine, yours = u @ cross, v @ cross.T  # Σ 2ρuv - ρ²(u² + v²) of the canonical variates
                terms = 2 * mine * v
                change[:, i, j] = (terms.sum(1, dtype=np.float64) - squares(mine) - squares(yours)) / rank

    c.run(of, range(len(a)))
    found = null_products(c, lambda layers: _projections(layers, c.run), lambda layers: _projections(layers, c.run))
    null = None
    if found is not None:
        h, v, _, p, q = found
        ranks = size.outer(*(np.rint(m.vector.sum(1)) for m in (p, q)))
        null = (h + v) / np.maximum(ranks, 1)
    ends = None if change is None else c.interval(values, change, fisher=False)
    return no_room(c, a, b, Measured(values, ends, null))


def _projections(layers: Layers, run: Map) -> Matrices:
    return projections([basis.u for basis in bases(layers, run)])


def ridge_fits(basis: Basis) -> list[np.ndarray]:
    """F of H = FFᵀ, the fitted values of ridge regressions with a constant, one for each of FREEDOM; (n, r + 1)."""
    s2 = np.maximum(basis.s**2, 1e-300)
    constant = np.full((len(basis.u), 1), 1 / np.sqrt(len(basis.u)), basis.u.dtype)
    found = []
    for share in FREEDOM:
        low, high = 1e-12 * s2.min(initial=1), 1e12 * s2.max(initial=1)
        for _ in range(200):  # the degrees of freedom fall with the penalty
            penalty = np.sqrt(low * high)
            if (s2 / (s2 + penalty)).sum() > share * len(s2):
                low = penalty
            else:
                high = penalty
        shrunk = np.sqrt(s2 / (s2 + high)).astype(basis.u.dtype)
        found.append(np.hstack([constant, basis.u * shrunk]))
    return found


def _forms(layers: Layers, run: Map) -> Matrices:
    """Leave-one-out forms, for each layer those of each penalty."""
    found = run(ridge_fits, bases(layers, run, variance=1.0))
    return leave_one_out([fit for fits in found for fit in fits])


def measure_predictivity(c: Comparison, names: Sequence[str]) -> dict[str, Measured]:
    """R² of Y given X, and the reverse."""
    turned = replace(c, a=c.b, b=c.a)
    out = {}
    for name in names:
        if name == "linear-predictivity":
            out[name] = _predicted(c)
            continue
        found = _predicted(turned)
        ends = None if found.ends is None else (found.ends[0].T, found.ends[1].T)
        null = None if found.null is None else found.null.swapaxes(1, 2)
        out[name] = Measured(found.value.T, ends, null, found.notes)
    return out


def _predicted(c: Comparison) -> Measured:
    """R² of the columns of b's layers, regressed on those of a's."""
    fits = c.run(ridge_fits, bases(c.a, c.run, variance=1.0))
    lone = (c.n / (c.n - 1)) ** 2  # the mean without an example is further away from it
    value = np.empty((len(c.a), len(c.b)))
    change = np.empty((c.n, *value.shape)) if c.options.resamples else None

    def of(i: int) -> None:
        for j, y in enumerate(c.b.x):
            total = lone * squares(y)
            errors = [_errors(f, y) for f in fits[i]]
            best = min(errors, key=np.sum)
            size = max(total.sum(), 1e-300)
            value[i, j] = 1 - best.sum() / size
            if change is not None:
                change[:, i, j] = (best.sum() / size * total - best) / size

    c.run(of, range(len(fits)))
    ends = None if change is None else c.interval(value, change, fisher=False)
    alone = any(not layer and squares(f[1]).max() > ALONE for f, layer in zip(fits, c.a.constant, strict=True))
    return Measured(value, ends, _predicted_by_chance(c), (OUTLYING,) if alone else ())


def _predicted_by_chance(c: Comparison) -> np.ndarray | None:
    """R² of all permutations; layers of a in groups, as their forms take memory."""
    parts = []
    for start in range(0, len(c.a), together := max(1, int(LARGE / (6 * max(x.size for x in c.a.x))))):

        def forms(layers: Layers, part: slice = slice(start, start + together)) -> Matrices:
            return _forms(Layers(layers.x[part], layers.constant[part]), c.run)

        if (found := null_products(c, forms, linear)) is None:
            return None
        h, v, _, _, k = found
        errors = (h + v).reshape(len(v), -1, len(FREEDOM), len(c.b)).min(2)
        total = (k.n / (k.n - 1)) ** 2 * np.maximum(k.vector.sum(1), 1e-300)
        parts.append(1 - errors / total)
    return np.concatenate(parts, axis=1)


def _errors(fit: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Squared norm of each example's residual, fitted without it (n,)."""
    residual = y - fit @ (fit.T @ y)
    return np.asarray(squares(residual) / np.maximum(1 - squares(fit), 1e-12) ** 2)


PREDICTIVITY = ("linear-predictivity", "linear-predictivity-reverse")
OF_MATRICES = ("cka-rbf", "rsa-spearman", *OVERLAPS, *PREDICTIVITY, *LINEAR)
"""Measures whose n × n matrices are permuted."""
_UPWARD = (
    "the measure is larger in samples than in the population, the more so the more columns there are for an example. "
    "Read the calibrated value."
)
_BIASED = ("cka-biased", "cca", *OVERLAPS, "svcca", "pwcca", "procrustes")
REMARKS = {
    **dict.fromkeys(_BIASED, _UPWARD),
    "procrustes-angle": _UPWARD.replace("larger", "smaller"),
    **dict.fromkeys(PREDICTIVITY, "the fewer examples for a column, the less can be predicted."),
}
OF_INTERVALS = {
    **dict.fromkeys((*_BIASED, "procrustes-angle"), "the interval is for the mean of samples of this size."),
    "pwcca": "it has no interval: the weights have no simple influence.",
    RANKED: "it has no interval: each example moves the ranks of the neighbours behind it.",
    "rsa-spearman": "it has no interval: each example moves the ranks of all distances.",
    **dict.fromkeys(
        NEIGHBOURS,
        "the interval is too wide; in simulations, 95 % intervals of mutual-knn covered the mean of samples in all of "
        "600 runs.",
    ),
    **dict.fromkeys(PREDICTIVITY, "the interval is for samples of this size."),
}
"""Remarks that are made only where intervals are computed."""
RANGES = {
    **dict.fromkeys(("cka", "cka-rbf", "rsa-pearson", "rsa-spearman"), (-1.0, 1.0)),
    **dict.fromkeys(PREDICTIVITY, (-np.inf, 1.0)),
    "procrustes-angle": (0.0, np.pi / 2),
}
"""Smallest and largest value, where they are not 0 and 1: ends of intervals do not go beyond."""
FEWEST = 4  # examples: the debiased statistics divide by n - 3


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class PairValues(Chance):
    """One measure of all pairs of layers; arrays are float64 (layers a, layers b), NaN where there is no number.

    Attributes
    ----------
    value : ndarray
        The measure.
    ci_low, ci_high : ndarray
        Bootstrap interval over the examples, or clusters.
    draws, n : int
        Number of permutations and of examples used.
    notes : tuple of str
        What a reader has to know of these numbers.

    See Also
    --------
    probekit.similarity.chance.Chance : The other attributes.
    """

    value: np.ndarray
    ci_low: np.ndarray
    ci_high: np.ndarray
    draws: int
    n: int
    notes: tuple[str, ...] = ()


def layer_pairs(
    a: Sequence[Callable[[], Any]],
    b: Sequence[Callable[[], Any]] | None = None,
    *,
    options: SimilarityOptions | None = None,
    groups: np.ndarray | None = None,
    precision: Sequence[float | None] = (None, None),
    progress: Progress = no_progress,
) -> dict[str, PairValues]:
    """Similarity of each layer of one model to each layer of another, by each measure.

    Parameters
    ----------
    a, b : sequence of callable
        The layers of either side: each call returns an (n, d) array, a memory map, or an object with ``shape`` that can
        be sliced by rows. The rows of all are the same n examples. Without ``b``, the layers of ``a`` are compared with
        each other.
    options : SimilarityOptions, optional
        Measures, permutations, resamples.
    groups : ndarray, optional
        (n,) cluster of each example; clusters are permuted and resampled as a whole.
    precision : sequence of float
        ε of the numbers of either side (the distance of 1 from the next one), if they were rounded further than their
        type says, as those of a bfloat16 cache are. Deviations within it do not count as variation.
    progress : Progress
        Called with the stage.

    Returns
    -------
    dict of PairValues
        By measure.

    Raises
    ------
    UsageError
        If the numbers of rows differ, or there are fewer than 4 examples.
    NonFiniteError
        If a vector is not finite.
    """
    options = options or SimilarityOptions()
    sides = [a] if b is None else [a, b]
    if not all(sides):
        raise UsageError("there are no layers to compare.")
    first = [side[0]() for side in sides]  # reading may be slow: each layer is read once
    n = _count([x.shape[0] for x in first], groups)
    codes = _codes(groups)
    rows = choose_rows(n, codes, options.max_examples, np.random.default_rng(options.seed))
    if len(rows) < FEWEST:
        raise UsageError(
            f"{len(rows)} examples are left of the clusters that fit into {options.max_examples}; allow more."
        )
    read_sides = [
        read([_source(x), *side[1:]], rows, rounded) for x, side, rounded in zip(first, sides, precision, strict=False)
    ]
    ours, theirs = read_sides[0], read_sides[-1]
    del first
    units = None if codes is None else np.unique(codes[rows], return_inverse=True)[1]
    with workers(options.threads) as run:
        c = Comparison(ours, theirs, units, options, run, progress)
        found: dict[str, Measured] = {}
        for measure, names in _jobs(options.measures):
            found |= measure(c, names)
            progress("measures", len(found), len(options.measures))
        return {name: _pairs(c, name, found[name]) for name in options.measures}


def _codes(groups: np.ndarray | None) -> np.ndarray | None:
    """Codes of clusters; None if each example is one."""
    if groups is None:
        return None
    codes = np.unique(np.asarray(groups), return_inverse=True)[1]
    return None if codes.max() == len(codes) - 1 else codes


def _each(measure: Callable[[Comparison, str], Measured]) -> Callable[..., dict[str, Measured]]:
    """A function of one measure as one of several."""
    return lambda c, names: {name: measure(c, name) for name in names}


def _jobs(names: Sequence[str]) -> list[tuple[Callable[[Comparison, Sequence[str]], dict[str, Measured]], list[str]]]:
    """Functions and the measures that each of them shares work for."""
    families: list[tuple[Any, Sequence[str]]] = [
        (measure_linear, tuple(LINEAR)),
        (_each(measure_kernels), ("cka-rbf", "rsa-spearman")),
        (_each(measure_canonical), CANONICAL),
        (_each(measure_overlap), tuple(OVERLAPS)),
        (measure_neighbours, (*NEIGHBOURS, RANKED)),
        (measure_predictivity, PREDICTIVITY),
    ]
    return [(family, mine) for family, all_ in families if (mine := [name for name in names if name in all_])]


def _pairs(c: Comparison, name: str, found: Measured) -> PairValues:
    """What is said of one measure."""
    of_interval = OF_INTERVALS.get(name, "") if c.options.resamples else ""
    notes = [note for note in (*found.notes, REMARKS.get(name, ""), of_interval) if note]
    absent = c.a.constant[:, None] | c.b.constant
    value = np.where(absent, np.nan, found.value)
    if absent.any():
        notes.append("a layer has the same vector for all examples, so nothing can be compared with it.")
    nothing = np.full(value.shape, np.nan)
    low, high = (
        np.clip(np.where(np.isnan(value), np.nan, end), *RANGES.get(name, (0.0, 1.0)))
        for end in found.ends or (nothing, nothing)
    )
    chance = Chance(*[nothing] * len(fields(Chance)))
    if found.null is not None:
        best = 0.0 if name == Similarity.PROCRUSTES_ANGLE else 1.0
        part = c.null if name in OF_MATRICES else None
        shown = value if part is not None and part.nearly_all else None
        chance = judged(np.where(absent, np.nan, found.null), best=best, shown=shown, fixed=part.fixed if part else 0)
        if part is not None and part.note:
            notes.append(part.note)
    elif c.options.draws != 0 and c.units is not None:
        notes.append("no two clusters have the same size, so nothing can be permuted.")
    return PairValues(
        **{field.name: getattr(chance, field.name) for field in fields(Chance)},
        value=value, ci_low=low, ci_high=high, draws=0 if found.null is None else len(found.null) - 1, n=c.n,
        notes=tuple(notes),
    )  # fmt: skip


def _source(x: Any) -> Callable[[], Any]:
    return lambda: x


def _count(counts: Sequence[int], groups: np.ndarray | None) -> int:
    """The number of examples, the same on both sides."""
    if len(set(counts)) > 1:
        raise UsageError(
            f"the layers have {min(counts):,} to {max(counts):,} examples; compare vectors of the same examples."
        )
    if groups is not None and len(groups) != counts[0]:
        raise UsageError(f"there are {counts[0]:,} examples, but groups of {len(groups):,}.")
    if counts[0] < FEWEST:
        raise UsageError(f"there are {counts[0]} examples; similarity needs at least {FEWEST}.")
    return counts[0]
