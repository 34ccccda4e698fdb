"""Resampling of documents in blocks: with replacement, permuted between two sides, and merged to similar sizes.

The random numbers for a domain, or for a pair, depend only on the seed and on their names, not on other domains or
their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xxhash
from scipy import sparse

from probekit.domains.divergence import divergences
from probekit.domains.options import Measure
from probekit.errors import UsageError
from probekit.runtime import Progress, no_progress

DRAWS = 64  # most draws summed at a time
HELD = 1 << 27  # bytes of distributions in memory at a time, unless one draw of each domain takes more


def stream(seed: int, use: str, *names: str) -> np.random.Generator:
    """A generator that depends on the seed, the purpose and the names of the domains."""
    return np.random.default_rng(xxhash.xxh3_128_intdigest(json.dumps([seed, use, *names]).encode()))


def blocks_of(counts: Sequence[Any], names: Sequence[str] | None = None) -> list[sparse.csr_array]:
    """Counts as sparse float matrices, without empty blocks.

    Parameters
    ----------
    counts : Sequence[Any]
        (blocks, v) for each domain, dense or sparse.
    names : Sequence[str], optional
        Names of the domains, for error messages.

    Raises
    ------
    UsageError
        For different terms, invalid counts, and fewer than two blocks with a term.
    """
    out: list[sparse.csr_array] = []
    for count, name in zip(counts, called(counts, names), strict=True):
        matrix = sparse.csr_array(count, dtype=np.float64)
        if matrix.ndim != 2 or (out and matrix.shape[1] != out[0].shape[1]):
            raise UsageError(
                f"{name}: counts must have the shape (blocks, terms) with the same terms, not {matrix.shape}."
            )
        if matrix.nnz and not (np.isfinite(matrix.data).all() and matrix.data.min() >= 0):
            raise UsageError(f"{name}: a count is negative or not finite.")
        if not (holds := matrix.sum(1) > 0).all():
            matrix = matrix[np.flatnonzero(holds)]
        if matrix.shape[0] < 2:
            raise UsageError(
                f"{name}: {matrix.shape[0]} of its blocks contain a term; the uncertainty of a divergence needs two or "
                "more. Give it more documents, or divide them into more blocks (--blocks)."
            )
        out.append(matrix)
    return out


def called(counts: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    """The names of domains (default: numbers). Raises UsageError for a wrong number of names or equal names."""
    found = [f"domain {i + 1}" for i in range(len(counts))] if names is None else list(names)
    if len(set(found)) < len(found) or len(found) != len(counts):
        raise UsageError(f"{len(counts)} domains need as many different names, not {', '.join(map(repr, found))}.")
    return found


def has_like(blocks: Sequence[int], documents: Sequence[float]) -> bool:
    """Whether two domains have blocks of similar size: no block is twice as large as all of the other domain.

    Parameters
    ----------
    blocks : Sequence[int]
        Number of non-empty blocks of each.
    documents : Sequence[float]
        Number of documents of each.
    """
    return max(n / k for n, k in zip(documents, blocks, strict=True)) < 2 * min(documents)


def matched(a: Any, b: Any, documents: tuple[float, float]) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Counts in blocks of similar size on both sides: neighbouring blocks are merged on the finer side.

    Parameters
    ----------
    a, b : Any
        (blocks, v).
    documents : tuple[float, float]
        Number of documents of each. Empty blocks are left out.

    Raises
    ------
    UsageError
        As from :func:`blocks_of`, and if a block of one domain holds twice the documents of the other domain.
    """
    a, b = blocks_of([a, b])
    sizes = [n / m.shape[0] for n, m in zip(documents, (a, b), strict=True)]
    if not has_like((a.shape[0], b.shape[0]), documents):
        raise UsageError(
            f"a block of one domain holds {max(sizes):,.0f} documents, but the other domain has only "
            f"{min(documents):,.0f}. Divide the larger domain into more blocks (--blocks), or use less of it."
        )
    return _merged(a, sizes[1] / sizes[0]), _merged(b, sizes[0] / sizes[1])


