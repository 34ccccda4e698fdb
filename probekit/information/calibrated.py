"""The hash estimator that is the default: buckets of vectors against labels, with what noise gives taken off.

It is of the family of EDGE (Noshad, Zeng & Hero 2018): vectors are hashed to buckets on shifted grids, and the plug-in
estimate from joint counts is averaged over grids. It differs in what would otherwise mislead. Directions are found on
one half of the examples and information is measured on the other, then the other way round; the mean of the estimate
under shuffled labels is known exactly and is taken off; nothing is clipped before it is averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from probekit.errors import NonFiniteError
from probekit.information import _kernels as kernels
from probekit.information.estimate import Information, p_value
from probekit.information.null import Measured, measure
from probekit.information.target import Target
from probekit.information.views import Vectors, View, coordinates, principal_axes, project, roots
from probekit.probes.design import moments, narrowed

__all__ = ["calibrated", "plug_in"]

GRIDS = 20
GRIDS_TO_CHOOSE = 5
SLICES = 5  # of numbers, that quadratic views take for classes
HIDDEN = 0.5  # share of the entropy that noise may reach before an estimate is called undetermined
FEWEST = 4  # examples a class, on average: one in each part
HIGH = 0.5  # bits about numbers, above which bins cost 5 to 20 %
ROOM = 0.1  # share of the entropy that must be left above what noise gives on average
ROWS_A_COLUMN = 8  # of the covariance; more rows are thinned out
REPEATED = 0.05  # share of vectors that may equal another one without a word
Z95 = 1.959963984540054


def calibrated(x: np.ndarray, y: Target, *, grids: int = GRIDS, shuffles: int = 1000, seed: int = 0) -> Information:
    """Mutual information of vectors and labels by calibrated hashing, in bits.

    x : float32 or float64 (n, d), array or memory map; a single column is cut as it is, all examples at once
    grids : shifted grids that are averaged over; shuffles : of labels, for p and the null; seed : of all that is drawn
    Raises NonFiniteError where x holds NaN or infinity.
    """
    rng = np.random.default_rng(seed)
    centre, scale = _columns(x)
    if x.shape[1] == 1:
        rows = np.arange(len(y))
        labels = _whitened(y.numbers) if y.several else None  # type: ignore[arg-type]
        view = coordinates("as it is", (x.astype(np.float64) - centre) * scale, labels, numbers=y.codes is None)
        return _report([_measure(view, _Labels.of(y, rows), rng, grids, shuffles)], [view.name], y)
    seen = _seen(x, y, centre, scale, rng)
    measured, names = [], []
    for inner, other, test in ((0, 1, (2, 3)), (2, 3, (0, 1))):
        rows = np.concatenate([seen.parts[p] for p in test])
        names.append(_choose(seen, y, inner, other, rng))
        [view] = seen.views((inner, other), rows, names[-1])
        measured.append(_measure(view, _Labels.of(y, rows), rng, grids, shuffles))
    return _report(measured, names, y, repeated=seen.repeated)


def _choose(seen: Vectors, y: Target, inner: int, other: int, rng: np.random.Generator) -> str:
    """The view that tells most: fitted to one quarter of the examples, measured on another."""
    best, name = -np.inf, ""
    rows = seen.parts[other]
    labels = _Labels.of(y, rows)
    for view in seen.views((inner,), rows):
        found = _measure(view, labels, rng, GRIDS_TO_CHOOSE, 0)
        # Twice n ln 2 times the null is about chi-squared, so this is its deviation: noisy views must tell more.
        value = found.value - found.scale * np.sqrt(max(found.null_mean, 0) / (len(rows) * np.log(2)))
        if value > best:
            best, name = value, view.name
    return name


@dataclass(frozen=True, slots=True, eq=False)
class _Labels:
    """Labels of some rows as buckets are counted against them: classes, or ranks of numbers to be cut into bins."""

    codes: np.ndarray | None
    ranks: np.ndarray | None = None
    bins: int = 0

    @classmethod
    def of(cls, y: Target, rows: np.ndarray) -> _Labels:
        if y.codes is not None:
            return cls(y.codes[rows])
        numbers = y.numbers[rows]  # type: ignore[index]
        if numbers.shape[1] > 1:
            return cls(None)
        bins = max(2, round(2.5 * len(rows) ** 0.25))
        kinds, codes = np.unique(numbers[:, 0], return_inverse=True)
        if len(kinds) <= bins:
            return cls(codes.ravel(), bins=len(kinds))
        return cls(None, (rankdata(numbers[:, 0]) - 0.5) / len(rows), bins)

    def lookup(self, view: View, shifts: np.ndarray) -> np.ndarray:
        """int32 (grids, n): the bucket of each row's label in each grid."""
        if self.ranks is not None:
            return np.floor(self.bins * self.ranks + shifts[:, -1:]).astype(np.int32)
        return _cut(view.labels, shifts[:, -view.labels.shape[1] :], np.ones(view.labels.shape[1], dtype=bool))


