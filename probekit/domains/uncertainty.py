"""Uncertainty of divergences: intervals from the documents, the effect of sampling noise, and its correction.

Two samples of one domain have different term counts. The divergence of two corpora therefore exceeds that of the
domains they come from, and more so for small corpora. Blocks of documents are drawn, split and permuted as wholes,
because words of one document depend on each other. Three tools:

- the bootstrap (Efron & Tibshirani 1993, chapter 8) draws the blocks of each domain with replacement. Its spread gives
  the interval of uncorrected measures. Its centre is not used: drawing adds sampling noise to the noise of the sample,
  so percentiles are too high;
- the null pools the blocks of two domains and splits them at random into two parts with the original numbers of tokens.
  Its divergences are those of two samples, of these sizes, from one population. The share of them that is as large as
  the measured one is the p-value of a permutation test (Phipson & Smyth 2010); their mean is the effect of sampling.
  The numbers of tokens are kept, not those of documents: longer documents would otherwise enlarge one side;
- halves: the blocks of one domain, split at random into two parts.

The Jensen-Shannon divergence is an estimate for the domains, made term by term, with a separate interval
(:mod:`probekit.domains.correction`). In simulations (benchmarks/rates/domains.py), subtracting the mean of the null
corrects too much if the domains differ. Corrections without a model of the terms (the first-order bias, the jackknife,
Grassberger's entropies, half samples) correct too little if terms are rare or documents bursty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, product
from math import isqrt
from typing import Any

import numpy as np
from scipy import sparse

from probekit.domains.correction import js_of_domains, js_with_error
from probekit.domains.divergence import ALIKE, DIRECTED, divergences, of_js
from probekit.domains.options import Measure
from probekit.domains.resampling import HELD, blocks_of, called, has_like, pair_null, replicates, shares, stream
from probekit.errors import UsageError
from probekit.metrics import METRICS
from probekit.runtime import Progress, no_progress, part_of


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A measure of all pairs of d domains, with its uncertainty; arrays float64 (d, d), NaN on the diagonal.

    The arrays of the null are NaN without draws, and for pairs in which a block of one domain contains twice as many
    documents as the whole other domain.

    Attributes
    ----------
    raw : np.ndarray
        Value for the corpora.
    value : np.ndarray
        For the Jensen-Shannon family, the estimate for the domains that the corpora come from; otherwise ``raw``.
    low, high : np.ndarray
        Interval around ``value``; NaN without resamples.
    null_mean, null_high : np.ndarray
        Mean and upper quantile of the null (lower quantile for measures of similarity).
    p : np.ndarray
        p-value.
    null_share : np.ndarray
        The correction of the Jensen-Shannon divergence as a share of its null_mean, about 0 … 1; NaN without a null and
        for measures that are not corrected.
    """

    raw: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    null_mean: np.ndarray
    null_high: np.ndarray
    p: np.ndarray
    null_share: np.ndarray


