"""Measures of linear maps by n × n matrices: overlap of the spanned spaces, predictivity by ridge regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from probekit.similarity.canonical import Basis, bases, no_room
from probekit.similarity.comparison import Comparison, Measured
from probekit.similarity.features import Layers
from probekit.similarity.inner import null_products
from probekit.similarity.matrices import Matrices, leave_one_out, linear, projections, squares
from probekit.similarity.products import Map

__all__ = ["FREEDOM", "OVERLAPS", "measure_overlap", "measure_predictivity", "ridge_fits"]

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
        sums, v, p, q = found
        ranks = size.outer(*(np.rint(m.vector.sum(1)) for m in (p, q)))
        null = (sums.ab + v) / np.maximum(ranks, 1)
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
        sums, v, _, k = found
        errors = (sums.ab + v).reshape(len(v), -1, len(FREEDOM), len(c.b)).min(2)
        total = (k.n / (k.n - 1)) ** 2 * np.maximum(k.vector.sum(1), 1e-300)
        parts.append(1 - errors / total)
    return np.concatenate(parts, axis=1)


def _errors(fit: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Squared norm of each example's residual, fitted without it (n,)."""
    residual = y - fit @ (fit.T @ y)
    return np.asarray(squares(residual) / np.maximum(1 - squares(fit), 1e-12) ** 2)
