"""Means by label: whether the examples of a label differ from all others, by permuting the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from probekit.statistics.bootstrap import FEWEST
from probekit.statistics.multiplicity import adjust, tails
from probekit.statistics.permutation import BLOCK
from probekit.statistics.relabelling import shuffles

STEPS = 40  # of the search for the end of an interval: a trillionth of its first width
WIDEST = 1e3  # standard errors: an interval that is wider has no end


@dataclass(frozen=True, slots=True)
class LabelMeans:
    """Means over the examples of each of C labels minus the mean over all others, of F measures.

    Attributes
    ----------
    value, low, high, p, p_adjusted : np.ndarray
        (C, F); NaN where a label (or its rest) has fewer than 2 examples, and with fewer than 5 groups.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    p_adjusted: np.ndarray


def differences_of_means(
    values: np.ndarray,
    y: np.ndarray,
    codes: Sequence[int] | np.ndarray,
    groups: np.ndarray | None = None,
    *,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> LabelMeans:
    """Test whether labels differ in the mean of measures, with permuted labels.

    Parameters
    ----------
    values : np.ndarray
        (F, n); an example with NaN in any row is left out.
    y : np.ndarray
        (n,), the label of each example.
    codes : sequence of int
        The C labels to compare with all others.
    groups : np.ndarray, optional
        (n,), examples that are not independent; their labels move as a whole (:func:`~.relabelling.shuffles`).
    draws : int
        Permutations, the same for all labels and measures.
    level : float
        Coverage of the intervals.

    Returns
    -------
    LabelMeans
        Two-sided p; adjusted by step-down min-p over all labels and measures. The interval holds the differences that
        the same permutations do not reject, so it leaves out 0 where p is 1 - level or less. If there are too
        few permutations to reject any difference on one side (2 examples of 5), both ends are NaN.

    Notes
    -----
    The statistic is Welch's (1947), with errors by group: permuting it is exact if labels are exchangeable, whatever
    the distribution and however rare a label, and right with many examples if only the means are equal (Janssen 1997,
    "Studentized permutation tests"). Where a rare label varies more than the others, permuted labels mix both spreads,
    and their statistic has lighter tails than that of the label. So p is at least Welch's own, from Student's t with
    his degrees of freedom, few for a label of few examples (groups). Intervals assume that a label shifts the values.
    """
    values = np.asarray(values, dtype=np.float64)
    there = np.isfinite(values).all(0)
    values, y, groups = values[:, there], np.asarray(y)[there], None if groups is None else np.asarray(groups)[there]
    shape = len(codes), len(values)
    units = len(y) if groups is None else len(np.unique(groups))
    if units < FEWEST:
        return LabelMeans(*(np.full(shape, np.nan) for _ in range(5)))
    parts = [_Permuted.of(values, y == code, groups, draws, seed) for code in codes]
    value, low, high = (np.full(shape, np.nan) for _ in range(3))
    p, null = np.full(shape, np.nan), np.ones((*shape, draws))
    for c, one in enumerate(parts):
        if one is not None:
            value[c], (p[c], null[c]) = one.value[:, 0], one.two_sided()
            low[c], high[c] = one.ends(1 - level)
    adjusted = np.maximum(adjust(p.ravel(), null.reshape(-1, draws)), p.ravel()).reshape(shape)
    return LabelMeans(value, low, high, p, adjusted)


@dataclass(frozen=True, slots=True)
class _Permuted:
    """The difference of F measures, (F, 1 + R) with the actual labels first, and of the label itself, (1, 1 + R).

    If the label adds δ to each value, the values without it are v - δ m, where m is 1 for the examples of the label:
    the difference with permuted labels is ``value`` - δ ``shift``, and its variance ``vv`` - 2 δ ``vm`` + δ² ``mm``.
    """

    value: np.ndarray
    shift: np.ndarray
    vv: np.ndarray
    vm: np.ndarray
    mm: np.ndarray
    degrees: np.ndarray
    """Welch's, (F,)."""
    short: np.ndarray
    """The standard error as it is by the one without bias, (F,)."""

    @classmethod
    def of(
        cls, values: np.ndarray, mine: np.ndarray, groups: np.ndarray | None, draws: int, seed: int
    ) -> _Permuted | None:
        if min(mine.sum(), (~mine).sum()) < 2:
            return None
        n = len(mine)
        code = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
        by, blocks = np.argsort(code, kind="stable"), []
        starts = np.flatnonzero(np.diff(code[by], prepend=-1))
        every = [np.arange(n)[None], *shuffles(n, groups, draws=draws, seed=seed)]
        planes = np.concatenate([values, mine[None].astype(np.float64)])[:, by]
        for block in every:
            step = max(1, BLOCK // (8 * n))
            blocks += [
                _influences(planes, mine[block[a : a + step]][:, by], starts) for a in range(0, len(block), step)
            ]
        found = [np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True)]
        count, own = len(np.unique(code[mine])), found[3][:-1, 0]
        units = np.array([max(2, count), max(2, len(starts) - count)])[:, None]
        parts = np.stack([own, found[1][:-1, 0] - own]) * units / (units - 1)
        with np.errstate(invalid="ignore"):
            degrees = np.nan_to_num(parts.sum(0) ** 2 / (parts**2 / (units - 1)).sum(0), nan=1)
            short = np.nan_to_num(np.sqrt(found[1][:-1, 0] / parts.sum(0)), nan=1)
        return cls(found[0][:-1], found[0][-1:], found[1][:-1], found[2][:-1], found[1][-1:], degrees, short)

    def students(self, t: np.ndarray) -> np.ndarray:
        """Welch's p, one-sided, of the statistics with the actual labels, (F,)."""
        return np.asarray(stats.t.sf(t * self.short, self.degrees))

    def statistics(self, shift: np.ndarray) -> np.ndarray:
        """The studentised differences, (F, 1 + R), after ``shift`` (F,) is taken from the values of the label."""
        d = shift[:, None]
        error = np.sqrt(np.maximum(self.vv - 2 * d * self.vm + d**2 * self.mm, 0))
        away = self.value - d * self.shift
        with np.errstate(invalid="ignore", divide="ignore"):
            found = away / error
        return np.where(np.abs(away) > 1e-12 * np.abs(self.value[:, :1]), found, 0.0 * error)

    def two_sided(self) -> tuple[np.ndarray, np.ndarray]:
        """p-values, (F,), and those of each permutation, (F, R)."""
        t = self.statistics(np.zeros(len(self.value)))
        up, down = (tails(sign * t[:, 0], sign * t[:, 1:]) for sign in (1, -1))
        p, null = (np.minimum(1, 2 * np.minimum(a, b)) for a, b in zip(up, down, strict=True))
        return np.maximum(p, 2 * self.students(np.abs(t[:, 0]))), null

    def ends(self, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest shift that is not rejected, (F,) each."""
        value = self.value[:, 0]
        wide = WIDEST * np.sqrt(np.maximum(self.vv[:, 0], 0))
        found = []
        for sign in (1, -1):  # of t where the end is rejected
            inside, outside = value.copy(), value - sign * wide
            open_ = ~self._rejects(outside, sign, alpha)
            here = sign * value > 0  # 0 lies on this side: start there, so that interval and p agree
            rejected = self._rejects(np.zeros_like(value), sign, alpha)
            outside[here & rejected] = 0
            inside[here & ~rejected] = 0
            for _ in range(STEPS):
                middle = (inside + outside) / 2
                rejected = self._rejects(middle, sign, alpha)
                inside, outside = np.where(rejected, inside, middle), np.where(rejected, middle, outside)
            found.append(np.where(open_ | ~(wide > 0), np.nan, inside))
        low, high = found
        none = np.isnan(low) | np.isnan(high)
        return np.where(none, np.nan, low), np.where(none, np.nan, high)

    def _rejects(self, shift: np.ndarray, sign: int, alpha: float) -> np.ndarray:
        t = sign * self.statistics(shift)
        p = np.maximum(tails(t[:, 0], t[:, 1:])[0], self.students(t[:, 0]))
        return np.asarray(p <= alpha / 2)


def _influences(
    planes: np.ndarray, mine: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Differences of means of K measures, their variances, covariances with the last measure, and what groups with the
    label add to the variances, (K, R) each.

    planes (K, n), mine (R, n), bool : sorted by group, whose first examples are ``starts``
    """
    one = np.add.reduceat(mine, starts, axis=1, dtype=np.float64)
    size = np.diff(starts, append=mine.shape[1])
    other = size - one
    with np.errstate(invalid="ignore", divide="ignore"):
        counts = one.sum(1, keepdims=True), other.sum(1, keepdims=True)
        value, square, mixed, own = (np.empty((len(planes), len(mine))) for _ in range(4))
        last = None
        for k in reversed(range(len(planes))):
            sums = np.add.reduceat(mine * planes[k], starts, axis=1)
            rest = np.add.reduceat(planes[k], starts) - sums
            means = [part.sum(1, keepdims=True) / n for part, n in zip((sums, rest), counts, strict=True)]
            part = (sums - means[0] * one) / counts[0] - (rest - means[1] * other) / counts[1]
            last = part if last is None else last
            value[k], square[k], mixed[k] = (means[0] - means[1])[:, 0], (part**2).sum(1), (part * last).sum(1)
            own[k] = (part**2 * (one > 0)).sum(1)
    return value, square, mixed, own