def _cut(z: np.ndarray, shifts: np.ndarray, free: np.ndarray) -> np.ndarray:
    """int32 (grids, n): buckets of points (n, q) on grids with these shifts (grids, q)."""
    out = np.empty((len(shifts), len(z)), dtype=np.int32)
    for shift, row in zip(np.where(free, shifts, 0.0), out, strict=True):
        kernels.grid(z, shift, row)
    return out


def _measure(view: View, labels: _Labels, rng: np.random.Generator, grids: int, shuffles: int) -> Measured:
    q = view.z.shape[1]
    theirs = 0 if labels.codes is not None else 1 if labels.ranks is not None else view.labels.shape[1]  # type: ignore[union-attr]
    shifts = rng.random((grids, q + theirs))
    seed = int(rng.integers(2**63))
    buckets = _cut(np.ascontiguousarray(view.z), shifts[:, :q], view.free)
    if labels.codes is not None:
        return measure(buckets, labels.codes, shuffles=shuffles, seed=seed)
    lookup = labels.lookup(view, shifts)
    return measure(buckets, np.arange(buckets.shape[1]), lookup, shuffles=shuffles, seed=seed)


def _report(parts: list[Measured], names: list[str], y: Target, *, repeated: float = 0.0) -> Information:
    """What was measured on disjoint parts of the examples, as one estimate."""
    value, null_mean, h = (float(np.mean([getattr(p, of) for p in parts])) for of in ("value", "null_mean", "entropy"))
    # The halves share their examples through the directions, so what noise gives in one goes with what it gives in the
    # other: draws are added in order of size, as if the two always went together, which no sum can exceed in spread.
    null = np.mean([np.sort(part.adjust(part.null)) for part in parts], axis=0)
    n, top = len(y), min(h, np.log2(len(y)))
    variance = sum(part.scale**2 * part.terms.var() * len(part.terms) for part in parts) / n**2
    spread = Z95 * np.sqrt(variance + (null.var() if len(null) else 0))
    noise = float(np.quantile(null, 0.95)) if len(null) else 0.0
    undetermined = ""
    if n < FEWEST * y.classes:
        undetermined = f"{y.classes} classes of {n} examples: fewer than {FEWEST} a class"
    elif any(part.top > 0 and part.top - part.null_mean < ROOM * part.top for part in parts):
        undetermined = f"{n} examples are too few for the buckets: noise alone gives {null_mean:.2f} of {h:.2f} bits"
    elif noise > HIDDEN * h:
        undetermined = f"shuffled labels reach {noise:.2f} of {h:.2f} bits"
    bins = 0 if y.codes is not None else round(float(np.mean([part.labels for part in parts])))
    return Information(
        value=float("nan") if undetermined else min(max(value, 0.0), top),
        raw=float(np.mean([part.raw for part in parts])),
        entropy=h,
        n=n,
        estimator="edge",
        null=null,
        null_mean=null_mean,
        p=p_value(value, null),
        ci_low=0.0 if undetermined else min(max(value - spread, 0.0), top),
        ci_high=top if undetermined else min(max(value + spread, 0.0), top),
        buckets=float(np.mean([part.buckets for part in parts])),
        bins=bins,
        undetermined=undetermined,
        warning="; ".join(_warnings(value, y, repeated)),
        view="; ".join(dict.fromkeys(names)),
    )


def _warnings(value: float, y: Target, repeated: float) -> Iterator[str]:
    if repeated > REPEATED:
        yield f"{repeated:.0%} of the vectors equal another one: interval and p take them for independent"
    if y.several:
        yield "of numbers in several columns at most four canonical directions are seen: the value comes out low"
    elif y.codes is None and value > HIGH:
        yield "numbers are cut into bins: high values come out low"


