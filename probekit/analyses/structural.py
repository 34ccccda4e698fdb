"""Structural probes on each layer of caches: the analysis of ``probekit structural``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.description import check_same
from probekit.activations.grouping import groups_of
from probekit.analyses.options import VectorOptions
from probekit.analyses.trees import Treebank, treebank
from probekit.analyses.vectors import columns_of, read_of
from probekit.errors import UsageError
from probekit.probes.trees.fit import Trees, fit, predict
from probekit.probes.trees.gold import chain, depths, distances, sentences
from probekit.probes.trees.options import StructuralOptions
from probekit.probes.trees.scores import mean_over_lengths, root_hits, spearman, uuas_counts
from probekit.public import public
from probekit.rows import Result, make_rows
from probekit.runtime import Progress, no_progress
from probekit.tasks.load import load_task
from probekit.tasks.task import Task

__all__ = ["structural"]

SAME = ("task", "kind", "label_names", "random_weights", "weights_digest", "tokenizer_digest", "cut_at", "tokens")


@public(vectors=VectorOptions, options=StructuralOptions)
def structural(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    task: str | Task | None = None,
    data_dir: str | Path | None = None,
    vectors: VectorOptions,
    options: StructuralOptions,
    progress: Progress = no_progress,
) -> Result:
    """Fit structural probes on each layer: maps under which the distances of words are those in their tree.

    One map is fitted to the distances and one to the depths of words (Hewitt & Manning 2019); words are the means of
    their pieces. Punctuation is not counted in the scores of edges and roots.

    Parameters
    ----------
    train, dev : path or ActivationCache
        Caches of a task that labels the relation of each word to its head, such as ``ud-relations``.
    *more : path or ActivationCache
        Further pairs, train and dev alternating, whose rows follow; such as those of random weights.
    task, data_dir : str or Task, and path, optional
        For caches of the sentences of several tasks: the task with the relations, and the folder of its files.
    vectors : VectorOptions
        ``layers`` and ``groups``; each may be given as a keyword.
    options : StructuralOptions
        ``ranks``, ``controls``, ``epochs``, ``seed`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        For each layer and rank: "uuas", the share of the undirected edges of gold trees in the minimum spanning trees
        of predicted distances; "distance-spearman" and "depth-spearman", Spearman's coefficient over the words of
        sentences of 5 to 50 words, averaged by length; "root-accuracy"; each with an interval over groups of sentences.
        Rows of the target "shuffled" are probes of trees of other sentences of the same length; the estimator
        "linear-chain" is the tree in which each word hangs on the one before. There are no predictions.

    Raises
    ------
    UsageError
        If a cache has no heads of words, or for an unknown layer.
    DataError
        If a sentence is not a tree.
    CacheMismatch
        If the two caches of a pair do not match.

    References
    ----------
    Hewitt & Manning 2019, A Structural Probe for Finding Syntax in Word Representations, sections 2 to 4.

    Examples
    --------
    >>> result = probekit.structural("ud.train.h5", "ud.dev.h5", ranks=(32, 64))  # doctest: +SKIP
    """
    caches = (train, dev, *more)
    if len(caches) % 2:
        raise UsageError(f"caches must be given in pairs, TRAIN.h5 DEV.h5; {len(caches)} were given.")
    if vectors.pooling is not None or vectors.span is not None:
        raise UsageError("structural probes read the means of the pieces of words; leave out pooling and span.")
    of_task = load_task(task, data_dir) if isinstance(task, str) else task
    records: list[dict[str, Any]] = []
    reads = []
    with ExitStack() as stack:
        for pair in zip(caches[::2], caches[1::2], strict=True):
            a, b = (c if isinstance(c, ActivationCache) else stack.enter_context(ActivationCache(c)) for c in pair)
            reads += [read_of(a), read_of(b)]
            if of_task is not None:
                a, b = (c.for_task(of_task, c.spec["split"]) for c in (a, b))
            check_same(a, b, SAME)
            records += _of_pair(a, b, vectors, options, progress)
    return Result(make_rows(records), reads=tuple(reads))


@dataclass(frozen=True, slots=True)
class _Gold:
    """Distances and depths of each sentence, its root, and which of its words are counted."""

    distance: list[np.ndarray]
    depth: list[np.ndarray]
    root: list[int]
    counted: list[np.ndarray]

    @classmethod
    def of(cls, bank: Treebank, heads: np.ndarray) -> _Gold:
        found = [heads[rows] for rows in sentences(bank.length)]
        roots = [int(np.flatnonzero(one == 0)[0]) for one in found]
        counted = [bank.counted[rows] for rows in sentences(bank.length)]
        return cls([distances(one) for one in found], [depths(one) for one in found], roots, counted)


def _of_pair(
    train: ActivationCache, dev: ActivationCache, vectors: VectorOptions, options: StructuralOptions, progress: Progress
) -> Iterator[dict[str, Any]]:
    banks = [treebank(cache, vectors.layers) for cache in (train, dev)]
    groups = groups_of(dev, vectors.groups)
    of = banks[1].example if groups.of is None else groups.of[banks[1].example]
    about = {
        "analysis": "structural", **columns_of(dev, "mean"), **groups.columns, "seed": options.seed,
        "n": len(banks[1].length), "n_train": len(banks[0].length), "target": "gold", "draw": None,
    }  # fmt: skip
    measure = _Measure(banks[1].length, of, options)
    golds = [[_Gold.of(bank, heads) for heads in _targets(bank, options)] for bank in banks]
    base = {**about, "layer": None, "representation": "none", "estimator": "linear-chain"}
    lines = [chain(int(n)) for n in banks[1].length]
    yield from (base | row for row in measure.rows(lines, [line[0] for line in lines], golds[1][0]))
    done, work = 0, len(banks[0].layers) * len(golds[0])
    progress("structural", done, work)
    for name in banks[0].layers:
        x, x_dev = (bank.layers[name]() for bank in banks)
        ranks = tuple(dict.fromkeys(min(rank, x.shape[1]) for rank in options.ranks))
        for i, (gold, gold_dev) in enumerate(zip(*golds, strict=True)):
            trees = [Trees(banks[0].length, its) for its in (gold.distance, gold.depth)]
            kinds = [fit(x, one, ranks, options=options.fit) for one in trees]
            for rank, probes in zip(ranks, zip(*kinds, strict=True), strict=True):
                distance, depth = (predict(probe, x_dev, banks[1].length) for probe in probes)
                target = {"target": "shuffled", "draw": i - 1} if i else {}
                more = {"layer": name, "estimator": "structural", "rank": rank, **target}
                yield from (about | more | row for row in measure.rows(distance, depth, gold_dev))
            done += 1
            progress("structural", done, work)


def _targets(bank: Treebank, options: StructuralOptions) -> Iterator[np.ndarray]:
    """The heads of the trees, then for each control those of other sentences of the same length."""
    yield bank.heads
    start = np.cumsum(bank.length) - bank.length
    for draw in range(options.controls):
        rng, heads = np.random.default_rng((options.seed, draw)), bank.heads.copy()
        for n in np.unique(bank.length):
            same = np.flatnonzero(bank.length == n)
            for into, source in zip(same, rng.permutation(same), strict=True):
                heads[start[into] : start[into] + n] = bank.heads[start[source] : start[source] + n]
        yield heads


@dataclass(frozen=True, slots=True)
class _Measure:
    """Scores of the sentences of dev, with intervals from resampled groups of sentences."""

    length: np.ndarray
    groups: np.ndarray
    options: StructuralOptions

    def rows(
        self, distance: Sequence[np.ndarray], depth: Sequence[np.ndarray], gold: _Gold
    ) -> Iterator[dict[str, Any]]:
        edges = [uuas_counts(*one) for one in zip(distance, gold.distance, gold.counted, strict=True)]
        roots = [
            (root_hits(d, root, counted), bool(counted[root]))
            for d, root, counted in zip(depth, gold.root, gold.counted, strict=True)
        ]
        for name, counts, by_length in (
            ("uuas", edges, False),
            ("distance-spearman", spearman(distance, gold.distance), True),
            ("root-accuracy", roots, False),
            ("depth-spearman", spearman(depth, gold.depth), True),
        ):
            sums = np.asarray(counts, dtype=np.float64)
            value = self._value(sums, np.ones(len(sums)), by_length=by_length)
            low, high = self._interval(sums, by_length=by_length)
            yield {"metric": name, "value": value, "ci_low": low, "ci_high": high}

    def _value(self, sums: np.ndarray, weights: np.ndarray, *, by_length: bool) -> float:
        weighted = sums * weights[:, None]
        if by_length:
            return mean_over_lengths(weighted, self.length)
        hits, total = weighted.sum(0)
        return float(hits / total) if total else float("nan")

    def _interval(self, sums: np.ndarray, *, by_length: bool) -> tuple[float, float]:
        """Percentiles of the score of resampled groups; missing with fewer than 5 groups."""
        code = np.unique(self.groups, return_inverse=True)[1].reshape(-1)
        units = int(code.max()) + 1
        if not self.options.resamples or units < 5:
            return float("nan"), float("nan")
        rng = np.random.default_rng(self.options.seed)
        drawn = rng.multinomial(units, np.full(units, 1 / units), size=self.options.resamples)
        values = [self._value(sums, weights[code].astype(float), by_length=by_length) for weights in drawn]
        tail = (1 - self.options.level) / 2
        low, high = np.nanquantile(values, [tail, 1 - tail])
        return float(low), float(high)
