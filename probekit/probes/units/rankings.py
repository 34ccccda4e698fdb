"""Rankings of the units (columns) of a layer by what they say about the labels.

    weight               |weight of a linear probe| × standard deviation of the unit
    mean-difference      |difference of class means| / standard deviation within the classes
    max-mean-difference  |difference of class means|
    information          binned mutual information of the unit alone, less what shuffled labels give
    k-sparse             how long a ridge regression keeps the unit, where the least useful ones are removed
    elastic-net          how soon the unit is among those that hold a growing share of a class's weights

``max-mean-difference`` and ``k-sparse`` (adaptive thresholding) are rankings of Gurnee et al. (2023), "Finding Neurons
in a Haystack"; ``elastic-net`` is that of Dalvi et al. (2019), "What Is One Grain of Sand in the Desert?", as their
NeuroX computes it (``get_neuron_ordering``), with steps of a single unit. With more than two classes, a difference of
means is that of a class and all others, the largest one counts, and weights count by the root of their squares' sum.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

from probekit.probes.kept import Weights, one_line, weights_of
from probekit.probes.protocol.selection import Problem, refit
from probekit.probes.solvers import ksparse
from probekit.probes.solvers._path import class_moments

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

CS = (0.003, 0.01, 0.03, 0.1)
"""The inverse penalties C from which that of the elastic net is chosen."""
CELLS = 10
"""Cells of equal mass of a unit, and of numeric labels, for information."""


class Ranking(StrEnum):
    """How units are ranked."""

    WEIGHT = "weight"
    MEAN_DIFFERENCE = "mean-difference"
    MAX_MEAN_DIFFERENCE = "max-mean-difference"
    INFORMATION = "information"
    K_SPARSE = "k-sparse"
    ELASTIC_NET = "elastic-net"


@dataclass(frozen=True, slots=True)
class Ranked:
    """Units by a ranking.

    Attributes
    ----------
    score : np.ndarray
        float64 (d,). For two classes and for numbers, differences of means and weights have a sign: positive if larger
        activations speak for class 1, or for larger numbers. ``k-sparse``: the share of units that are removed before;
        ``elastic-net``: the share of the weights that is left when the unit is taken.
    order : np.ndarray
        Int (d,), the best first.
    count : int
        How many units say anything about the labels; those that stand behind them in the order do not.
    """

    score: np.ndarray
    order: np.ndarray
    count: int

    @classmethod
    def of(cls, score: np.ndarray, size: np.ndarray | None = None, *, rng: np.random.Generator | None = None) -> Ranked:
        """By ``size``, default that of the score; only what is above 0 counts.

        Equal units are in random order: another one in each half of the data, so that halves do not agree on units
        between which nothing decides. Without ``rng`` they are in the order of the units.
        """
        size = (np.abs(score) if size is None else size).clip(0)
        ties = np.arange(len(size)) if rng is None else rng.random(len(size))
        return cls(score, np.lexsort((ties, -size)), int((size > 0).sum()))


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a layer and the labels by which they are ranked.

    Attributes
    ----------
    problem : Problem
        Vectors (n, d), all rows labelled, with one label set; its estimator is that of ``weight``.
    setting : np.ndarray
        (1,), the penalty of ``weight``.
    c : float
        The inverse penalty of the elastic net; see :func:`chosen_c`.
    information : callable, optional
        Vectors (n, d) and the class, or cell of the number, of each row, to the information of each unit (d,).
    """

    problem: Problem
    setting: np.ndarray
    c: float = CS[-1]
    information: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    def ranked(self, by: Ranking, use: np.ndarray | None = None, y: np.ndarray | None = None) -> Ranked:
        """Rank the units.

        Parameters
        ----------
        by : Ranking
            How.
        use : np.ndarray, optional
            Bool (n,), the rows that count (default: all).
        y : np.ndarray, optional
            (n,), other labels, such as shuffled ones.
        """
        p = self.problem
        use = np.ones(len(p.rows), dtype=bool) if use is None else use
        y = p.y[0] if y is None else y
        x, own, rng = np.asarray(p.x[p.rows[use]], dtype=np.float32), y[use], _generator(p.seed, use)
        if by is Ranking.WEIGHT:
            fitted = refit(replace(p, y=y[None]), use, self.setting)
            return weight_times_spread(weights_of(fitted), x.std(0, dtype=np.float64), rng=rng)
        if by is Ranking.INFORMATION and self.information is not None:
            codes = own if p.classes else (rankdata(own, method="ordinal") - 1) * CELLS // len(own)
            score = self.information(x, codes.astype(np.int64))
            return Ranked.of(score, score, rng=rng)
        if by is Ranking.ELASTIC_NET:
            return by_mass(np.abs(elastic_net(standardised(x), own, self.c, seed=p.seed).coef_), rng)
        if by is Ranking.K_SPARSE:
            return _kept_longest(x, own, p.classes, rng)
        return Ranked.of(mean_differences(x, own, p.classes, scaled=by is Ranking.MEAN_DIFFERENCE), rng=rng)


