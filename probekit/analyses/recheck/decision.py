"""From differences with their intervals and margins to one of four answers.

A difference *holds* if its interval shows that it is within its margin, has *moved* if its interval shows that it is
beyond, and is *open* otherwise. No difference can be two of these, so the answers exclude each other:

- degraded: a difference of the ranking has moved;
- threshold stale: the ranking holds, and a difference at the threshold has moved;
- pass: the ranking and all that is needed at the threshold hold;
- inconclusive: anything else.

A probe passes only if each of its tests says so, so the rate of wrong passes is at most that of one test (Berger 1982,
intersection-union tests; Schuirmann 1987 for a margin on two sides). Each test is one side of an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf, isfinite, isnan, log10, nan

from scipy import stats


class Answer(StrEnum):
    """What a recheck says."""

    PASS = "pass"
    STALE = "threshold stale"
    DEGRADED = "degraded"
    INCONCLUSIVE = "inconclusive"


class Finding(StrEnum):
    """What the interval of a difference shows."""

    HOLDS = "holds"
    MOVED = "moved"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Change:
    """A number before and after, and the interval of their difference.

    Attributes
    ----------
    metric : str
        Its name in rows.
    before, after, value : float
        Both numbers, and the second minus the first.
    low, high : float
        The interval of the difference; NaN if there is none.
    margin : float
        The difference that does not matter.
    better : int
        1 or -1 if a larger (smaller) number is better, so that only a loss matters; 0 if both directions matter.
    ranking : bool
        Whether it is about how well the scores rank the examples, and not about the threshold.
    needed : bool
        Whether a pass, or a stale threshold, needs that it holds; of others only that they have not moved.
    same : bool
        Whether no example changed what the number depends on, so that no interval can be had.
    reach : float
        How many times as far as its interval its margin must be for it to have moved: above 1 where two tests can say
        so.
    unseen : float
        The share of all examples that may have changed though none of these has, in the margin's unit; it holds only if
        this is at most the margin. 0 if the interval allows for such changes.
    fixed : float
        The part of the interval's half that is the card's, which further examples do not narrow.
    n, why : int, str
        The number of examples, and the reason why there is no interval.
    """

    metric: str
    before: float
    after: float
    value: float
    low: float
    high: float
    margin: float
    better: int = 1
    ranking: bool = False
    needed: bool = True
    same: bool = False
    reach: float = 1.0
    unseen: float = 0.0
    fixed: float = 0.0
    n: int = 0
    why: str = ""

    @property
    def finding(self) -> Finding:
        """What its interval shows."""
        if self.same:
            return Finding.HOLDS if self.unseen <= self.margin else Finding.OPEN
        low, high = (-self.high, -self.low) if self.better < 0 else (self.low, self.high)
        if low > -self.margin and (self.better or high < self.margin) and self.unseen <= self.margin:
            return Finding.HOLDS
        value = -self.value if self.better < 0 else self.value
        low, high = (value + self.reach * (end - value) for end in (low, high))
        if high < -self.margin or (not self.better and low > self.margin):
            return Finding.MOVED
        return Finding.OPEN

    def more(self, level: float = 0.95) -> float:
        """The share of further examples with which its interval would probably (80 %) decide, if the difference stays.

        Half the interval, less the card's part, shrinks with the root of their number; 0 if it is decided, NaN without
        an interval, infinite if no number decides. A difference for the better counts as 0.
        """
        if self.finding is not Finding.OPEN:
            return 0.0
        rare = self.unseen / self.margin - 1
        if self.same:
            return rare
        down, up = self.value - self.low, self.high - self.value
        half = (max(down, up), down, up)[self.better]
        if not isfinite(half):
            return nan
        value = -abs(self.value) if not self.better else min(0.0, self.better * self.value)
        reach = abs(value + self.margin) / _power(level)
        return max(rare, (half**2 - self.fixed**2) / (reach**2 - self.fixed**2) - 1) if reach > self.fixed else inf


def _power(level: float) -> float:
    """How much further than half an interval a margin must be for a power of 80 %."""
    return float(1 + stats.norm.ppf(0.8) / stats.norm.ppf((1 + level) / 2))


def answer(changes: Sequence[Change]) -> Answer:
    """The answer that these differences give together.

    Examples
    --------
    >>> same = Change("difference(auroc)", 0.9, 0.9, 0.0, -0.01, 0.01, margin=0.02, ranking=True)
    >>> rate = Change("difference(false-positives)", 0.05, 0.2, 0.15, 0.1, 0.2, margin=0.025, better=0)
    >>> str(answer([same])), str(answer([same, rate]))
    ('pass', 'threshold stale')
    """
    ranking, at_threshold = ([c for c in changes if c.ranking is which] for which in (True, False))
    if any(c.finding is Finding.MOVED for c in ranking):
        return Answer.DEGRADED
    needed = [c for c in ranking if c.needed]
    if not needed or any(c.finding is not Finding.HOLDS for c in needed):
        return Answer.INCONCLUSIVE
    if any(c.finding is Finding.MOVED for c in at_threshold):
        return Answer.STALE
    held = all(c.finding is Finding.HOLDS for c in at_threshold if c.needed)
    return Answer.PASS if held else Answer.INCONCLUSIVE


def more_examples(changes: Sequence[Change], n: int, level: float = 0.95) -> float:
    """About how many further examples an open answer needs, to two digits; NaN if that cannot be said."""
    shares = [c.more(level) for c in changes if c.needed and c.finding is Finding.OPEN]
    count = n * max(max(shares, default=nan), 0.1) if not any(map(isnan, shares)) else nan
    if not isfinite(count):
        return count
    step = 10 ** max(0, ceil(log10(count)) - 2)
    return float(ceil(count / step) * step)
