"""Similarity of all pairs of layers of two models: values, chance level, p and intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.runtime import Progress, no_progress
from probekit.similarity.chance import judged
from probekit.similarity.features import Layers, read
from probekit.similarity.kernel_measures import LINEAR, cosine
from probekit.similarity.matrices import linear
from probekit.similarity.options import SimilarityOptions
from probekit.similarity.orders import Exchange, choose_rows, exchange
from probekit.similarity.products import Map, correlated, products, workers

__all__ = ["PairValues", "layer_pairs"]

FEWEST = 4  # examples: the debiased statistics divide by n - 3


@dataclass(frozen=True, eq=False, slots=True)
class PairValues:
    """One measure of all pairs of layers; arrays are float64 (layers a, layers b), NaN where there is no number.

    Attributes
    ----------
    value : ndarray
        The measure.
    ci_low, ci_high : ndarray
        Bootstrap interval over the examples, or clusters.
    null_mean, null_sd, null_high : ndarray
        Mean, standard deviation and 97.5 % quantile of the measure if the examples of one side are permuted (2.5 % for
        a distance).
    p, p_adjusted : ndarray
        One-sided: as similar, or more, by chance; adjusted for all pairs (largest standardised value).
    calibrated : ndarray
        0 at the mean of the permutations, 1 for equal layers.
    draws, n : int
        Number of permutations and of examples used.
    notes : tuple of str
        What a reader has to know of these numbers.
    """

    value: np.ndarray
    ci_low: np.ndarray
    ci_high: np.ndarray
    null_mean: np.ndarray
    null_sd: np.ndarray
    null_high: np.ndarray
    p: np.ndarray
    p_adjusted: np.ndarray
    calibrated: np.ndarray
    draws: int
    n: int
    notes: tuple[str, ...] = ()


def layer_pairs(
    a: Sequence[Callable[[], Any]],
    b: Sequence[Callable[[], Any]] | None = None,
    *,
    options: SimilarityOptions | None = None,
    groups: np.ndarray | None = None,
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
    n = _rows(a, b, groups)
    rng = np.random.default_rng(options.seed)
    codes = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if codes is not None and codes.max() == n - 1:
        codes = None  # each example is a cluster
    rows = choose_rows(n, codes, options.max_examples, rng)
    sides = read(a, rows), None if b is None else read(b, rows)
    places = exchange(None if codes is None else codes[rows], len(rows))
    with workers(options.threads) as run:
        return {name: _linear(name, sides[0], sides[1] or sides[0], places, options, run) for name in options.measures}


def _rows(a: Sequence[Callable[[], Any]], b: Sequence[Callable[[], Any]] | None, groups: np.ndarray | None) -> int:
    """The number of examples, the same for all layers."""
    counts = [source().shape[0] for side in (a, b or ()) for source in side]
    if not counts or (b is not None and not len(b)):
        raise UsageError("there are no layers to compare.")
    if len(set(counts)) > 1:
        raise UsageError(
            f"the layers have {min(counts):,} to {max(counts):,} examples; compare vectors of the same examples."
        )
    if groups is not None and len(groups) != counts[0]:
        raise UsageError(f"there are {counts[0]:,} examples, but groups of {len(groups):,}.")
    if counts[0] < FEWEST:
        raise UsageError(f"there are {counts[0]} examples; similarity needs at least {FEWEST}.")
    return counts[0]


def _linear(name: str, a: Layers, b: Layers, places: Exchange, options: SimilarityOptions, run: Map) -> PairValues:
    if name not in LINEAR:
        raise UsageError(f"{name} of all pairs of layers cannot be had yet; there are {', '.join(LINEAR)}.")
    ours = linear(a)
    theirs = ours if b is a else linear(b)
    draws = 1000 if options.permutations is None else options.permutations
    cycles = places.cycles(draws, np.random.default_rng(options.seed)) if draws else None
    found = products(ours, theirs, cycles, run)
    form, n = LINEAR[name], ours.n
    own = [
        form.total(n, p.sum(0), (m.vector**2).sum(1), m.vector.sum(1) ** 2)
        for p, m in ((found.aa, ours), (found.bb, theirs))
    ]
    sums = np.multiply.outer(ours.vector.sum(1), theirs.vector.sum(1))
    value = cosine(form.total(n, found.ab.sum(0), ours.vector @ theirs.vector.T, sums), *own)
    nan = np.full_like(value, np.nan)
    empty = PairValues(value, nan, nan, nan, nan, nan, nan, nan, nan, 0, n)
    if cycles is None or found.null is None:
        return empty
    null = cosine(form.total(n, found.null, correlated(ours.vector, theirs.vector, cycles), sums), *own)
    chance = judged(null)
    return replace(empty, **{k: getattr(chance, k) for k in chance.__slots__}, draws=cycles.draws)