def weight_times_spread(weights: Weights, spread: np.ndarray, *, rng: np.random.Generator | None = None) -> Ranked:
    """By the weights of a linear probe on standardised units.

    Parameters
    ----------
    weights : Weights
        A linear probe in the units of its vectors.
    spread : np.ndarray
        (d,), the standard deviation of each unit.
    rng : np.random.Generator, optional
        Of the order of equal units.
    """
    return by_lines((one_line(weights) if weights.outputs == 2 else weights).arrays["weight"], spread, rng=rng)


def by_lines(lines: np.ndarray, spread: np.ndarray, *, rng: np.random.Generator | None = None) -> Ranked:
    """By the weights of one logit, or of a logit of each class (lines, d), times the spread of each unit (d,)."""
    lines = lines.astype(np.float64) * spread
    if len(lines) == 1:
        return Ranked.of(lines[0], rng=rng)
    return Ranked.of(np.linalg.norm(lines - lines.mean(0), axis=0), rng=rng)  # logits are defined up to a common term


def mean_differences(x: np.ndarray, y: np.ndarray, classes: int, *, scaled: bool = True) -> np.ndarray:
    """The difference of the means of two classes, or with more the largest one of a class and all others, (d,).

    Divided by the deviation within the two. Of numbers (``classes`` 0) the correlation with each unit, or without
    ``scaled`` the covariance divided by the deviation of the numbers.
    """
    x = x.astype(np.float64)
    if not classes:
        target = (y - y.mean()) / y.std()
        found = target @ (x - x.mean(0)) / len(y)
        return found / _positive(x.std(0)) if scaled else found
    present, found = np.unique(y), np.zeros(x.shape[1])
    for c in present[1:] if len(present) == 2 else present:
        ours, others = x[y == c], x[y != c]
        gap = ours.mean(0) - others.mean(0)
        if scaled:
            within = (len(ours) * ours.var(0) + len(others) * others.var(0)) / len(y)
            gap = gap / _positive(np.sqrt(within))
        found = np.where(np.abs(gap) > np.abs(found), gap, found)
    return found if len(present) == 2 else np.abs(found)


def standardised(x: np.ndarray) -> np.ndarray:
    """Units of mean 0 and deviation 1; those that do not vary are 0."""
    return np.asarray((x - x.mean(0)) / _positive(x.std(0)))


def _positive(spread: np.ndarray) -> np.ndarray:
    """Spreads to divide by; that of a unit which does not vary is 1."""
    return np.where(spread > 0, spread, 1.0)


def _kept_longest(x: np.ndarray, y: np.ndarray, classes: int, rng: np.random.Generator) -> Ranked:
    """By :func:`probekit.probes.solvers.ksparse.rank`, on the moments of ``x``; units that do not vary come last."""
    codes = y[None] if classes else np.zeros((1, len(y)), dtype=np.int64)
    _, gram, means, share = class_moments(x, codes.astype(np.int64), classes or 1, np.ones(len(y)))
    cross = np.sqrt(share[0])[:, None] * means[0] if classes else mean_differences(x, y, 0, scaled=False)[None]
    order = ksparse.rank(gram, cross, len(y))
    score = np.empty(len(order))
    score[order] = 1 - np.arange(len(order)) / len(order)
    return Ranked.of(score, np.where(np.ptp(x, axis=0) > 0, score, 0), rng=rng)


def elastic_net(x: np.ndarray, y: np.ndarray, c: float, *, seed: int = 0) -> LogisticRegression:
    """A logistic regression on standardised units, with l1 and l2 penalties of equal weight."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(solver="saga", l1_ratio=0.5, C=c, max_iter=300, tol=1e-3, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an order does not need the last digits
        return model.fit(x, y)


def chosen_c(x: np.ndarray, y: np.ndarray, held: np.ndarray, *, seed: int = 0) -> float:
    """The C of the elastic net with the best accuracy on held-out rows, bool (n,); of equals the strongest penalty."""
    x = standardised(x)
    right = [elastic_net(x[~held], y[~held], c, seed=seed).score(x[held], y[held]) for c in CS]
    return CS[int(np.argmax(right))]


def _generator(seed: int, use: np.ndarray) -> np.random.Generator:
    """Random numbers of their own for each choice of rows."""
    return np.random.default_rng([seed, zlib.crc32(use.tobytes())])


def by_mass(weights: np.ndarray, rng: np.random.Generator) -> Ranked:
    """By the share of a class's weights at which a unit is taken: 1, 2 … percent of the mass of each class.

    A class takes its units from the largest weight on, until they hold the share; a unit counts when the first class
    takes it. Units that are taken at once are in the order of their own share, those without a weight in random order:
    another one in each half of the data, so that halves do not agree on units that none of them takes.

    Parameters
    ----------
    weights : np.ndarray
        float64 (lines, d), absolute values.
    rng : np.random.Generator
        Of the random order.
    """
    total = weights.sum(1, keepdims=True)
    share = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    order = np.argsort(-share, axis=1, kind="stable")
    ordered = np.take_along_axis(share, order, 1)
    before = np.empty_like(share)
    np.put_along_axis(before, order, ordered.cumsum(1) - ordered, 1)
    entry = np.where(share > 0, before, 1.0).min(0).clip(0, 1)
    order = np.lexsort((rng.random(len(entry)), -share.max(0), entry))
    return Ranked(1 - entry, order, int((share > 0).any(0).sum()))
