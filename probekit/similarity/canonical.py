"""Measures that need a singular value decomposition of each pair: canonical correlations and Procrustes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from probekit.similarity.comparison import Comparison, Measured
from probekit.similarity.features import DOUBLE, Layers
from probekit.similarity.products import Map

CANONICAL = ("cca", "svcca", "pwcca", "procrustes", "procrustes-angle")
NOTHING = np.zeros((0, 0))
DRAWS = 100  # permutations by default: each needs a decomposition for each pair
REAL = 1e-6  # directions with less spread, relative to the first of standardised columns, are rounding


@dataclass(frozen=True, eq=False, slots=True)
class Basis:
    """An orthonormal basis of a layer's columns; for Procrustes, the layer itself with |X| = 1.

    Attributes
    ----------
    u : ndarray
        (n, r).
    s : ndarray
        (r,) singular values of what was decomposed.
    rest : ndarray
        (r, d) coordinates of the centred columns, if they are wanted.
    """

    u: np.ndarray
    s: np.ndarray
    rest: np.ndarray


def bases(layers: Layers, run: Map, *, variance: float | None = None, rest: bool = False) -> list[Basis]:
    """Bases of the real rank of each layer; with ``variance``, of the first principal components that have so much.

    Without it columns are standardised before their rank is judged, so that an outlying one hides no others.
    """

    def of(x: np.ndarray) -> Basis:
        x64 = np.asarray(x, np.float64)
        spread = np.sqrt((x64**2).mean(0))
        real = spread > REAL * spread.max(initial=0)
        if not real.any():
            return Basis(np.zeros((len(x), 0), x.dtype), np.zeros(0), np.zeros((0, x.shape[1])))
        u, s = _decomposed(x64 if variance is not None else x64[:, real] / spread[real])
        keep = s > REAL * s[0]
        if variance is not None:
            keep &= np.arange(len(s)) <= np.searchsorted(np.cumsum(s**2) / (s**2).sum(), variance)
        u = u[:, keep]
        return Basis(u.astype(x.dtype), s[keep], u.T @ x64 if rest else NOTHING)

    return list(run(of, layers.x))


def _decomposed(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left singular vectors and singular values of x (n, d), largest first; those of rounding are left out."""
    if len(x) <= DOUBLE:
        u, s, _ = linalg.svd(x, full_matrices=False, check_finite=False)
        return u, s
    square, v = linalg.eigh(x.T @ x, check_finite=False)
    s = np.sqrt(np.maximum(square[::-1], 0))
    kept = s > REAL * s[0]
    u = x @ (v[:, ::-1][:, kept] / s[kept])
    lower = linalg.cholesky(u.T @ u, lower=True, check_finite=False)  # small directions are not quite orthogonal
    return linalg.solve_triangular(lower, u.T, lower=True, check_finite=False).T, s[kept]


def procrustes_basis(layers: Layers) -> list[Basis]:
    """Each layer divided by its Frobenius norm."""
    norms = [np.linalg.norm(x) or 1.0 for x in layers.x]
    return [Basis((x / norm).astype(x.dtype), np.zeros(0), NOTHING) for x, norm in zip(layers.x, norms, strict=True)]


def _values(cross: np.ndarray) -> np.ndarray:
    """Singular values of XᵀY; of more than 256 columns by the eigenvalues of its square, which errs by 1e-8."""
    if min(cross.shape) == 0:
        return np.zeros(0)
    cross = np.asarray(cross, np.float64)
    if min(cross.shape) <= 256:
        return np.asarray(linalg.svdvals(cross, check_finite=False))
    square = cross @ cross.T if cross.shape[0] <= cross.shape[1] else cross.T @ cross
    return np.sqrt(np.maximum(linalg.eigvalsh(square, check_finite=False), 0))


def _mean(cross: np.ndarray, x: Basis) -> float:
    """Mean canonical correlation of the smaller rank."""
    return float(np.minimum(_values(cross), 1).mean()) if min(cross.shape) else np.nan


def _nuclear(cross: np.ndarray, x: Basis) -> float:
    return min(float(_values(cross).sum()), 1.0)


def _weighted(cross: np.ndarray, x: Basis) -> float:
    """Canonical correlations weighted by Σⱼ |⟨canonical variate of X, column j of X⟩| (Morcos et al. 2018, eq. 2-3)."""
    if not min(cross.shape):
        return np.nan
    left, rho, _ = linalg.svd(np.asarray(cross, np.float64), full_matrices=False, check_finite=False)
    weight = np.abs(left.T @ x.rest).sum(1)
    return float(weight @ np.minimum(rho, 1) / weight.sum())


