"""The default estimator: hashed buckets of vectors and labels, minus the expectation under the null.

It is of the family of EDGE (Noshad, Zeng & Hero 2019): vectors are hashed to buckets on shifted grids, and the plug-in
estimate from joint counts is averaged over grids. It differs in three points. Directions are fitted on other
examples than those that they hash (six folds); the mean of the estimate under shuffled labels is known exactly and is
subtracted; nothing is clipped before averaging.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from probekit.errors import NonFiniteError
from probekit.information.estimate import Information, p_value
from probekit.information.grouping import FEWEST as FEWEST_GROUPS
from probekit.information.grouping import Groups, equal_keys, grouped, in_order
from probekit.information.hashing import _kernels as kernels
from probekit.information.hashing.null import Measured, measure
from probekit.information.hashing.projections import (
    RAW,
    Points,
    Projections,
    Scaled,
    covariance,
    cut,
    linear_axes,
    pooled,
    principal_axes,
    project,
)
from probekit.information.response import Response

GRIDS = 20
GRIDS_TO_CHOOSE = 3
FINENESS = (2, 4)  # of one coordinate, that classes may take turns along
FOLDS = 6
HALVES = (0, 1, 2), (3, 4, 5)  # each chooses the view that the other is seen by
PAIRS = 2  # of canonical directions, for numbers in several columns
SLICES = 5  # of numbers, that quadratic views take for classes
HIDDEN = 0.5  # share of the entropy that noise may reach before an estimate is called undetermined
FEWEST = 4  # examples a class, on average: with fewer, classes that a fold holds are rare in what it is fitted to
HIGH = 0.2  # bits, above which bins and bias are worth a word
UNSURE = 0.1  # share of the value that may be bias without a word
ROOM = 0.1  # share of the entropy that must be left above what noise gives on average
ROWS_A_COLUMN = 4  # of the covariance; more rows are thinned out
DEAD = 1e-10  # of the median deviation: a unit that only underflow moves
REPEATED = 0.05  # share of the examples that may fall into groups without a word
Z95 = 1.959963984540054


def _without(fold: int, folds: Iterable[int]) -> tuple[int, ...]:
    return tuple(f for f in folds if f != fold)


FITS = [_without(fold, half) for half in HALVES for fold in half] + [_without(f, range(FOLDS)) for f in range(FOLDS)]


def calibrated(
    x: np.ndarray,
    y: Response,
    *,
    groups: np.ndarray | None = None,
    grids: int = GRIDS,
    draws: int = 1000,
    seed: int = 0,
) -> Information:
    """A lower bound on the mutual information of vectors and labels by calibrated hashing, in bits.

    Parameters
    ----------
    x : np.ndarray
        float32 or float64 (n, d), array or memory map; a single column is cut without folds.
    y : Response
        Classes or numbers; the names of classes have no effect.
    groups : np.ndarray, optional
        (n,), groups to fold, shuffle and count as wholes; equal vectors always form a group.
    grids : int, default GRIDS
        Number of shifted grids to average over.
    draws : int, default 1000
        Shuffles of the labels for p and the null.
    seed : int, default 0
        Seed for all random draws.

    Raises
    ------
    NonFiniteError
        If x holds NaN or infinity.
    """
    rng, columns = np.random.default_rng(seed), x.shape[1]
    centre, scale = _columns(x)
    if not scale.all():  # constant columns tell nothing
        live = scale > 0 if scale.any() else np.arange(len(scale)) == 0
        x, centre, scale = np.ascontiguousarray(x[:, live]), centre[live], scale[live]
    key = np.empty((2, len(x)))  # of which the second only parts what the first does not
    kernels.row_keys(x, centre, scale, scale * np.random.default_rng(0).standard_normal(len(scale)), key)
    y = in_order(y, key)
    equal = equal_keys(key)
    whole = grouped(groups, x, len(x), equal)
    if whole is not None and (few := _too_few(whole)):
        return _nothing(y, few)
    if x.shape[1] == 1:
        z = (x.astype(np.float64) - centre) * scale
        points = Points("as it is", "as it is", z, labels=_whitened(y.numbers) if y.several else None)  # type: ignore[arg-type]
        return _report(_measure([points], _Labels.of(y, whole), rng, grids, draws), points.name, y, whole)
    parts = _folds(key, equal, y, whole, rng)
    seen = _seen(x, y, centre, scale, parts, whole)
    shown: dict[str, list[Points]] = {}
    rows: dict[str, list[np.ndarray]] = {}
    for own, others in (HALVES, HALVES[::-1]):
        chosen, fineness = _choose(seen, y, whole, others, rng)
        for fold in own:
            [points] = seen.views(_without(fold, range(FOLDS)), fold, chosen)
            points = points.finer(fineness)
            shown.setdefault(points.kind, []).append(points)
            rows.setdefault(points.kind, []).append(seen.parts[fold])
    views = [pooled(held) for held in shown.values()]
    order = np.concatenate([part for held in rows.values() for part in held])
    found = _measure(views, _Labels.of(y, whole, order), rng, grids, draws)
    fitted = any("principal" not in kind for kind in shown)
    sizes = [[len(part) for part in held] for held in rows.values()]
    view, whole = "; ".join(v.name for v in views), None if whole is None else whole[order]
    return _report(found, view, y, whole, folds=sizes, doubled=fitted, columns=columns)


def _too_few(whole: Groups) -> str:
    """The reason if there are too few groups to shuffle, or ""."""
    if whole.count < FEWEST_GROUPS:
        return f"{len(whole):,} examples in {whole.count} groups; at least {FEWEST_GROUPS} groups are needed"
    if whole.effective < FEWEST_GROUPS / 2:
        return f"a few large groups: {len(whole)} examples are worth {whole.effective:.1f} groups of equal size"
    return ""


def _nothing(y: Response, why: str) -> Information:
    """No estimate at all."""
    top = min(y.entropy, np.log2(len(y)))
    nan = float("nan")
    return Information(nan, nan, y.entropy, len(y), "edge", ci_low=0.0, ci_high=top, undetermined=why)


def _choose(
    seen: Projections, y: Response, whole: Groups | None, folds: Sequence[int], rng: np.random.Generator
) -> tuple[str, int]:
    """The view with the most information about the labels of some folds, each seen by a fit to the others, and its best
    fineness."""
    shown: dict[str, list[Points]] = {}
    for fold in folds:
        for points in seen.views(_without(fold, folds), fold):
            shown.setdefault(points.name, []).append(points)
    labels = _Labels.of(y, whole, np.concatenate([seen.parts[fold] for fold in folds]))

    def score(points: Points) -> float:
        found = _measure([points], labels, rng, GRIDS_TO_CHOOSE, 0)
        return found.value - 2 * found.scale * found.noise  # two standard deviations: noisy views need a larger value

    views = {name: pooled(parts) for name, parts in shown.items()}
    scores = {name: score(points) for name, points in views.items()}
    name = max(scores, key=scores.__getitem__)
    if y.codes is None or views[name].code is not None or views[name].z.shape[1] > 1:
        return name, 1
    finer = {1: scores[name], **{times: score(views[name].finer(times)) for times in FINENESS}}
    return name, max(finer, key=finer.__getitem__)


@dataclass(frozen=True, slots=True, eq=False)
class _Labels:
    """Labels of some rows as buckets are counted against them: classes, or ranks of numbers to be cut into bins."""

    codes: np.ndarray | None
    groups: Groups | None
    examples: float
    ranks: np.ndarray | None = None
    bins: int = 0

    @classmethod
    def of(cls, y: Response, groups: Groups | None, rows: np.ndarray | slice = slice(None)) -> _Labels:
        if groups is not None and not isinstance(rows, slice):
            groups = groups[rows]
        if y.codes is not None:
            codes = y.codes[rows]
            return cls(codes, groups, len(codes) if groups is None else groups.effective)
        numbers = y.numbers[rows]  # type: ignore[index]
        examples = len(numbers) if groups is None else groups.effective
        if numbers.shape[1] > 1:
            return cls(None, groups, examples)
        bins = max(2, round(2.5 * examples**0.25))
        kinds, codes = np.unique(numbers[:, 0], return_inverse=True)
        if len(kinds) <= bins:
            return cls(codes.ravel(), groups, examples, bins=len(kinds))
        return cls(None, groups, examples, (rankdata(numbers[:, 0]) - 0.5) / len(numbers), bins)

    def columns(self, views: list[Scaled]) -> int:
        """How many are cut on a shifted grid."""
        if self.codes is not None:
            return 0
        return 1 if self.ranks is not None else views[0].labels.shape[1]  # type: ignore[union-attr]

    def lookup(self, views: list[Scaled], shifts: np.ndarray) -> np.ndarray:
        """int32 (grids, n): the bucket of each row's label in each grid."""
        if self.ranks is not None:
            return np.floor(self.bins * self.ranks + shifts).astype(np.int32)
        return _cells(views[0].labels, shifts)  # type: ignore[arg-type]