def _columns(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and 1 / standard deviation (0 where constant) of each column, float64 (d,)."""
    centre = np.asarray(x[:: max(1, len(x) // 512)], dtype=np.float64).mean(0)
    total, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    kernels.column_sums(x, centre, total, squares)
    if not (np.isfinite(total).all() and np.isfinite(squares).all()):
        column = int((~(np.isfinite(total) & np.isfinite(squares))).argmax())
        raise NonFiniteError(f"the vectors hold NaN or infinity, in column {column} first.")
    mean = total / len(x)
    sd = np.sqrt(np.maximum(squares / len(x) - mean**2, 0))
    rounding = 8 * np.finfo(x.dtype).eps * np.abs(centre + mean)
    return centre + mean, np.divide(1, sd, out=np.zeros_like(sd), where=sd > rounding)


def _seen(x: np.ndarray, y: Target, centre: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> Vectors:
    n = len(x)
    key = project(x, centre, scale[:, None])[:, 0]
    if n < x.shape[1]:
        x = narrowed(x, None, standardise=True)[0]
        centre, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    d = x.shape[1]
    parts, repeated = _quarters(key, y, rng)
    if y.codes is not None:
        features, codes, classes = None, y.codes, y.classes
        group = np.empty(n, dtype=np.int64)
        for part, rows in enumerate(parts):
            group[rows] = part * classes + codes[rows]
        sums = np.zeros((4, classes, d))
        kernels.group_sums(x, centre, group, sums.reshape(-1, d))
        held = np.bincount(group, minlength=4 * classes).reshape(4, classes).astype(np.float64)
    else:
        features, classes = _whitened(y.numbers), SLICES  # type: ignore[arg-type]
        codes = (rankdata(features[:, 0], method="ordinal") - 1) * SLICES // n
        sums = np.stack([features[rows].T @ (x[rows] - centre) for rows in parts])
        held = np.stack([features[rows].sum(0) for rows in parts])
    enough = min(n, ROWS_A_COLUMN * d)
    [every] = moments(x, [np.sort(np.concatenate(parts)[np.arange(enough) * n // enough])])
    covariance = every.scatter / every.weight * np.outer(scale, scale)
    components = project(x, centre, scale[:, None] * principal_axes(covariance))
    factors = tuple(roots(covariance))
    return Vectors(x, centre, scale, factors, components, parts, sums, held, codes, classes, features, repeated)


def _quarters(key: np.ndarray, y: Target, rng: np.random.Generator) -> tuple[list[np.ndarray], float]:
    """Row numbers of four parts that are alike in classes, and the share of rows that equal another one.

    ``key`` (n,) names rows: chance is dealt out in its order, so that parts do not depend on the order in which rows
    came, and rows of one key fall into one part, unless there are so few keys that each must fall into all. Nothing else
    may depend on it: parts that resembled each other in x and y would share what chance made of the two.
    """
    n = len(key)
    codes = y.codes if y.codes is not None else np.zeros(n, dtype=np.int64)
    order = np.lexsort((codes, key))
    dealt = np.lexsort((rng.random(n), codes[order]))
    part = np.empty(n, dtype=np.int64)
    part[dealt] = np.arange(n) % 4
    new = np.append(True, np.diff(key[order]) != 0)
    if new.mean() > 1 / 8:
        part = part[np.maximum.accumulate(np.where(new, np.arange(n), 0))]
    return [order[part == p] for p in range(4)], 1 - float(new.mean())


def _whitened(numbers: np.ndarray) -> np.ndarray:
    """Normal scores of each column, then uncorrelated: (n, m), variance 1."""
    normal = ndtri((rankdata(numbers, axis=0) - 0.5) / len(numbers))
    normal -= normal.mean(0)
    u, s, _ = np.linalg.svd(normal, full_matrices=False)
    return u[:, s > 1e-8 * s[0]] * np.sqrt(len(numbers))


def plug_in(x: np.ndarray, y: Target, *, grids: int = GRIDS, shuffles: int = 1000, seed: int = 0) -> Information:
    """Mutual information of a discrete variable x (n,) and labels, in bits: each value is a bucket of its own.

    The plug-in estimate, less its mean under shuffled labels; numbers are cut into bins on shifted grids. Symmetric in
    two discrete variables.
    """
    codes = np.unique(x, return_inverse=True)[1].ravel()
    rng, rows = np.random.default_rng(seed), np.arange(len(y))
    labels = _whitened(y.numbers) if y.several else None  # type: ignore[arg-type]
    view = replace(
        coordinates("values", np.zeros((len(y), 1)), labels),
        z=codes[:, None].astype(np.float64),
        free=np.array([False]),
    )
    found = _measure(view, _Labels.of(y, rows), rng, grids, shuffles)
    return replace(_report([found], ["values"], y), estimator="plug-in")