SCORES: dict[str, Callable[[np.ndarray, Basis], float]] = {
    "cca": _mean, "svcca": _mean, "pwcca": _weighted, "procrustes": _nuclear
}  # fmt: skip


def _of_correlations(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Influence of each example on the mean canonical correlation: uv - ρ(u² + v²)/2 of each pair of variates.

    (Romanazzi 1992.)
    """
    if 0 in (u.shape[1], v.shape[1]):
        return np.zeros(len(u))
    left, rho, right = linalg.svd(np.asarray(u.T @ v, np.float64), full_matrices=False, check_finite=False)
    ours, theirs = u @ left, v @ right.T
    return np.asarray((ours * theirs - rho / 2 * (ours**2 + theirs**2)).mean(1))


def _of_rotation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Influence of each example on Σ σ(XᵀY) / |X||Y|, whose derivative is the best rotation."""
    left, s, right = linalg.svd(np.asarray(x.T @ y, np.float64), full_matrices=False, check_finite=False)
    along = np.einsum("ij,ij->i", x @ left, y @ right.T)
    return np.asarray(along - s.sum() / 2 * ((x**2).sum(1) + (y**2).sum(1)))


INFLUENCES = {"cca": _of_correlations, "svcca": _of_correlations, "procrustes": _of_rotation}


def measure_canonical(c: Comparison, name: str) -> Measured:
    """One of CANONICAL."""
    if name == "procrustes-angle":
        return _angle(measure_canonical(c, "procrustes"))
    if name == "procrustes":
        a, b = (procrustes_basis(side) for side in (c.a, c.b))
    else:
        variance = c.options.variance if name == "svcca" else None
        a = bases(c.a, c.run, variance=variance, rest=name == "pwcca")
        b = a if c.same else bases(c.b, c.run, variance=variance)
    score = SCORES[name]
    draws = DRAWS if c.options.draws is None else c.options.draws
    orders, notes = c.permutations(draws)
    if len(orders) and c.options.draws is None:
        notes = (f"{DRAWS} permutations, since each needs a decomposition of each pair.", *notes)
    orders = np.concatenate([np.arange(c.n)[None], orders])
    shape = len(a), len(b)
    change = np.empty((c.n, *shape)) if name in INFLUENCES and c.options.resamples else None

    def of(pair: tuple[int, int]) -> np.ndarray:
        x, y = a[pair[0]], b[pair[1]]
        if change is not None:
            change[:, *pair] = INFLUENCES[name](x.u, y.u)
        return np.array([score(x.u.T @ y.u[order], x) for order in orders])

    null = np.stack(c.run(of, np.ndindex(shape)), axis=1).reshape(len(orders), *shape)
    ends = None if change is None else c.interval(null[0], change)
    found = Measured(null[0], ends, null if len(orders) > 1 else None, notes)
    return found if name == "procrustes" else no_room(c, a, b, found)


def no_room(c: Comparison, a: list[Basis], b: list[Basis], found: Measured) -> Measured:
    """Without a null and an interval where a rank is as large as it can be: all canonical correlations are 1 then."""
    most = [np.array([x.u.shape[1] for x in side]) for side in (a, b)]
    forced = np.maximum.outer(*most) >= c.n - 1
    some = np.add.outer(*most) > c.n - 1
    if not forced.any():
        note = (
            f"layers have ranks that together are more than {c.n - 1}, so some canonical correlations are 1 by "
            "construction; use more examples, or svcca with less variance."
        )
        return replace(found, notes=(note, *found.notes)) if some.any() else found
    note = (
        f"a layer has rank {c.n - 1}, as large as {c.n} centred examples allow, so canonical correlations are 1 by "
        "construction; use more examples, or svcca with less variance."
    )
    return found.without(forced, note)


def _angle(cosine: Measured) -> Measured:
    """Arc cosines, radians."""
    null = None if cosine.null is None else np.arccos(np.clip(cosine.null, -1, 1))
    ends = None if cosine.ends is None else tuple(np.arccos(np.clip(end, 0, 1)) for end in cosine.ends[::-1])
    return Measured(np.arccos(np.clip(cosine.value, -1, 1)), ends, null, cosine.notes)
