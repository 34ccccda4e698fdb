"""Divergences between term distributions: the measures of Ruder & Plank (2017) and two more, for all pairs.

Definitions are those of Ruder & Plank (2017, "Learning to select data for transfer learning with Bayesian
optimization", section 3.2) and of the code they published (github.com/sebastianruder/learn-to-select-data,
similarity.py), which is in nats. Here the Jensen-Shannon divergence is in bits, so that it lies in 0 … 1. For infinite
values, this module returns infinity where their code returns 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy.special import xlog1py

from probekit.calls import checked
from probekit.constraint import as_array
from probekit.domains import _kernels as kernels
from probekit.domains.options import Measure
from probekit.errors import UsageError
from probekit.metrics import METRICS
from probekit.runtime import blas_thread, cores

TILE = 32  # domains on each side of a tile, which one thread computes at a time
COLUMNS = 4096  # terms per block of a matrix product
CLOSE = 1e-7  # bits; below this, the difference of sums is replaced by the sum of differences
OFF = 1e-6  # allowed deviation of a distribution's sum from 1


ALIKE = frozenset(measure for measure in Measure if METRICS[measure].alike)
"""Measures that are large for similar domains."""

DIRECTED = frozenset({Measure.KL, Measure.RENYI})
"""Asymmetric measures."""

_OF_JS: dict[Measure, Callable[[np.ndarray], np.ndarray]] = {
    Measure.JS: lambda bits: bits,
    Measure.JS_NATS: lambda bits: bits * np.log(2),
    Measure.JS_DISTANCE: lambda bits: np.sqrt(np.maximum(bits, 0)),
    Measure.JS_SIMILARITY: lambda bits: 1 - bits * np.log(2),
}


def of_js(measure: str, bits: np.ndarray) -> np.ndarray | None:
    """A monotone function of the Jensen-Shannon divergence, computed from it; None for any other measure."""
    function = _OF_JS.get(Measure(measure))
    return None if function is None else function(bits)


@checked
def js_divergence(p: Any, q: Any) -> float:
    """Jensen-Shannon divergence of two distributions in bits, 0 (equal) … 1 (nothing in common); symmetric.

    Parameters
    ----------
    p, q : ndarray
        (v,), probabilities of the same terms in the same order.

    Returns
    -------
    float
        In bits.

    Raises
    ------
    UsageError
        For shapes that differ, and for values that are negative, not finite, or do not sum to 1.

    See Also
    --------
    probekit.domains : Divergences of texts, with intervals, nulls and corrections.

    References
    ----------
    Lin (1991), "Divergence measures based on the Shannon entropy", IEEE Transactions on Information Theory, equation
    4.1 with equal weights.

    Examples
    --------
    >>> import numpy as np
    >>> js_divergence(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    1.0
    >>> round(js_divergence(np.array([0.5, 0.5]), np.array([1.0, 0.0])), 3)
    0.311
    """
    return float(contributions(p, q).sum())


def contributions(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The contribution of each term to the Jensen-Shannon divergence, float64 (v,) in bits; never negative.

    A term of mean probability m = (p + q) / 2 contributes m (1 - H(p / (p + q))): its frequency times its information
    about the domain. This equals (p log2 p/m + q log2 q/m) / 2, in a form that stays exact if p is close to q. p, q and
    errors are as in :func:`js_divergence`.
    """
    p, q = (
        _distributions(np.atleast_1d(as_array(name, x, np.float64))[None], name) for x, name in ((p, "p"), (q, "q"))
    )
    if p.ndim != 2 or p.shape != q.shape:
        raise UsageError(
            f"p and q must be distributions over the same terms, not {p.shape[1:]} and {q.shape[1:]} numbers."
        )
    return _contributions(p[0], q[0])


def _contributions(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    total = p + q
    x = np.divide(p - q, total, out=np.zeros_like(total), where=total > 0)
    return np.maximum(total * (xlog1py(1 + x, x) + xlog1py(1 - x, -x)), 0) / (4 * np.log(2))


def divergences(
    distributions: np.ndarray,
    measures: str | Iterable[str] = (Measure.JS,),
    *,
    others: np.ndarray | None = None,
    alpha: float = 0.99,
    smoothing: float = 1e-3,
    threads: int | None = None,
) -> dict[str, np.ndarray]:
    """Each measure for all pairs: name → float64 (a, b); row i, column j is that of distribution i from other j.

    Parameters
    ----------
    distributions : np.ndarray
        (a, v), rows that sum to 1.
    measures : str | Iterable[str], default (Measure.JS,)
        Names of :class:`Measure`.
    others : np.ndarray, optional
        (b, v) (default: the same ones).
    alpha : float, default 0.99
        Order of Rényi's divergence, 0 … 1.
    smoothing : float, default 0.001
        Share of the uniform distribution over the v terms that is mixed into both before ``kl``, which would otherwise
        be infinite for a term that the second distribution lacks.
    threads : int, optional
        Threads for tiles of pairs (default: all cores); the numbers do not depend on it. Besides the distributions,
        the (a, b) results and 4,096 columns are held in memory.

    Raises
    ------
    UsageError
        For an unknown measure, for shapes that do not match, and for a row that is not a distribution.
    """
    names = list(dict.fromkeys([measures] if isinstance(measures, str) else measures))
    if unknown := [name for name in names if name not in list(Measure)]:
        raise UsageError(f"unknown measure {unknown[0]!r}; it must be one of {', '.join(Measure)}.")
    if not (0 < alpha < 1 and 0 < smoothing < 1):
        raise UsageError(f"alpha and smoothing must lie between 0 and 1, not {alpha} and {smoothing}.")
    p = _distributions(distributions, "distributions")
    q = p if others is None else _distributions(others, "others")
    if p.shape[1] != q.shape[1]:
        raise UsageError(f"the distributions have {p.shape[1]} terms, but the others {q.shape[1]}.")
    found: dict[str, np.ndarray] = {}
    if any(name in _OF_JS for name in names):
        bits = _jensen_shannon(p, q, threads)
        found |= {name: function(bits) for name, function in _OF_JS.items()}
    if {Measure.VARIATIONAL, Measure.EUCLIDEAN} & set(names):
        absolute, squares = _tiled(kernels.distances, p, q, threads, 2)
        found |= {Measure.VARIATIONAL: absolute, Measure.EUCLIDEAN: np.sqrt(squares)}
    with blas_thread():
        found |= {name: _PRODUCTS[Measure(name)](p, q, alpha, smoothing) for name in names if name in _PRODUCTS}
    if p is q:
        for name in names:
            np.fill_diagonal(found[name], float(name in ALIKE))
    return {str(name): found[name] for name in names}


def _distributions(rows: np.ndarray, called: str) -> np.ndarray:
    """Normalise rows to sum to 1, float64 and contiguous; without a copy if they already are."""
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        raise UsageError(f"{called} must hold probabilities of terms, not an array of shape {rows.shape[-2:]}.")
    if any(np.signbit(row).any() for row in rows):
        rows = rows + 0.0  # the kernels turn -0.0 into NaN; negative values are reported below
    sums = rows.sum(1)
    if (wrong := ~(np.abs(sums - 1) <= OFF) | (rows.min(1) < 0)).any():
        i = int(wrong.argmax())
        row, where = rows[i], f"{called}, row {i + 1}" if len(rows) > 1 else called
        if not np.isfinite(row).all():
            raise UsageError(f"{where}: a probability is NaN or infinite.")
        if row.min() < 0:
            raise UsageError(f"{where}: a probability is negative ({row.min():g}).")
        if not sums[i]:
            raise UsageError(f"{where}: all probabilities are 0; a domain must contain a term of the vocabulary.")
        raise UsageError(f"{where}: the probabilities sum to {sums[i]:g}, not to 1; divide counts by their sum.")
    return rows if (np.abs(sums - 1) < 1e-14).all() else rows / sums[:, None]


def _tiled(kernel: Callable[..., None], p: np.ndarray, q: np.ndarray, threads: int | None, planes: int) -> np.ndarray:
    """Apply ``kernel`` to all pairs, tile by tile, float64 (planes, a, b); if p is q, to each pair once."""
    out, same = np.zeros((planes, len(p), len(q))), p is q

    def tile(at: tuple[int, int]) -> None:
        i, j = (slice(start, start + TILE) for start in at)
        kernel(p[i], q[j], same and at[0] == at[1], out[:, i, j])

    tiles = [(i, j) for i in range(0, len(p), TILE) for j in range(i if same else 0, len(q), TILE)]
    if len(tiles) == 1 or threads == 1:
        list(map(tile, tiles))
    else:
        with ThreadPoolExecutor(threads or cores()) as pool:
            list(pool.map(tile, tiles))
    if same:
        for plane in out:
            plane += np.triu(plane, 1).T
    return out


def _jensen_shannon(p: np.ndarray, q: np.ndarray, threads: int | None) -> np.ndarray:
    """The divergence from sums of x log2 x; if their difference is small, from the contributions of terms."""
    entropies = [np.empty(len(rows)) for rows in (p, q)]
    for rows, out in zip((p, q), entropies, strict=True):
        kernels.negative_entropies(rows, out)
    bits = 1 - (_tiled(kernels.pair_sums, p, q, threads, 1)[0] - (entropies[0][:, None] + entropies[1])) / 2
    for i, j in np.argwhere(bits < CLOSE):
        if p is not q or i != j:
            bits[i, j] = _contributions(p[i], q[j]).sum()
    return np.clip(bits, 0, 1)


Columns = Callable[[np.ndarray], np.ndarray]


def _product(left: Columns, right: Columns, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """left(p) @ right(q).T, in blocks of columns."""
    total = np.zeros((len(p), len(q)))
    for at in range(0, p.shape[1], COLUMNS):
        total += left(p[:, at : at + COLUMNS]) @ right(q[:, at : at + COLUMNS]).T
    return total


def _logarithm(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(x)


def _kl(p: np.ndarray, q: np.ndarray, _: float, smoothing: float) -> np.ndarray:
    def smooth(x: np.ndarray) -> np.ndarray:
        return (1 - smoothing) * x + smoothing / p.shape[1]

    parts = (smooth(p[:, at : at + COLUMNS]) for at in range(0, p.shape[1], COLUMNS))
    negentropy = sum((y * np.log(y)).sum(1) for y in parts)
    return np.maximum(np.asarray(negentropy)[:, None] - _product(smooth, lambda x: np.log(smooth(x)), p, q), 0)


def _renyi(p: np.ndarray, q: np.ndarray, alpha: float, _: float) -> np.ndarray:
    return np.maximum(_logarithm(_product(lambda x: x**alpha, lambda x: x ** (1 - alpha), p, q)) / (alpha - 1), 0)


def _bhattacharyya(p: np.ndarray, q: np.ndarray, _: float, __: float) -> np.ndarray:
    return np.maximum(-_logarithm(_product(np.sqrt, np.sqrt, p, q)), 0)


def _cosine(p: np.ndarray, q: np.ndarray, _: float, __: float) -> np.ndarray:
    lengths = [np.sqrt(np.einsum("iv,iv->i", x, x)) for x in (p, q)]
    return np.clip(1 - _product(np.asarray, np.asarray, p, q) / np.outer(*lengths), 0, 1)


def _overlap(p: np.ndarray, q: np.ndarray, _: float, __: float) -> np.ndarray:
    both = _product(lambda x: (x > 0).astype(np.float64), lambda x: (x > 0).astype(np.float64), p, q)
    return both / ((p > 0).sum(1)[:, None] + (q > 0).sum(1) - both)


_PRODUCTS: dict[Measure, Callable[[np.ndarray, np.ndarray, float, float], np.ndarray]] = {
    Measure.KL: _kl,
    Measure.RENYI: _renyi,
    Measure.BHATTACHARYYA: _bhattacharyya,
    Measure.COSINE: _cosine,
    Measure.OVERLAP: _overlap,
}
