"""How well predicted trees agree with gold trees, by sentence, and the intervals of the scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.analyses.structural.trees import Treebank
from probekit.probes.trees.arcs import Parse
from probekit.probes.trees.gold import depths, distances, sentences
from probekit.probes.trees.options import StructuralOptions
from probekit.probes.trees.scores import LENGTHS, mean_over_lengths, root_hits, spearman, tree_edges
from probekit.statistics.bootstrap import FEWEST, bounds, by_spread

BySentence = Mapping[str, np.ndarray]
"""By metric: float64 (s, 2), of each sentence what is right, and of how many."""
BY_LENGTH = ("distance-spearman", "depth-spearman")
"""Metrics that are averaged by the length of sentences."""


@dataclass(frozen=True, slots=True)
class Gold:
    """The trees of the sentences of a treebank, or those of a control in their place.

    Attributes
    ----------
    heads, relations : np.ndarray
        int64 (t,), as in a treebank.
    distance, depth : list[np.ndarray]
        Of each sentence, int64 (n, n) and (n,).
    """

    heads: np.ndarray
    relations: np.ndarray
    distance: list[np.ndarray]
    depth: list[np.ndarray]

    @classmethod
    def of(cls, bank: Treebank, order: np.ndarray) -> Gold:
        """``order`` (t,): for each word the word whose place in a tree it gets."""
        heads, relations = bank.heads[order], bank.relations[order]
        trees = [heads[rows] for rows in sentences(bank.length)]
        return cls(heads, relations, [distances(one) for one in trees], [depths(one) for one in trees])


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of predictions for sentences, against gold trees.

    Attributes
    ----------
    bank : Treebank
        The sentences.
    gold : Gold
        Their trees.
    edges : list[np.ndarray]
        Of each sentence, the edges of the minimum spanning tree of gold distances of counted words; see
        :func:`probekit.probes.trees.scores.tree_edges`.
    """

    bank: Treebank
    gold: Gold
    edges: list[np.ndarray]

    @classmethod
    def of(cls, bank: Treebank, gold: Gold) -> Scores:
        edges = [tree_edges(d, some) for d, some in zip(gold.distance, cls._counted(bank), strict=True)]
        return cls(bank, gold, edges)

    @staticmethod
    def _counted(bank: Treebank) -> Iterator[np.ndarray]:
        return (bank.counted[rows] for rows in sentences(bank.length))

    def found(self, distance: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Of each sentence, which of its gold edges the minimum spanning tree of these distances has; bool."""
        said = map(tree_edges, distance, self._counted(self.bank))
        return [np.isin(true, its) for true, its in zip(self.edges, said, strict=True)]

    def of_distances(self, found: Sequence[np.ndarray], distance: Sequence[np.ndarray]) -> BySentence:
        """UUAS and Spearman's coefficient; ``found`` as returned by :meth:`found`."""
        return {"uuas": _counts(found), "distance-spearman": spearman(distance, self.gold.distance)}

    def of_depths(self, depth: Sequence[np.ndarray]) -> BySentence:
        """Root accuracy, where the root is no punctuation, and Spearman's coefficient."""
        roots = [int(np.argmin(one)) for one in self.gold.depth]
        every = zip(depth, roots, self._counted(self.bank), strict=True)
        hits = [(root_hits(d, root, some), some[root]) for d, root, some in every]
        return {"root-accuracy": np.array(hits, dtype=float), "depth-spearman": spearman(depth, self.gold.depth)}

    def of_heads(self, heads: np.ndarray) -> BySentence:
        """UAS: the share of words that are no punctuation whose head is right; heads int64 (t,)."""
        return {"uas": self._share(heads == self.gold.heads, self.bank.counted)}

    def of_parse(self, parse: Parse, found: Sequence[np.ndarray]) -> BySentence:
        """UUAS, UAS, LAS, and the share of right relations of gold arcs."""
        assert parse.given is not None  # gold heads were given
        known = self.bank.counted & (self.gold.relations >= 0)
        labelled = (parse.heads == self.gold.heads) & (parse.relations == self.gold.relations)
        given = self._share(parse.given == self.gold.relations, known & (self.gold.heads > 0))
        las = self._share(labelled, known)
        return {"uuas": _counts(found), **self.of_heads(parse.heads), "las": las, "relation-accuracy": given}

    def _share(self, right: np.ndarray, of: np.ndarray) -> np.ndarray:
        start = np.cumsum(self.bank.length) - self.bank.length
        return np.stack([np.add.reduceat(x.astype(float), start) for x in (right & of, of)], axis=1)


def _counts(found: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([(one.sum(), len(one)) for one in found], dtype=float)


class Intervals:
    """Rows of scores, with intervals over groups of sentences; the draws are the same for all scores.

    Parameters
    ----------
    length, groups : np.ndarray
        Int (s,), the words of each sentence, and its group.
    options : StructuralOptions
        ``resamples``, ``level`` and ``seed``.
    """

    def __init__(self, length: np.ndarray, groups: np.ndarray, options: StructuralOptions) -> None:
        self.length, self.options = length, options
        self.group = np.unique(groups, return_inverse=True)[1].reshape(-1)
        self.units = int(self.group.max()) + 1
        rng, some = np.random.default_rng(options.seed), options.resamples if self.units >= FEWEST else 0
        drawn = rng.multinomial(self.units, np.full(self.units, 1 / self.units), size=some)
        self.weights = drawn.astype(float)[:, self.group]

    def rows(self, scores: BySentence) -> Iterator[dict[str, Any]]:
        """A row for each metric: its value and interval, and ``why`` if there is none.

        Shares (of edges, roots, heads) have the interval of accuracy, of hits in groups
        (:func:`probekit.statistics.bootstrap.bounds`); means of Spearman's coefficients that of a correlation.
        """
        for name, sums in scores.items():
            value, (low, high), why = (self._of_ranks if name in BY_LENGTH else self._of_counts)(sums)
            row = {"metric": name, "value": float(value), "ci_low": float(low), "ci_high": float(high)}
            yield row | ({"why": why} if why else {})

    def _of_counts(self, sums: np.ndarray) -> tuple[float, np.ndarray, str]:
        """The share that is right: value, interval, and why there is none."""
        hits, total = sums.astype(np.int64).T
        start = np.cumsum(total) - total
        right = np.arange(int(total.sum())) - np.repeat(start, total) < np.repeat(hits, total)
        if not len(right):
            return np.nan, np.full(2, np.nan), "nothing counts in these sentences"
        of, (some, level, seed) = np.repeat(self.group, total), self._resampling
        found = bounds(np.ones(len(right)), right[None], "accuracy", groups=of, resamples=some, level=level, seed=seed)
        return found.value[0], found.ci[0], str(found.why[0])

    def _of_ranks(self, sums: np.ndarray) -> tuple[float, np.ndarray, str]:
        """The mean of coefficients over lengths: value, interval, and why there is none."""
        value, again = (mean_over_lengths(sums, self.length, w) for w in (None, self.weights))
        if not len(again):
            few = f"{self.units} groups; intervals need at least {FEWEST}" if self.options.resamples else ""
            return value[0], np.full(2, np.nan), few
        if not np.isfinite(value[0]):
            return value[0], np.full(2, np.nan), "no sentence has 5 to 50 words"
        if np.ptp(again[np.isfinite(again)]) < 1e-9:
            return value[0], np.full(2, np.nan), "all sentences have the same value"
        ends = by_spread("spearman", value, again[None], self.options.level, self._influence(sums)[None])
        return value[0], ends[0], ""

    def _influence(self, sums: np.ndarray) -> np.ndarray:
        """What each group adds to the mean of coefficients over lengths, (groups,)."""
        some = (self.length >= LENGTHS[0]) & (self.length <= LENGTHS[1]) & (sums[:, 1] > 0)
        total, number = (np.bincount(self.length[some], column[some]) for column in sums.T)
        of = self.length[some]
        away = (sums[some, 0] - total[of] / number[of] * sums[some, 1]) / number[of]
        return np.bincount(self.group[some], away, minlength=self.units) / len(np.unique(of))

    @property
    def _resampling(self) -> tuple[int, float, int]:
        return self.options.resamples, self.options.level, self.options.seed