def _merged(blocks: sparse.csr_array, times: float) -> sparse.csr_array:
    if times < 2:
        return blocks
    n = blocks.shape[0]
    groups = max(round(n / times), 1)
    block = np.arange(n, dtype=np.int32)  # scikit-learn needs small indices
    to = (block * np.int64(groups) // n).astype(np.int32)
    return sparse.csr_array((np.ones(n), (to, block)), shape=(groups, n)) @ blocks


def replicates(
    counts: Sequence[Any],
    measures: str | Iterable[str] = (Measure.JS,),
    *,
    names: Sequence[str] | None = None,
    rows: int | None = None,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress = no_progress,
    **options: Any,
) -> dict[str, np.ndarray]:
    """Each measure in each resample of the blocks of every domain, float64 (resamples, a, b).

    Parameters
    ----------
    counts : Sequence[Any]
        (blocks, v) for each domain, dense or sparse.
    names : Sequence[str], optional
        Names of the domains (default: their numbers).
    rows : int, optional
        Number a of first domains to compare with all others, b (default: all pairs). All pairs of a domain use the same
        resamples of it.
    **options
        Options of :func:`probekit.domains.divergence.divergences`.
    """
    chosen = [measures] if isinstance(measures, str) else list(measures)
    names, blocks = called(counts, names), blocks_of(counts, names)
    d, v = len(blocks), blocks[0].shape[1]
    a = d if rows is None else rows
    out = {name: np.empty((resamples, a, d - a or d)) for name in chosen}
    rngs = [stream(seed, "bootstrap", name) for name in names]
    together = min(DRAWS, max(HELD // (8 * d * v), 1))
    for at in range(0, resamples, together):
        size = min(together, resamples - at)
        drawn = []
        for domain, rng in zip(blocks, rngs, strict=True):
            n = domain.shape[0]
            drawn.append(shares(domain, rng.multinomial(n, np.full(n, 1 / n), size)))
        for r in range(size):
            p = np.stack([x[r] for x in drawn])
            found = divergences(p[:a], chosen, others=p[a:] if a < d else None, **options)
            for name in chosen:
                out[name][at + r] = found[name]
        progress("resamples", at + size, resamples)
    return out


def pair_null(
    a: Any,
    b: Any,
    documents: tuple[float, float],
    measures: Sequence[str] = (Measure.JS,),
    *,
    draws: int = 199,
    rng: np.random.Generator,
    **options: Any,
) -> dict[str, np.ndarray]:
    """The null distribution of two samples of one population: pool the blocks of both and divide them at random.

    For each measure float64 (2, draws), from the first to the second and in reverse. If blocks of one hold at least
    twice as many documents as those of the other, small ones are merged first. Errors as from :func:`matched`.

    Parameters
    ----------
    a, b : Any
        (blocks, v) counts.
    documents : tuple[float, float]
        Number of documents of each.
    """
    first, second = matched(a, b, documents)
    return _deals(sparse.vstack([first, second], format="csr"), first.sum(), measures, draws, rng, options)


def halves(
    counts: Any, measures: Sequence[str] = (Measure.JS,), *, draws: int = 199, rng: np.random.Generator, **options: Any
) -> dict[str, np.ndarray]:
    """Each measure between two random halves of one domain, float64 (draws,); counts (blocks, v)."""
    [blocks] = blocks_of([counts])
    found = _deals(blocks, blocks.sum() / 2, measures, draws, rng, options)
    return {name: values[0] for name, values in found.items()}


def _sides(tokens: np.ndarray, first: float, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Random first sides with about ``first`` tokens, from blocks with these tokens: bool (draws, n)."""
    n = len(tokens)
    sides = np.zeros((draws, n), dtype=bool)
    for side in sides:
        order = rng.permutation(n)
        taken = np.abs(np.cumsum(tokens[order])[:-1] - first).argmin() + 1  # 1 … n - 1
        side[order[:taken]] = True
    return sides


def _deals(
    pool: sparse.csr_array,
    first: float,
    names: Sequence[str],
    draws: int,
    rng: np.random.Generator,
    options: dict[str, Any],
) -> dict[str, np.ndarray]:
    """Each measure for ``draws`` random divisions of the pool into two sides, in both directions, (2, draws)."""
    tokens = pool.sum(1)
    out = {name: np.empty((2, draws)) for name in names}
    for at in range(0, draws, DRAWS):
        sides = _sides(tokens, first, min(DRAWS, draws - at), rng)
        for r, (p, q) in enumerate(zip(shares(pool, sides), shares(pool, ~sides), strict=True)):
            found = divergences(np.stack([p, q]), names, **options)
            for name in names:
                out[name][:, at + r] = found[name][0, 1], found[name][1, 0]
    return out


def shares(blocks: sparse.csr_array, times: np.ndarray) -> np.ndarray:
    """Term distributions where block k is taken ``times[r, k]`` times, float64 (r, v)."""
    totals = np.ascontiguousarray((blocks.T @ times.T.astype(np.float64)).T)
    totals /= totals.sum(1, keepdims=True)
    return totals
