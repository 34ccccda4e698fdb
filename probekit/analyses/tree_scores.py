"""How well predicted trees agree with gold trees, by sentence, and the intervals of the scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.analyses.trees import Treebank
from probekit.probes.trees.arcs import Parse
from probekit.probes.trees.gold import depths, distances, sentences
from probekit.probes.trees.options import StructuralOptions
from probekit.probes.trees.scores import mean_over_lengths, root_hits, spearman, tree_edges

__all__ = ["Gold", "Intervals", "Scores", "Sums"]

Sums = Mapping[str, np.ndarray]
"""By metric: float64 (s, 2), of each sentence what is right, and of how many."""
BY_LENGTH = ("distance-spearman", "depth-spearman")
"""Metrics that are averaged by the length of sentences."""
FEWEST = 5  # with fewer groups, no interval has its nominal coverage


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

    def of_distances(self, found: Sequence[np.ndarray], distance: Sequence[np.ndarray]) -> Sums:
        """UUAS and Spearman's coefficient; ``found`` as returned by :meth:`found`."""
        return {"uuas": _counts(found), "distance-spearman": spearman(distance, self.gold.distance)}

    def of_depths(self, depth: Sequence[np.ndarray]) -> Sums:
        """Root accuracy, where the root is no punctuation, and Spearman's coefficient."""
        roots = [int(np.argmin(one)) for one in self.gold.depth]
        every = zip(depth, roots, self._counted(self.bank), strict=True)
        hits = [(root_hits(d, root, some), some[root]) for d, root, some in every]
        return {"root-accuracy": np.array(hits, dtype=float), "depth-spearman": spearman(depth, self.gold.depth)}

    def of_heads(self, heads: np.ndarray) -> Sums:
        """UAS: the share of words that are no punctuation whose head is right; heads int64 (t,)."""
        return {"uas": self._share(heads == self.gold.heads, self.bank.counted)}

    def of_parse(self, parse: Parse, found: Sequence[np.ndarray]) -> Sums:
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
    """Rows of scores, with intervals from resampled groups of sentences; the draws are the same for all scores.

    Parameters
    ----------
    length, groups : np.ndarray
        Int (s,), the words of each sentence, and its group.
    options : StructuralOptions
        ``resamples``, ``level`` and ``seed``.
    """

    def __init__(self, length: np.ndarray, groups: np.ndarray, options: StructuralOptions) -> None:
        self.length, self.options = length, options
        group = np.unique(groups, return_inverse=True)[1].reshape(-1)
        units = int(group.max()) + 1
        rng, some = np.random.default_rng(options.seed), options.resamples if units >= FEWEST else 0
        self.weights = rng.multinomial(units, np.full(units, 1 / units), size=some).astype(float)[:, group]

    def rows(self, scores: Sums) -> Iterator[dict[str, Any]]:
        """A row for each metric: its value, and percentiles of that of resampled groups."""
        tail = (1 - self.options.level) / 2
        for name, sums in scores.items():
            value = self._values(name, sums, np.ones((1, len(sums))))[0]
            again = self._values(name, sums, self.weights)
            known = len(again) > 0 and np.isfinite(value)
            low, high = np.nanquantile(again, [tail, 1 - tail]) if known else (np.nan, np.nan)
            yield {"metric": name, "value": float(value), "ci_low": float(low), "ci_high": float(high)}

    def _values(self, name: str, sums: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The score for each vector of weights of the sentences, (w, s)."""
        if name in BY_LENGTH:
            return mean_over_lengths(sums, self.length, weights)
        hits, total = (weights @ sums).T
        with np.errstate(invalid="ignore"):
            return np.asarray(hits / total)
