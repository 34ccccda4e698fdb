"""Documents drawn again, in blocks: with replacement, dealt out to two sides, and put together where they are unlike.

What is drawn for a domain, or a pair of them, depends on the seed and on their names alone: it is the same whatever
other domains there are, and in whatever order.
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

__all__ = ["blocks_of", "halves", "has_like", "matched", "pair_null", "replicates", "stream"]

DRAWS = 64  # that are summed at a time, at most
HELD = 1 << 27  # bytes of distributions that are held at a time, unless one draw of each domain takes more


def stream(seed: int, use: str, *names: str) -> np.random.Generator:
    """Random numbers that depend on the seed, on what they are for, and on the names of what they are drawn for."""
    return np.random.default_rng(xxhash.xxh3_128_intdigest(json.dumps([seed, use, *names]).encode()))


def blocks_of(counts: Sequence[Any], names: Sequence[str] | None = None) -> list[sparse.csr_array]:
    """Counts as sparse matrices of floats, without blocks that hold no term.

    Parameters
    ----------
    counts : Sequence[Any]
        (blocks, v) of each domain, dense or sparse.
    names : Sequence[str], optional
        Of the domains, which errors name.

    Raises
    ------
    UsageError
        For terms that differ, for what is no count, and where fewer than two blocks hold a term.
    """
    out: list[sparse.csr_array] = []
    for count, name in zip(counts, called(counts, names), strict=True):
        matrix = sparse.csr_array(count, dtype=np.float64)
        if matrix.ndim != 2 or (out and matrix.shape[1] != out[0].shape[1]):
            raise UsageError(f"{name}: counts are {matrix.shape}; (blocks, terms) with the same terms is wanted.")
        if matrix.nnz and not (np.isfinite(matrix.data).all() and matrix.data.min() >= 0):
            raise UsageError(f"{name}: a count is negative or not finite.")
        if not (holds := matrix.sum(1) > 0).all():
            matrix = matrix[np.flatnonzero(holds)]
        if matrix.shape[0] < 2:
            raise UsageError(
                f"{name}: {matrix.shape[0]} of its blocks hold a term; how sure a divergence is can be told from two "
                "or more. Give it more documents, or deal them to more blocks (--blocks)."
            )
        out.append(matrix)
    return out


def called(counts: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    """The names of domains, or numbers. Raises UsageError where there are not as many, or two are the same."""
    found = [f"domain {i + 1}" for i in range(len(counts))] if names is None else list(names)
    if len(set(found)) < len(found) or len(found) != len(counts):
        raise UsageError(f"{len(counts)} domains want as many different names, not {', '.join(map(repr, found))}.")
    return found


def has_like(blocks: Sequence[int], documents: Sequence[float]) -> bool:
    """Whether parts of two domains hold as many documents: no block is twice as many as the other has in all.

    Parameters
    ----------
    blocks : Sequence[int]
        Of each, that hold a term.
    documents : Sequence[float]
        Of each.
    """
    return max(n / k for n, k in zip(documents, blocks, strict=True)) < 2 * min(documents)


def matched(a: Any, b: Any, documents: tuple[float, float]) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Counts in blocks of about as many documents on both sides: neighbours are put together on the finer one.

    Parameters
    ----------
    a, b : Any
        (blocks, v).
    documents : tuple[float, float]
        Of each. Blocks without a term are left out.

    Raises
    ------
    UsageError
        As :func:`blocks_of` does, and where a block of one holds twice the documents of the other.
    """
    a, b = blocks_of([a, b])
    sizes = [n / m.shape[0] for n, m in zip(documents, (a, b), strict=True)]
    if not has_like((a.shape[0], b.shape[0]), documents):
        raise UsageError(
            f"a block of one domain holds {max(sizes):,.0f} documents and all of the other are {min(documents):,.0f}: "
            "they have no like among its parts. Deal the larger domain to more blocks (--blocks), or take less of it."
        )
    return _merged(a, sizes[1] / sizes[0]), _merged(b, sizes[0] / sizes[1])


def _merged(blocks: sparse.csr_array, times: float) -> sparse.csr_array:
    if times < 2:
        return blocks
    n = blocks.shape[0]
    groups = max(round(n / times), 1)
    own = np.arange(n, dtype=np.int32)  # scikit-learn wants small indices
    to = (own * np.int64(groups) // n).astype(np.int32)
    return sparse.csr_array((np.ones(n), (to, own)), shape=(groups, n)) @ blocks


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
        (blocks, v) of each domain, dense or sparse.
    names : Sequence[str], optional
        Of the domains, their numbers for None.
    rows : int, optional
        Of the first domains, so many, from all others, b; all from all where it is None or all of them. All pairs of a
        domain meet the same resamples of it.
    **options
        Of :func:`probekit.domains.divergence.divergences`.
    """
    asked = [measures] if isinstance(measures, str) else list(measures)
    names, blocks = called(counts, names), blocks_of(counts, names)
    d, v = len(blocks), blocks[0].shape[1]
    a = d if rows is None else rows
    out = {name: np.empty((resamples, a, d - a or d)) for name in asked}
    rngs = [stream(seed, "bootstrap", name) for name in names]
    together = min(DRAWS, max(HELD // (8 * d * v), 1))
    for at in range(0, resamples, together):
        size = min(together, resamples - at)
        drawn = []
        for own, rng in zip(blocks, rngs, strict=True):
            n = own.shape[0]
            drawn.append(shares(own, rng.multinomial(n, np.full(n, 1 / n), size)))
        for r in range(size):
            p = np.stack([x[r] for x in drawn])
            found = divergences(p[:a], asked, others=p[a:] if a < d else None, **options)
            for name in asked:
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
    """What sampling alone gives of two corpora: blocks of both, pooled, dealt out again at random.

    Of each measure float64 (2, draws), from the first to the second and the other way round. Where blocks of one hold
    at least twice as many documents as those of the other, small ones are put together first, so that a deal is one of
    documents. Errors as of :func:`matched`.

    Parameters
    ----------
    a, b : Any
        (blocks, v) counts.
    documents : tuple[float, float]
        Of each.
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
    """Which blocks, of so many tokens each, fall to a first side that has about ``first`` of them: bool (draws, n)."""
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
    """Each measure of ``draws`` deals of the pool's blocks to two sides, both ways round, (2, draws)."""
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