def uncertainty(
    counts: Sequence[Any],
    documents: Sequence[int] | np.ndarray,
    measures: str | Iterable[str] = (Measure.JS,),
    *,
    names: Sequence[str] | None = None,
    resamples: int = 1000,
    draws: int = 199,
    level: float = 0.95,
    seed: int = 0,
    progress: Progress = no_progress,
    **options: Any,
) -> dict[str, Uncertain]:
    """Each measure of all pairs of domains, with intervals, nulls and corrections.

    Intervals of the Jensen-Shannon family are for the domains: the jackknife's standard error times Student's t
    (docs/calibration.md reports their coverage). Intervals of other measures are for corpora of this size, not for the
    domains: the value plus the bootstrap's quantiles about their mean. All stay within the range of the measure. Pairs
    are computed in tiles, so memory is at most about 0.5 GB in addition to counts, distributions (d, v) and results
    (d, d).

    Parameters
    ----------
    counts : Sequence[Any]
        For each domain (blocks, v), the tokens of each term.
    documents : Sequence[int] | np.ndarray
        Number of documents in each domain.
    names : Sequence[str], optional
        Names of the domains (default: their numbers). The draws for a pair depend only on the seed and its two names.
    resamples : int, default 1000
        Bootstrap resamples; 0 for none, otherwise at least 2 / (1 - level) (40 for 95 %), so that some lie beyond each
        end of the interval.
    draws : int, default 199
        Draws of the null for each pair; 0 for none, otherwise at least 19.
    level : float, default 0.95
        Coverage of the intervals, and level of the null's quantile.
    **options
        alpha, smoothing and threads for :func:`probekit.domains.divergence.divergences`.

    Raises
    ------
    UsageError
        For fewer than two domains, names that are not unique, terms that differ, negative counts, and a domain in which
        fewer than two blocks contain a term.
    """
    requested = [measures] if isinstance(measures, str) else list(measures)
    computed = list(dict.fromkeys([*requested, Measure.JS]))  # the correction of those that are functions of it
    names = called(counts, names)
    if len(counts) < 2 or len(documents) != len(counts):
        raise UsageError(
            f"expected two or more domains, and the numbers of their documents; got {len(counts)} and {len(documents)}."
        )
    if not 0 < level < 1 or 0 < draws < 19 or draws < 0 or resamples < 0 or 0 < resamples * (1 - level) < 2 - 1e-9:
        raise UsageError(
            "expected 0 or at least 19 draws of the null, 0 or at least 2 / (1 - level) resamples, and a level between "
            f"0 and 1; got {draws}, {resamples} and {level}."
        )
    blocks = blocks_of(counts, names)
    raw = divergences(np.stack([_share(b) for b in blocks]), computed, **options)
    drawn = _Drawing(blocks, names, computed, level, seed, progress, options)
    null = _nulls(drawn, documents, raw, draws)
    spread = _spreads(replace(drawn, measures=[name for name in requested if not _corrected(name)]), resamples)
    bits = _of_domains(drawn, bool(resamples)) if any(map(_corrected, requested)) else raw[Measure.JS]
    diagonal = np.eye(len(raw[Measure.JS]), dtype=bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        taken = (raw[Measure.JS] - np.atleast_3d(bits.T).T[0]) / null[Measure.JS][0]
    found = {}
    for name in requested:
        share = taken
        if not _corrected(name):
            ends, share = _around(raw[name], spread[name], METRICS[name].range[1]), np.full_like(taken, np.nan)
        else:
            estimate = of_js(name, bits[[0, 2, 1]] if name in ALIKE else bits)
            assert estimate is not None
            ends = estimate
        arrays = (raw[name], *ends, *null[name], share)
        found[name] = Uncertain(*(np.where(diagonal, np.nan, x) for x in arrays))
    return found


def _corrected(name: str) -> bool:
    """Whether a measure is one of the Jensen-Shannon family."""
    return of_js(name, np.zeros(1)) is not None


def _of_domains(drawn: _Drawing, interval: bool) -> np.ndarray:
    """The Jensen-Shannon divergence of the domains and its interval in bits, (3, d, d)."""
    d = len(drawn.blocks)
    out = np.full((3, d, d), np.nan)
    pairs = list(combinations(range(d), 2))
    for done, pair in enumerate(pairs, 1):
        i, j = sorted(pair, key=drawn.names.__getitem__)
        if interval:
            one = js_with_error(drawn.blocks[i], drawn.blocks[j], drawn.level)
            reach = one.error * one.factor
            found = np.clip([one.value, one.value - reach, one.value + reach], 0, 1)
        else:
            found = np.array([js_of_domains(drawn.blocks[i], drawn.blocks[j]), np.nan, np.nan])
        out[:, i, j] = out[:, j, i] = found
        drawn.progress("corrections", done, len(pairs))
    return out


@dataclass(frozen=True, slots=True)
class _Drawing:
    """The blocks to resample, and the options; see :func:`uncertainty`."""

    blocks: list[sparse.csr_array]
    names: list[str]
    measures: list[str]
    level: float
    seed: int
    progress: Progress
    options: dict[str, Any]


def _nulls(
    drawn: _Drawing, documents: Sequence[int] | np.ndarray, raw: dict[str, np.ndarray], draws: int
) -> dict[str, np.ndarray]:
    """For each measure (3, d, d): the null's mean and quantile, and the p-value of ``raw``."""
    blocks, names, d = drawn.blocks, drawn.names, len(drawn.blocks)
    out = {name: np.full((3, d, d), np.nan) for name in drawn.measures}
    pairs = list(combinations(range(d), 2)) if draws else []
    for done, pair in enumerate(pairs, 1):
        i, j = sorted(pair, key=names.__getitem__)
        both = float(documents[i]), float(documents[j])
        if has_like((blocks[i].shape[0], blocks[j].shape[0]), both):
            rng = stream(drawn.seed, "null", names[i], names[j])
            null = pair_null(blocks[i], blocks[j], both, drawn.measures, draws=draws, rng=rng, **drawn.options)
            for name, values in null.items():
                sign, level = (-1, 1 - drawn.level) if name in ALIKE else (1, drawn.level)
                for x, at in zip(values, ((i, j), (j, i)), strict=True):
                    extreme = (sign * x >= sign * raw[name][at]).sum()
                    out[name][:, *at] = x.mean(), np.quantile(x, level), (1 + extreme) / (1 + draws)
        drawn.progress("nulls", done, len(pairs))
    return out


def _spreads(drawn: _Drawing, resamples: int) -> dict[str, np.ndarray]:
    """For each measure (2, d, d): the ends of the bootstrap's intervals minus its mean, computed in tiles."""
    d, ends = len(drawn.blocks), [(1 - drawn.level) / 2, (1 + drawn.level) / 2]
    out = {name: np.full((2, d, d), np.nan) for name in drawn.measures}
    side = max(isqrt(HELD // (8 * max(resamples, 1) * max(len(drawn.measures), 1))), 1)
    parts = [range(at, min(at + side, d)) for at in range(0, d, side)]
    both_ways = product(parts, parts) if DIRECTED & set(drawn.measures) else combinations_with_replacement(parts, 2)
    tiles = list(both_ways) if resamples and out else []
    for number, (rows, columns) in enumerate(tiles):
        some = [*rows, *(columns if columns != rows else ())]

        again = replicates(
            [drawn.blocks[k] for k in some],
            drawn.measures,
            names=[drawn.names[k] for k in some],
            rows=len(rows),
            resamples=resamples,
            seed=drawn.seed,
            progress=part_of(drawn.progress, number, len(tiles)),
            **drawn.options,
        )
        for name, values in again.items():
            for k, i in enumerate(rows):
                with np.errstate(invalid="ignore"):  # without common terms some measures are infinite
                    found = np.quantile(values[:, k], ends, axis=0) - values[:, k].mean(0)
                out[name][:, i, columns] = found
                if name not in DIRECTED:
                    out[name][:, columns, i] = found
    return out


def _around(value: np.ndarray, spread: np.ndarray, top: float) -> np.ndarray:
    """Value and interval, (3, d, d), within 0 … ``top``."""
    return np.clip([value, value + spread[0], value + spread[1]], 0, top)


def by_size(
    counts: Sequence[Any],
    documents: Sequence[int] | np.ndarray,
    parts: Sequence[float] = (0.05, 0.1, 0.2, 0.5, 1.0),
    *,
    names: Sequence[str] | None = None,
    repeats: int = 20,
    seed: int = 0,
    progress: Progress = no_progress,
    **options: Any,
) -> list[dict[str, float]]:
    """The Jensen-Shannon divergence, in bits, of random parts of each pair of domains.

    Returns records with first, second (numbers of the domains, first < second), part (the share of the blocks),
    documents (used, of both domains), raw, raw_low, raw_high (mean, minimum and maximum over ``repeats`` random parts),
    null_mean (from two draws for each part; NaN if parts are too small for a null), and value, the mean with the
    correction of :func:`uncertainty`. A part has at least two blocks.

    Raises
    ------
    UsageError
        For parts that are not in 0 … 1, and as :func:`uncertainty`.
    """
    names = called(counts, names)
    blocks = blocks_of(counts, names)
    if not all(0 < part <= 1 for part in parts):
        raise UsageError(f"parts must be above 0 and at most 1, not {', '.join(map(str, parts))}.")
    records = []
    pairs = list(combinations(range(len(blocks)), 2))
    for done, pair in enumerate(pairs, 1):
        ordered = sorted(pair, key=names.__getitem__)
        for part in parts:
            rng = stream(seed, "part", *(names[k] for k in ordered), str(part))
            numbers = [max(2, round(part * blocks[k].shape[0])) for k in ordered]
            used = [documents[k] * n / blocks[k].shape[0] for k, n in zip(ordered, numbers, strict=True)]
            found = np.full((repeats, 3), np.nan)
            for r in range(repeats):
                a, b = (
                    blocks[k][np.sort(rng.permutation(blocks[k].shape[0])[:n])]
                    for k, n in zip(ordered, numbers, strict=True)
                )
                found[r, 0] = divergences(np.stack([_share(a), _share(b)]))[Measure.JS][0, 1]
                found[r, 2] = js_of_domains(a, b)
                if has_like(numbers, used):
                    null = pair_null(a, b, (used[0], used[1]), draws=2, rng=rng, **options)
                    found[r, 1] = null[Measure.JS][0].mean()
            raw, null_mean, value = found.mean(0)
            records.append(
                {
                    "first": pair[0], "second": pair[1], "part": part, "documents": round(sum(used)), "raw": raw,
                    "raw_low": found[:, 0].min(), "raw_high": found[:, 0].max(), "null_mean": null_mean,
                    "value": value,
                }
            )  # fmt: skip
        progress("sizes", done, len(pairs))
    return records


def _share(blocks: sparse.csr_array) -> np.ndarray:
    return shares(blocks, np.ones((1, blocks.shape[0])))[0]