def _cells(z: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """int32 (grids, n): buckets of points (n, q) on unit grids with these shifts (grids, q)."""
    out = np.empty((len(shifts), len(z)), dtype=np.int32)
    for shift, row in zip(shifts, out, strict=True):
        kernels.grid(z, shift, row)
    return out


def _measure(shown: list[Points], labels: _Labels, rng: np.random.Generator, grids: int, draws: int) -> Measured:
    """What the buckets of all points and the labels share; points of different kinds have buckets of their own."""
    views = [cut(points, labels.examples, numbers=labels.codes is None) for points in shown]
    seed = int(rng.integers(2**63))
    buckets, used = [], np.zeros((grids, 1), dtype=np.int32)
    for view in views:
        own = _cells(np.ascontiguousarray(view.z), np.where(view.free, rng.random((grids, len(view.free))), 0.0))
        buckets.append(own + used)
        used = used + own.max(1, keepdims=True) + 1
    every = np.concatenate(buckets, axis=1) if len(buckets) > 1 else buckets[0]
    given: dict[str, Any] = {"groups": labels.groups, "draws": draws, "seed": seed}
    if labels.codes is not None:
        return measure(every, labels.codes, **given)
    lookup = labels.lookup(views, rng.random((grids, labels.columns(views))))
    return measure(every, np.arange(every.shape[1]), lookup, **given)


def _report(
    found: Measured,
    view: str,
    y: Response,
    whole: Groups | None,
    *,
    folds: Sequence[Sequence[int]] = (),
    doubled: bool = False,
    columns: int = 0,
    complete: bool = False,
) -> Information:
    """The estimate from a measurement.

    whole : groups of the examples in the order of the terms
    folds : of each kind of view, how many rows the folds have that it shows, in the order of the terms
    doubled : views were fitted to the labels of other folds.
    complete : the view leaves nothing out

    Each pair of examples then counts twice, in the fold of the one and in that of the other, while shuffled labels are
    seen through directions that stay as they are: noise has at most twice the variance that they show.
    """
    value, h, n = found.value, found.entropy, len(y)
    top, units = min(h, np.log2(n)), n if whole is None else whole.count
    null = (found.null - found.null_mean) * (np.sqrt(2) if doubled else 1.0)
    variance = found.terms.var() / n if whole is None else whole.variance(found.terms)
    if folds:  # directions differ between folds, too
        means = iter([own.mean() for own in np.split(found.terms, np.cumsum([m for kind in folds for m in kind])[:-1])])
        between = [np.array([next(means) for _ in kind]) for kind in folds]
        apart = sum(((of - of.mean()) ** 2).sum() for of in between) / sum(len(of) - 1 for of in between)
        variance = max(variance, apart / sum(map(len, folds)))
    spread = Z95 * np.sqrt(variance + (null.var() if len(null) else 0))
    least = found.raw - found.null_mean  # all of the bias taken off, though dependence leaves less of it
    noise = float(np.quantile(null, 0.95)) if len(null) else 0.0
    undetermined = ""
    if units < FEWEST * y.classes:
        undetermined = f"{y.classes} classes of {units} examples: fewer than {FEWEST} a class"
    elif found.top > 0 and found.top - found.null_mean < ROOM * found.top:
        undetermined = (
            f"{units} examples are too few for the buckets: noise alone gives {found.null_mean:.2f} of {h:.2f} bits"
        )
    elif noise > HIDDEN * h:
        undetermined = f"shuffled labels reach {noise:.2f} of {h:.2f} bits"
    shown = top if undetermined else min(max(value + spread, 0.0), top)
    return Information(
        value=float("nan") if undetermined else min(max(value, 0.0), top),
        raw=found.raw,
        entropy=h,
        n=n,
        estimator="edge",
        null=null,
        null_mean=found.null_mean,
        p=p_value(least, null) if units >= FEWEST * y.classes else float("nan"),
        ci_low=0.0 if undetermined else min(max(min(value, least) - spread, 0.0), top),
        ci_high=shown if complete else top,
        shown_high=shown,
        groups=0 if whole is None else whole.count,
        buckets=found.buckets,
        bins=0 if y.codes is not None else round(found.labels),
        undetermined=undetermined,
        warning="; ".join(_warnings(value, least, y, columns, units)),
        view=view,
    )


def _warnings(value: float, least: float, y: Response, columns: int, units: int) -> Iterator[str]:
    if units < (1 - REPEATED) * len(y):
        yield f"{len(y):,} examples in {units:,} groups: these are folded, shuffled and counted as wholes"
    if value - least > UNSURE * value and value > HIGH:
        yield f"many buckets for so few examples: their bias is not well known, {least:.2f} bits are possible, too"
    if units < 2 * columns:
        yield "fewer than two examples a column: what takes many columns together to see comes out low"
    if y.several:
        yield "of numbers in several columns two canonical directions are seen: the value comes out low"
    elif y.codes is None and value > HIGH:
        yield "numbers are cut into bins: high values come out low; ridge does not cut"


def _columns(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and 1 / standard deviation (0 where constant) of each column, float64 (d,)."""
    centre = np.asarray(x[:: max(1, len(x) // 512)], dtype=np.float64).mean(0)
    total, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    kernels.column_sums(x, centre, total, squares)
    if not (np.isfinite(total).all() and np.isfinite(squares).all()):
        column = int((~(np.isfinite(total) & np.isfinite(squares))).argmax())
        raise NonFiniteError(
            f"the vectors hold NaN or infinity, in column {column} first, or numbers too large to square."
        )
    mean = total / len(x)
    sd = np.sqrt(np.maximum(squares / len(x) - mean**2, 0))
    rounding = 8 * np.finfo(x.dtype).eps * np.abs(centre + mean)
    if (moving := sd > rounding).any():
        rounding = np.maximum(rounding, DEAD * np.median(sd[moving]))
    return centre + mean, np.divide(1, sd, out=np.zeros_like(sd), where=sd > rounding)


def _seen(
    x: np.ndarray, y: Response, centre: np.ndarray, scale: np.ndarray, parts: list[np.ndarray], whole: Groups | None
) -> Projections:
    n, narrow = len(x), 0
    if n < x.shape[1]:
        bases = [_narrowed(x, centre, scale), _narrowed(x, centre, np.full_like(scale, _common(scale)))]
        narrow, x = bases[0].shape[1], np.hstack(bases)
        centre, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    d = narrow or x.shape[1]
    if y.codes is not None:
        features, codes, classes = None, y.codes, y.classes
        group = np.empty(n, dtype=np.int64)
        for part, rows in enumerate(parts):
            group[rows] = part * classes + codes[rows]
        sums = np.zeros((FOLDS, classes, x.shape[1]))
        kernels.group_sums(x, centre, group, sums.reshape(-1, x.shape[1]))
        held = np.bincount(group, minlength=FOLDS * classes).reshape(FOLDS, classes, 1).astype(np.float64)
    else:
        features, classes = _whitened(y.numbers), SLICES  # type: ignore[arg-type]
        codes = (rankdata(features[:, 0], method="ordinal").astype(int) - 1) * SLICES // n
        sums = np.stack([features[rows].T @ (x[rows] - centre) for rows in parts])
        held = np.zeros((FOLDS, 1, 1))
    if narrow:  # columns of a basis are orthogonal
        spread = np.diag((x**2).mean(0)).astype(np.float32)
    else:
        enough = min(n, ROWS_A_COLUMN * d)
        spread = covariance(x, centre, scale, np.sort(np.concatenate(parts)[np.arange(enough) * n // enough]))
    plain = spread[:d, :d]
    components = project(x[:, :d], centre[:d], scale[:d, None] * principal_axes(plain))
    means, cross = np.zeros((2, len(FITS), sums.shape[1], x.shape[1]), dtype=np.float32)
    for m, c, fit in zip(means, cross, FITS, strict=True):
        total, of = sums[list(fit)].sum(0) * scale, held[list(fit)].sum(0)
        if features is None:
            m[:] = np.where(of > 0, total / np.maximum(of, 1) - total.sum(0) / of.sum(), 0)
            c[:] = np.sqrt(of / of.sum()) * m
        else:
            c[:] = total / sum(len(parts[p]) for p in fit)
    most = min(d, sums.shape[1], PAIRS) if features is not None else min(d, classes - 1)
    if narrow:
        scaled = linear_axes(plain, scale[:d], cross[..., :d], means[..., :d], most)
        raw = linear_axes(spread[d:, d:], scale[d:], cross[..., d:], means[..., d:], most, RAW)
        found = [
            [axes.within(first, x.shape[1]) for axes in fits] for first, own in ((0, scaled), (d, raw)) for fits in own
        ]
    else:
        u = (_common(scale) / scale).astype(np.float32)  # what columns were rescaled by is undone
        raw = linear_axes(spread * u * u[:, None], scale * u, cross * u, means * u, most, RAW)
        found = [*linear_axes(spread, scale, cross, means, most), *raw]
    directions = dict(zip(FITS, zip(*found, strict=True), strict=True))  # by fit, then by shrinkage
    return Projections(x, centre, components, parts, directions, codes, classes, features, y.several)


def _common(scale: np.ndarray) -> float:
    """One scale for all columns that keeps their mean variance 1."""
    return float(1 / np.sqrt(np.mean(scale**-2.0)))


def _narrowed(x: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Scaled rows that are fewer than columns, in a basis of their own span, float64 (n, r), r < n."""
    z = (x - centre) * scale
    power, basis = np.linalg.eigh(z @ z.T)
    kept = power > 1e-10 * power[-1]
    kept[-1] = True
    return np.ascontiguousarray(basis[:, kept] * np.sqrt(np.maximum(power[kept], 0)))


def _folds(
    key: np.ndarray, equal: np.ndarray, y: Response, whole: Groups | None, rng: np.random.Generator
) -> list[np.ndarray]:
    """Row numbers of FOLDS parts that are alike in classes; groups, and rows that are equal, fall into one part.

    ``key`` (2, n) names rows, whatever their sign: chance is dealt out in its order, so that parts do not depend on the
    order in which rows came. Fewer distinct rows than groups can be are in all parts. Nothing else may depend on it:
    parts that resembled each other in x and y would share what chance made of the two.
    """
    codes = y.codes if y.codes is not None else np.zeros(len(y), dtype=np.int64)
    order = np.lexsort(np.stack([equal, codes, *np.abs(key[::-1])]))
    if whole is None:
        dealt = np.lexsort((rng.random(len(order)), codes[order]))
        part = np.empty(len(order), dtype=np.int64)
        part[dealt] = np.arange(len(order)) % FOLDS
        return [order[part == p] for p in range(FOLDS)]
    own = whole[order]
    rows, start = own.places
    first = np.minimum.reduceat(codes[order][rows], start)  # the rarest class that the group holds
    dealt = np.lexsort((rng.random(own.count), -own.size, first))
    part = np.empty(own.count, dtype=np.int64)
    part[dealt] = np.arange(own.count) % FOLDS
    return [order[part[own.code] == p] for p in range(FOLDS)]


def _whitened(numbers: np.ndarray) -> np.ndarray:
    """Normal scores of each column, then uncorrelated: (n, m), variance 1."""
    normal = ndtri((rankdata(numbers, axis=0) - 0.5) / len(numbers))
    normal -= normal.mean(0)
    u, s, _ = np.linalg.svd(normal, full_matrices=False)
    return u[:, s > 1e-8 * s[0]] * np.sqrt(len(numbers))


def plug_in(
    x: np.ndarray,
    y: Response,
    *,
    groups: np.ndarray | None = None,
    grids: int = GRIDS,
    draws: int = 1000,
    seed: int = 0,
) -> Information:
    """Mutual information of a discrete variable x (n,) and labels, in bits: each value is a bucket of its own.

    The plug-in estimate, less its mean under shuffled labels; numbers are cut into bins on shifted grids. Symmetric in
    two discrete variables. Nothing of x is left out, so that the interval is one of the information.
    """
    codes = np.unique(x, return_inverse=True)[1].ravel()
    rng = np.random.default_rng(seed)
    whole = grouped(groups, None, len(y))
    if whole is not None and (few := _too_few(whole)):
        return replace(_nothing(y, few), estimator="plug-in")
    labels = _whitened(y.numbers) if y.several else None  # type: ignore[arg-type]
    points = Points("values", "values", np.zeros((len(y), 0)), codes, None, labels)
    found = _measure([points], _Labels.of(y, whole), rng, grids, draws)
    return replace(_report(found, "values", y, whole, complete=True), estimator="plug-in")
