"""Measures that are inner products of n × n matrices: CKA, RSA and the mean squared canonical correlation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from probekit.similarity.comparison import Comparison, Measured
from probekit.similarity.features import Layers, without_mean
from probekit.similarity.kernel_measures import LINEAR, Pair, cosine, influence
from probekit.similarity.matrices import Matrices, gaussian, linear, ranked, squares
from probekit.similarity.orders import Cycles
from probekit.similarity.products import Products, by_features, correlated, permuted, products

DOMINATED = 0.2  # effective number of examples, as a share: below, intervals of RSA cover far less than they say
FEW = "no interval where a few examples are so far from the others that they decide; it would be too narrow."
LOST = "a layer has an example so far from the others that nothing but rounding is left of their differences."


Null = tuple[np.ndarray, np.ndarray, Products, Matrices, Matrices]


def null_products(
    c: Comparison, make_a: Callable[[Layers], Matrices], make_b: Callable[[Layers], Matrices]
) -> Null | None:
    """Permuted products, those of the diagonals, the observed ones and their matrices; None without permutations."""
    null = c.null
    if null is None:
        return None
    a = make_a(null.a)
    b = a if c.same and make_a is make_b else make_b(null.b)
    if isinstance(null.orders, Cycles):
        return _in_cycles(
            products(a, b, null.orders, c.run, progress=c.progress, stage="permutations"), a, b, null.orders
        )
    observed = products(a, b, None, c.run)
    return *permuted(a, b, null.orders, c.run, progress=c.progress), observed, a, b


def _in_cycles(found: Products, a: Matrices, b: Matrices, cycles: Cycles) -> Null:
    assert found.null is not None
    return found.null, correlated(a.vector, b.vector, cycles), found, a, b


def measure_linear(c: Comparison, names: Sequence[str]) -> dict[str, Measured]:
    """The measures of LINEAR, from one pass."""
    a = linear(c.a)
    b = a if c.same else linear(c.b)
    wanted = c.options.resamples > 0
    if (cycles := c.cycles) is not None:
        observed = products(a, b, cycles, c.run, progress=c.progress, stage="cka")
        nulls: Null | None = _in_cycles(observed, a, b, cycles)
    else:
        observed, nulls = _observed(c, a, b, rows=wanted), null_products(c, linear, linear)
    out = {}
    for name in names:
        own = [_own(name, m, sums) for m, sums in ((a, observed.aa), (b, observed.bb))]
        lost = any(np.isnan(one[~side.constant]).any() for one, side in zip(own, (c.a, c.b), strict=True))
        total = LINEAR[name].total(c.n, observed.ab.sum(0), a.vector @ b.vector.T, _sums(a, b))
        value = cosine(total, *own)
        ends, notes = _interval(name, c, a, b, observed, value, own) if wanted else (None, ())
        notes = (LOST, *notes) if lost else notes
        drawn = None
        if nulls is not None:
            h, v, one, na, nb = nulls
            null_own = [_own(name, m, s) for m, s in ((na, one.aa), (nb, one.bb))]
            drawn = cosine(LINEAR[name].total(na.n, h, v, _sums(na, nb)), *null_own)
        out[name] = Measured(value, ends, drawn, notes)
    return out


def _sums(a: Matrices, b: Matrices) -> np.ndarray:
    return np.multiply.outer(a.vector.sum(1), b.vector.sum(1))


def _own(name: str, m: Matrices, h: np.ndarray) -> np.ndarray:
    """The statistic of each layer with itself; NaN where rounding is all that the diagonal leaves of it."""
    h, v = h.sum(0), (m.vector**2).sum(1)
    total = LINEAR[name].total(m.n, h, v, m.vector.sum(1) ** 2)
    return np.where(total > 100 * np.finfo(m.dtype).eps * (h + v), total, np.nan)


def _observed(c: Comparison, a: Matrices, b: Matrices, *, rows: bool) -> Products:
    """Products without permutations: from features or in tiles, whichever is less work."""
    widths = [np.array([x.shape[1] for x in side.x], float) for side in (c.a, c.b)]
    features = (2 + 2 * rows) * np.multiply.outer(*widths).sum()
    if c.n <= 10_000 and features > c.n * sum(w.sum() for w in widths):
        return products(a, b, None, c.run, progress=c.progress, stage="cka")

    def diagonal(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        both = p.T[:, :, None] * q.T[:, None, :]
        return both if rows else both.sum(0, keepdims=True)

    ab = by_features(c.a.x, c.b.x, c.run, rows=rows) - diagonal(a.vector, b.vector)
    own = []
    for layers, m in ((c.a, a), (c.b, b)):
        parts = [by_features([x], [x], c.run, rows=rows)[:, 0, 0] for x in layers.x]
        square = (m.vector**2).T
        own.append(np.stack(parts, axis=1) - (square if rows else square.sum(0)))
        if c.same:
            own *= 2
            break
    return Products(ab, *own)


def _times(x: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The kernel of x without its diagonal, times vectors (layers, n), as (n, layers)."""
    return np.asarray(x @ (x.T @ vectors.T.astype(x.dtype)), np.float64) - (squares(x) * vectors).T


