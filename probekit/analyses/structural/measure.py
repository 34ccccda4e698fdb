"""Structural probes on each layer of caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.description import check_same
from probekit.activations.grouping import groups_of
from probekit.analyses.cards import card_of, check_keep, check_work, shared_card
from probekit.analyses.features import without_dictionary
from probekit.analyses.options import VectorOptions
from probekit.analyses.structural.scores import BySentence, Gold, Intervals, Scores
from probekit.analyses.structural.trees import Treebank, treebank
from probekit.analyses.train_dev import Pairs
from probekit.analyses.vectors import columns_of
from probekit.errors import UsageError
from probekit.monitors.probe import Probe, save_probes
from probekit.notes import logger
from probekit.probes.kept import of_trees
from probekit.probes.trees.arcs import fit_arcs, parse
from probekit.probes.trees.fit import StructuralProbe, Trees, fit, predict
from probekit.probes.trees.gold import chain, distances, sentences
from probekit.probes.trees.options import StructuralOptions
from probekit.rows import Result, make_fits, make_rows
from probekit.rows.schema import layer_labels
from probekit.runtime import Progress, part_of
from probekit.statistics.comparisons import Null, difference_columns, paired
from probekit.statistics.options import CompareOptions, Over
from probekit.statistics.predictions import Predictions, by_split
from probekit.tasks.task import Task

log = logger(__name__)

CHAIN = "linear-chain"
"""The estimator of the tree in which each word hangs on the one before."""
SAME = ("task", "kind", "label_names", "random_weights", "weights_digest", "tokenizer_digest", "cut_at", "tokens")


def measure(
    caches: Pairs,
    task: str | Task | None,
    data_dir: str | Path | None,
    keep: Path | None,
    vectors: VectorOptions,
    options: StructuralOptions,
    progress: Progress,
) -> Result:
    """The rows and predictions of :func:`probekit.structural`."""
    without_dictionary(vectors, "structural")
    if vectors.pooling is not None or vectors.span is not None:
        raise UsageError("structural probes read the means of the pieces of words; leave out pooling and span.")
    check_keep(keep, caches.count)
    tables, kept = list[_Table](), list[Probe]()
    with caches:
        for i, pair in enumerate(caches.opened(task, data_dir)):
            check_same(*pair, SAME)
            check_work(keep, pair[0], pair[0].layer_names(vectors.layers))
            tables.append(_of_pair(*pair, vectors, options, part_of(progress, i, caches.count)))
            kept += _probes(pair, tables[-1], options)
    found = by_split(table.predictions() for table in tables)
    beside = [row for one in found for row in _beside_the_chain(one, options)]
    rows = make_rows([*(row for table in tables for row in table.rows), *beside])
    if keep is not None:
        save_probes(kept, keep)
    return Result(rows, tuple(found), reads=tuple(caches.reads), probes=tuple(kept))


def _probes(
    caches: tuple[ActivationCache, ActivationCache], table: _Table, options: StructuralOptions
) -> Iterator[Probe]:
    """The probe of each layer with its card: of several ranks that with the lowest loss on held-out sentences."""
    rows = make_rows(table.rows)
    vectors = {"representation": "mean", "words": True, "spans": False, "span": None}
    shared = shared_card(caches, vectors, options, classes=[])
    for layer, ranks in table.kept.items():
        rank, (distance, depth) = min(ranks.items(), key=lambda one: min(one[1][0].losses))
        own = rows[(layer_labels(rows) == layer) & (rows["rank"] == rank)]
        gold = own["target"] == "gold"
        means = own[~gold].groupby("metric")["value"].mean()
        measured = own[gold].assign(null_mean=own.loc[gold, "metric"].map(means))
        yield Probe(of_trees(distance, depth), card_of(layer, shared, measured) | {"rank": rank})


def _beside_the_chain(e: Predictions, options: StructuralOptions) -> Iterator[dict[str, Any]]:
    """The edges that each probe finds minus those of the linear chain of the same sentences, all as one family."""
    source = e.fits["source"].to_numpy() if "source" in e.fits else np.zeros(len(e), dtype=int)
    is_chain = (e.fits["estimator"] == CHAIN).to_numpy(dtype=bool)
    references = {source[f]: [int(f)] for f in np.flatnonzero(is_chain)}
    fits = np.flatnonzero(~is_chain)
    if not options.resamples or not len(fits):
        return
    how = CompareOptions(resamples=options.resamples, level=options.level, seed=options.seed, family=Over.TASK)
    told = paired(e, [(int(f), references[source[f]]) for f in fits], "uuas", options=how)
    for k, f in enumerate(fits):
        of: dict[Any, Any] = e.fits.iloc[f].drop(labels="source", errors="ignore").to_dict()
        yield of | {"against": "linear chain"} | difference_columns(told, k, "uuas", Null.EXCHANGEABLE, how)


def _of_pair(
    train: ActivationCache, dev: ActivationCache, vectors: VectorOptions, options: StructuralOptions, progress: Progress
) -> _Table:
    banks = [treebank(cache, vectors.layers) for cache in (train, dev)]
    groups = groups_of(dev, vectors.groups)
    example = banks[1].example
    about = {
        "analysis": "structural", **columns_of(dev, "mean"), **groups.columns, "seed": options.seed,
        "target": "gold", "draw": None,
    }  # fmt: skip
    of = example if groups.of is None else groups.of[example]
    sets = [_Set.of(banks, [np.arange(len(bank.heads)) for bank in banks], of, options)]
    sets += _controls(banks, of, options, str(dev.path))
    table = _Table(about, banks[1].length, sets[0].score.edges, dev.ids[example], of)
    table.add({"layer": None, "representation": "none", "estimator": CHAIN}, *_chain(sets[0], options), sets[0])
    done, work = 0, len(banks[0].layers) * len(sets)
    progress("ranks", done, work)
    for name in banks[0].layers:
        x = [bank.layers[name]() for bank in banks]
        for draw, one in enumerate(sets):
            control = {"target": "shuffled", "draw": draw - 1} if draw else {}
            keep = {} if draw else table.kept.setdefault(name, {})
            words = [of[words] for of, words in zip(x, one.words, strict=True)]
            for kind, sums, found in _fits(words, one, options, keep):
                table.add({"layer": name, **kind, **control}, sums, found, one)
            done += 1
            progress("ranks", done, work)
    return table


@dataclass(frozen=True, slots=True)
class _Set:
    """Sentences of train and of dev with their trees, or those of a control.

    Attributes
    ----------
    banks : list[Treebank]
        The sentences.
    words : list[np.ndarray]
        Bool, which words of all sentences are in them.
    gold : Gold
        The trees of train.
    score : Scores
        Against the trees of dev.
    intervals : Intervals
        Of scores on dev.
    """

    banks: list[Treebank]
    words: list[np.ndarray]
    gold: Gold
    score: Scores
    intervals: Intervals

    @classmethod
    def of(
        cls,
        banks: Sequence[Treebank],
        orders: Sequence[np.ndarray],
        groups: np.ndarray,
        options: StructuralOptions,
        kept: Sequence[np.ndarray] | None = None,
    ) -> _Set:
        """``orders``: for each word of the kept sentences (default: all) the word whose place in a tree it gets."""
        kept = [np.ones(len(bank.length), dtype=bool) for bank in banks] if kept is None else kept
        some = [bank.some(one) for bank, one in zip(banks, kept, strict=True)]
        gold = [Gold.of(bank, order) for bank, order in zip(some, orders, strict=True)]
        return cls(
            some,
            [np.repeat(one, bank.length) for bank, one in zip(banks, kept, strict=True)],
            gold[0],
            Scores.of(some[1], gold[1]),
            Intervals(some[1].length, groups[kept[1]], options),
        )


def _controls(banks: Sequence[Treebank], groups: np.ndarray, options: StructuralOptions, where: str) -> Iterator[_Set]:
    """The sentences whose length others have, with the trees of these in the place of their own."""
    if not options.controls:
        return
    kept = [np.isin(bank.length, _repeated(bank.length)) for bank in banks]
    if not all(some.any() for some in kept):
        log.warning("%s: there are no shuffled trees, because no two sentences have the same length.", where)
        return
    orders = [_orders(bank.length[some], options) for bank, some in zip(banks, kept, strict=True)]
    for pair in zip(*orders, strict=True):
        yield _Set.of(banks, pair, groups, options, kept)


def _repeated(length: np.ndarray) -> np.ndarray:
    number, count = np.unique(length, return_counts=True)
    return number[count > 1]


def _orders(length: np.ndarray, options: StructuralOptions) -> Iterator[np.ndarray]:
    """For each control, the words of another sentence of the same length in the place of those of each."""
    words, start = np.arange(int(length.sum())), np.cumsum(length) - length
    for draw in range(options.controls):
        rng, order = np.random.default_rng((options.seed, draw)), words.copy()
        for n in np.unique(length):
            same = rng.permutation(np.flatnonzero(length == n))  # each gets the tree of the next one
            order[start[same][:, None] + np.arange(n)] = start[np.roll(same, -1)][:, None] + np.arange(n)
        yield order


def _chain(whole: _Set, options: StructuralOptions) -> tuple[BySentence, list[np.ndarray]]:
    """Scores of the trees in which each word hangs on the one before; as heads on the one after, if train says so."""
    banks, score = whole.banks, whole.score
    lines = [chain(int(n)) for n in banks[1].length]
    found = score.found(lines)
    sums = {**score.of_distances(found, lines), **score.of_depths([line[0] for line in lines])}
    if options.arcs:
        before, after = ([_heads_in_line(bank.length, after=after) for bank in banks] for after in (False, True))
        heads = max(before, after, key=lambda line: int(((line[0] == banks[0].heads) & banks[0].counted).sum()))
        sums |= score.of_heads(heads[1])
    return sums, found


def _heads_in_line(length: np.ndarray, *, after: bool) -> np.ndarray:
    """The heads of chains: each word hangs on the one before, or after."""
    place = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length) + 1
    return np.asarray((place + 1) * (place < np.repeat(length, length)) if after else place - 1)


def _fits(
    x: Sequence[np.ndarray], of: _Set, options: StructuralOptions, keep: dict[int, tuple[StructuralProbe, ...]]
) -> Iterator[tuple[dict[str, Any], BySentence, list[np.ndarray]]]:
    """For each probe of a layer: what it is, its scores by sentence, and the gold edges of each sentence it finds.

    ``keep`` gets the probes of distances and of depths by rank.
    """
    banks, gold, score = of.banks, of.gold, of.score
    length, length_dev = (bank.length for bank in banks)
    ranks = tuple(dict.fromkeys(min(rank, x[0].shape[1]) for rank in options.ranks))
    kinds = [fit(x[0], Trees(length, its), ranks, options=options.fit) for its in (gold.distance, gold.depth)]
    for rank, probes in zip(ranks, zip(*kinds, strict=True), strict=True):
        keep[rank] = probes
        distance, depth = (predict(probe, x[1], length_dev) for probe in probes)
        found = score.found(distance)
        sums = {**score.of_distances(found, distance), **score.of_depths(depth)}
        about = {"estimator": f"structural-{rank}", "rank": rank, "held_out": min(probes[0].losses)}
        yield about, sums, found
    if options.arcs:
        names = len(banks[0].names)
        biaffine = fit_arcs(x[0], gold.heads, gold.relations, length, names, options=options.biaffine)
        said = parse(biaffine, x[1], length_dev, heads=score.gold.heads)
        found = score.found([distances(said.heads[rows]) for rows in sentences(length_dev)])
        yield {"estimator": "biaffine", "held_out": min(biaffine.losses)}, score.of_parse(said, found), found


@dataclass(slots=True)
class _Table:
    """The rows of a pair of caches, and for gold trees each probe, by layer and rank, and the edges that it finds."""

    about: dict[str, Any]
    length: np.ndarray
    edges: list[np.ndarray]
    ids: np.ndarray
    groups: np.ndarray
    rows: list[dict[str, Any]] = field(default_factory=list)
    fits: list[dict[str, Any]] = field(default_factory=list)
    found: list[np.ndarray] = field(default_factory=list)
    kept: dict[str, dict[int, tuple[StructuralProbe, ...]]] = field(default_factory=dict)

    def add(self, kind: dict[str, Any], sums: BySentence, found: Sequence[np.ndarray], of: _Set) -> None:
        n_train, n = (len(bank.length) for bank in of.banks)
        fitted = {**self.about, "n": n, "n_train": n_train, **kind}
        self.rows += [fitted | row for row in of.intervals.rows(sums)]
        if fitted["target"] == "gold":
            self.fits.append(fitted)
            self.found.append(np.concatenate(found))

    def predictions(self) -> Predictions:
        """An example is an edge of a gold tree, called after its sentence and words; it is found (1) or not (0)."""
        number, count = self.length, [len(its) for its in self.edges]
        ids = [
            f"{name}:{code // n + 1}-{code % n + 1}"
            for name, n, codes in zip(self.ids, number, self.edges, strict=True)
            for code in codes
        ]
        found = np.stack(self.found).astype(np.int64)
        return Predictions(
            make_fits(self.fits), np.array(ids), np.ones(len(ids), dtype=np.int64), found, ("uuas",),
            np.repeat(self.groups, count), label_names=("missing", "found"),
        )  # fmt: skip