def _own_influences(name: str, side: Layers, m: Matrices, rows: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Influence of each example on the logarithm of each layer's statistic with itself, (n, layers)."""
    kv = np.stack([_times(x, v[None])[:, 0] for x, v in zip(side.x, m.vector, strict=True)], axis=1)
    d = m.vector.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(without_mean(influence(name, Pair(rows, d, d, kv, kv))) / total)


def _effective(own: np.ndarray, units: np.ndarray | None) -> np.ndarray:
    """Effective number of examples (clusters), 1 / Σ s² of their shares s in a layer's statistic with itself, / n."""
    shares = own / 2 + 1 / len(own)  # a term of an example is in two rows
    if units is not None:
        shares = np.stack([np.bincount(units, share) for share in shares.T], axis=1)
    return np.asarray(1 / (len(shares) * (shares**2).sum(0)))


def _interval(
    name: str, c: Comparison, a: Matrices, b: Matrices, h: Products, value: np.ndarray, own: list[np.ndarray]
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[str, ...]]:
    """Intervals from the influences of each example on each pair, and what to say of them."""
    ours = _own_influences(name, c.a, a, h.aa, own[0])
    theirs = ours if c.same else _own_influences(name, c.b, b, h.bb, own[1])
    la = [_times(x, a.vector) for x in c.b.x]  # of each layer of b: (n, layers a)
    out = np.empty((c.n, *value.shape))
    for i, x in enumerate(c.a.x):
        pair = Pair(
            h.ab[:, i], a.vector[i][:, None], b.vector.T, _times(x, b.vector), np.stack([v[:, i] for v in la], axis=1)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            both = without_mean(influence(name, pair)) / np.sqrt(own[0][i] * own[1])
        out[:, i] = both - 0.5 * value[i] * (ours[:, i, None] + theirs)
    low, high = c.interval(value, out, heavy=name.startswith("rsa"))
    few = [_effective(influences, c.units) < DOMINATED for influences in (ours, theirs)]
    if not name.startswith("rsa") or not (dominated := np.logical_or.outer(*few)).any():
        return (low, high), ()
    return (np.where(dominated, np.nan, low), np.where(dominated, np.nan, high)), (FEW,)


def measure_kernels(c: Comparison, name: str) -> Measured:
    """cka-rbf or rsa-spearman: the cosine of matrices that are centred already."""
    make = {"cka-rbf": gaussian, "rsa-spearman": ranked}[name]

    def matrices(layers: Layers) -> Matrices:
        return make(layers, c.run, c.options.seed)

    drawn = None
    a = matrices(c.a)
    b = a if c.same else matrices(c.b)
    found = products(a, b, c.cycles, c.run, progress=c.progress, stage=name)
    own = [sums.sum(0) for sums in (found.aa, found.bb)]
    value = cosine(found.ab.sum(0), *own)
    if found.null is not None:
        drawn = cosine(found.null, *own)
    elif (apart := null_products(c, matrices, matrices)) is not None:
        h, _, one, *_ = apart
        drawn = cosine(h, one.aa.sum(0), one.bb.sum(0))
    if name == "rsa-spearman" or not c.options.resamples:
        return Measured(value, None, drawn)
    with np.errstate(invalid="ignore", divide="ignore"):
        ours, theirs = (2 * without_mean(s) / t for s, t in zip((found.aa, found.bb), own, strict=True))
        both = 2 * without_mean(found.ab) / np.sqrt(own[0][:, None] * own[1])
    change = both - 0.5 * value * (ours[:, :, None] + theirs[:, None, :])
    return Measured(value, c.interval(value, change), drawn)
