"""Scores of two classes: the area under the ROC curve, and recall at a small rate of false positives.

A positive is an example of class 1. A threshold for the rate r is the smallest score above which at most the share r of
the negatives lies, so r needs at least 1 / r negatives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from probekit.statistics._sums import BLOCK
from probekit.statistics.clusters import degrees, standard_error


def area(y: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The area under the ROC curve: how often a positive has a higher score than a negative; ties count half.

    Parameters
    ----------
    y : np.ndarray
        Int (n,), 0 or 1.
    scores : np.ndarray
        Float (F, n).

    Returns
    -------
    np.ndarray
        float64 (F,); NaN without a positive or a negative.

    Examples
    --------
    >>> area(np.array([0, 0, 1, 1]), np.array([[0.1, 0.4, 0.35, 0.8]])).tolist()
    [0.75]
    """
    positive = np.asarray(y) == 1
    n, m = int(positive.sum()), int((~positive).sum())
    if not n or not m:
        return np.full(len(scores), np.nan)
    ranks = stats.rankdata(scores, axis=1)
    found: np.ndarray = (ranks[:, positive].sum(1) - n * (n + 1) / 2) / (n * m)
    return found


def area_influence(y: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """How much each example contributes to the error of the area, times n; float64 (F, n).

    For a positive, the share of negatives below it minus the area, and for a negative the share of positives above it
    minus the area, each divided by the share of its class (DeLong, DeLong & Clarke-Pearson 1988). Summed by group,
    these are the components of Obuchowski 1997.

    Parameters
    ----------
    y, scores : np.ndarray
        As in :func:`area`, with both classes.
    """
    positive = np.asarray(y) == 1
    out = np.empty(np.shape(scores))
    for side in (True, False):
        mine, other = scores[:, positive == side], np.sort(scores[:, positive != side], axis=1)
        for f, (values, beside) in enumerate(zip(mine, other, strict=True)):
            below = np.searchsorted(beside, values, "left") + np.searchsorted(beside, values, "right")
            share = below / (2 * len(beside))
            placed = share if side else 1 - share
            out[f, positive == side] = (placed - placed.mean()) * len(positive) / len(placed)
    return out


def area_interval(
    y: np.ndarray, scores: np.ndarray, groups: np.ndarray | None = None, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray, str]:
    """The interval of the area of fixed scores over more examples.

    Returns
    -------
    low, high : np.ndarray
        (F,) each; NaN with fewer than 10 groups of examples of one of the classes.
    why : str
        The reason if there is no interval.

    Notes
    -----
    The ends are the areas A whose distance from the measured one is t standard errors *at A* (a score interval, as
    Wilson's of a proportion), so an area of 1 has an interval, too. The variance at A is that of Hanley & McNeil (1982)
    in the symmetric form of Newcombe (2006, method 5), with a group of examples as one observation, times a factor: the
    ratio of the variance by group (:func:`area_influence`) to that formula. The ratio of few groups is imprecise, so it
    is averaged with 1, which counts as 4 degrees of freedom. t has the degrees of freedom of Satterthwaite (1946).
    """
    value = area(y, scores)
    nothing = np.full(len(value), np.nan)
    if why := too_few_of_class(y, groups):
        return nothing, nothing, why
    n, positive = len(y), np.asarray(y) == 1
    code = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    count = np.array([len(np.unique(code[positive == side])) for side in (True, False)])
    influence = area_influence(y, scores) / n
    whole, *parts = (
        (np.stack([np.bincount(code, row, code.max() + 1) for row in influence * rows]) ** 2).sum(1)
        for rows in (np.ones(n), positive, ~positive)
    )
    one, other = (part / (of - 1) for part, of in zip(parts, count, strict=True))  # for n / (n - 1) of each class
    plain = (1 / count).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = (parts[0] + parts[1]) ** 2 / (parts[0] * one + parts[1] * other)
        ratio = (whole + one + other) / (plain * _variance(value))
    known = np.isfinite(ratio) & np.isfinite(freedom)
    freedom, ratio = np.where(known, freedom, count.min() - 1), np.where(known, ratio, 1.0)
    ratio = (freedom * ratio + EXPECTED) / (freedom + EXPECTED)
    low, high = _within(value, stats.t.ppf((1 + level) / 2, freedom) ** 2 * ratio * plain)
    return low, high, ""


def _within(value: np.ndarray, reached: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the areas whose squared distance from ``value`` is at most ``reached`` times their variance."""
    ends = []
    for outside in (0.0, 1.0):
        a, b = value.copy(), np.full(len(value), outside)
        for _ in range(50):
            middle = (a + b) / 2
            held = (value - middle) ** 2 <= reached * _variance(middle)
            a, b = np.where(held, middle, a), np.where(held, b, middle)
        ends.append((a + b) / 2)
    return ends[0], ends[1]


def mean_area_interval(
    y: np.ndarray, scores: np.ndarray, groups: np.ndarray | None = None, level: float = 0.95
) -> tuple[float, float]:
    """The interval of the mean of the areas of C classes, each against the rest, over the same examples.

    As :func:`area_interval`, which it is for one class. Of several, the variance by group is that of the mean of their
    influences; the expected one is that of areas which err together, and degrees of freedom are those of the smallest
    class.

    Parameters
    ----------
    y, scores : np.ndarray
        Bool and float (C, n), each class with at least 10 groups of positives and of negatives.
    """
    if len(y) == 1:
        low, high, _ = area_interval(y[0], scores, groups, level)
        return float(low[0]), float(high[0])
    n = y.shape[1]
    code = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    value, influence, plain, fewest = 0.0, np.zeros(n), 0.0, n
    for positive, one in zip(y, scores, strict=True):
        count = np.array([len(np.unique(code[positive == side])) for side in (True, False)])
        value += float(area(positive, one[None])[0]) / len(y)
        influence += area_influence(positive, one[None])[0] / (n * len(y))
        plain += float(np.sqrt((1 / count).sum())) / len(y)
        fewest = min(fewest, int(count.min()))
    of_groups = (np.bincount(code, influence) ** 2).sum() * fewest / (fewest - 1)
    expected = plain**2 * float(_variance(np.array(value)))
    ratio = of_groups / expected if expected > 0 else 1.0
    ratio = ((fewest - 1) * ratio + EXPECTED) / (fewest - 1 + EXPECTED)
    reached = np.array([stats.t.ppf((1 + level) / 2, fewest - 1) ** 2 * ratio * plain**2])
    low, high = _within(np.array([value]), reached)
    return float(low[0]), float(high[0])


EXPECTED = 4  # degrees of freedom of the expected variance; see area_interval


def _variance(area: np.ndarray) -> np.ndarray:
    """The variance of the area for one positive and very many negatives, or the other way round: their mean."""
    found: np.ndarray = area * (1 - area) * ((1 - area) / (2 - area) + area / (1 + area)) / 2
    return found


def too_few_of_class(y: np.ndarray, groups: np.ndarray | None = None) -> str:
    """Why areas and recalls have no interval: too few examples of a class, or too few groups of them; "" if enough."""
    for side, name in ((1, "positives"), (0, "negatives")):
        mine = np.asarray(y) == side
        count = int(mine.sum()) if groups is None else len(np.unique(np.asarray(groups)[mine]))
        if count < FEWEST_OF_CLASS:
            of = name if groups is None else f"groups with {name}"
            return f"{count} {of}; intervals need at least {FEWEST_OF_CLASS}"
    return ""


FEWEST_OF_CLASS = 10
"""With 5 positives, intervals of areas cover 87 to 97 %, depending on the scores' distribution; with 10, 92 to 98 %."""


FEWEST_ABOVE = 5
"""Negatives above the test set's own threshold; with one of 150, percentiles cover 89 % (docs/calibration.md)."""


def too_few_above(
    y: np.ndarray, scores: np.ndarray, rate: float, groups: np.ndarray | None = None, where: str = ""
) -> str:
    """Why recall at the negatives' own threshold has no interval: too few of them lie above it; "" if enough.

    Of groups, such as copies, those with a negative above it count; y (n,), scores (n,).
    """
    at = np.flatnonzero(np.asarray(y) == 0)
    count = above = int(rate * len(at) + 1e-9)
    if groups is not None:
        highest = at[np.argsort(-scores[at], kind="stable")[:count]]
        above = len(np.unique(np.asarray(groups)[highest]))
    if above >= FEWEST_ABOVE:
        return ""
    of, units = ("", "") if above == count else (f" (of {above} {'group' if above == 1 else 'groups'})", " groups")
    said = f"{count} of the {len(at)} negatives{where}{of} lie above the threshold"
    return f"{said}; intervals need {FEWEST_ABOVE}{units}"


def smallest_rate(negatives: int) -> float:
    """The smallest rate of false positives above 0 that so many negatives can resolve."""
    return 1 / negatives if negatives else float("nan")


def threshold(negative: np.ndarray, rate: float) -> np.ndarray:
    """The smallest score above which at most ``rate`` of the negatives lies.

    Parameters
    ----------
    negative : np.ndarray
        Float (F, m), scores of negatives.
    rate : float
        From 0 to below 1.

    Returns
    -------
    np.ndarray
        (F,); NaN if the negatives cannot resolve the rate: if there are fewer than 1 / rate.

    Examples
    --------
    >>> threshold(np.arange(200.0)[None], 0.01).tolist(), threshold(np.arange(50.0)[None], 0.01).tolist()
    ([197.0], [nan])
    """
    m = negative.shape[1]
    above = int(rate * m + 1e-9)
    if above < 1:
        return np.full(len(negative), np.nan)
    found: np.ndarray = np.partition(negative, m - 1 - above, axis=1)[:, m - 1 - above].astype(np.float64)
    return found


def promised(negative: np.ndarray, rate: float, groups: np.ndarray | None = None) -> int:
    """How many of the negatives may lie above a threshold that further ones exceed at most ``rate`` often, on average.

    Above the threshold that k of m independent negatives exceed lies (k + 1) / (m + 1) of the population, on average
    over samples; so k is the largest for which this is at most ``rate`` (split conformal prediction: Papadopoulos et
    al. 2002). Of groups, m is divided by the design effect of groups whose members are all alike.

    Parameters
    ----------
    negative : np.ndarray
        Float (m,), scores of negatives.
    rate : float
        From 0 to below 1.
    groups : np.ndarray, optional
        (m,), negatives that are not independent.

    Returns
    -------
    int
        k; negative if there are too few negatives, or groups of them: fewer than 1 / rate - 1.

    Examples
    --------
    >>> promised(np.arange(200.0), 0.01), promised(np.arange(99.0), 0.01), promised(np.arange(98.0), 0.01)
    (1, 0, -1)
    """
    m = len(negative)
    alike = 1.0 if groups is None else float((np.unique(groups, return_counts=True)[1] ** 2).sum() / m)
    return int(np.floor(rate * (m + alike) - alike + 1e-9))


def rate_interval(
    negative: np.ndarray, above: int, groups: np.ndarray | None = None, level: float = 0.95
) -> tuple[float, float]:
    """The interval of the rate of false positives at the threshold that these negatives themselves give.

    The threshold is the score of the negative with ``above`` others above it. For m independent negatives of any
    continuous distribution, the share of the population above it has the distribution Beta(above + 1, m - above) (David
    & Nagaraja 2003, section 2.3): the lower end is that of Clopper & Pearson (1934) for the negatives at or above the
    threshold, the upper end theirs for those above it. Of groups, both counts and m are divided by the design effect
    (Kish 1965, section 5.4) of being counted. That of few groups is imprecise, so it is averaged with the effect of
    groups whose members are all counted or all not, which weighs as 2 groups with a counted member.

    Parameters
    ----------
    negative : np.ndarray
        Float (m,), scores of negatives. Where several that are not of one group lie at the threshold, the lower end is
        that of those above it.
    above : int
        How many of them lie above the threshold.
    groups : np.ndarray, optional
        (m,), negatives that are not independent.
    level : float
        Its coverage.

    Examples
    --------
    >>> low, high = rate_interval(np.arange(200.0), 10)
    >>> round(low, 3), round(high, 3)
    (0.028, 0.09)
    """
    m, tail = len(negative), (1 - level) / 2
    code = np.arange(m) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    at = np.partition(negative, m - 1 - above)[m - 1 - above]
    higher = negative > at
    reached = higher if len(np.unique(code[negative == at])) > 1 else negative >= at
    count, of = _independent(reached, code)
    low = stats.beta.ppf(tail, count, of - count + 1) if count else 0.0
    count, of = _independent(higher, code)
    return float(low), float(stats.beta.ppf(1 - tail, count + 1, of - count))


def _independent(counted: np.ndarray, code: np.ndarray) -> tuple[float, float]:
    """How many independent examples the counted ones, bool (m,), are worth, and how many all; code (m,): groups."""
    m, size, hit = len(counted), np.bincount(code), len(np.unique(code[counted]))
    effect, p = (size**2).sum() / m, counted.mean()
    if len(size) > 1 and 0 < p < 1:
        of_groups = (np.bincount(code, counted - p) ** 2).sum() * len(size) / (len(size) - 1)
        of_examples = m * p * (1 - p) * m / (m - 1)
        effect = max(1.0, (hit * of_groups / of_examples + 2 * effect) / (hit + 2))
    return float(counted.sum() / effect), float(m / effect)


def own_recall(
    y: np.ndarray,
    scores: np.ndarray,
    rate: float,
    groups: np.ndarray | None = None,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The share of positives above the threshold that the negatives themselves give, with an interval.

    Returns
    -------
    value, low, high, at : np.ndarray
        (F,) each; ``at`` is the threshold. The ends are percentiles of a posterior: groups have random weights of a
        gamma distribution, as in :mod:`probekit.statistics.bootstrap`, so the threshold varies too, and one found and
        one missed positive are added, half of each. NaN without ``resamples``, where a threshold cannot be had, and
        where :func:`too_few_of_class`.
    """
    y = np.asarray(y)
    at = threshold(scores[:, y == 0], rate)
    value = np.where(np.isnan(at), np.nan, (scores[:, y == 1] > at[:, None]).mean(1) if (y == 1).any() else np.nan)
    nothing = np.full(len(scores), np.nan)
    if not resamples or np.isnan(value).any() or too_few_of_class(y, groups):
        return value, nothing, nothing, at
    code = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    again = np.empty((len(scores), resamples))
    order, rng = np.argsort(-scores, axis=1, kind="stable"), np.random.default_rng([seed, 2])
    step = max(1, BLOCK // len(y))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        weights = rng.standard_exponential((size, int(code.max()) + 1))[:, code]
        more = rng.standard_gamma(0.5, (2, size)) * (y == 1).sum() / len(np.unique(code[y == 1]))
        for f, by in enumerate(order):
            w, positive = weights[:, by], y[by] == 1
            false, true = np.cumsum(w * ~positive, axis=1), np.cumsum(w * positive, axis=1)
            count = (false <= rate * false[:, -1:]).sum(1)  # so many of the highest scores are above the threshold
            hits = np.where(count > 0, np.take_along_axis(true, np.maximum(count - 1, 0)[:, None], 1)[:, 0], 0)
            again[f, start : start + size] = (hits + more[0]) / (true[:, -1] + more.sum(0))
    tail = (1 - level) / 2
    low, high = np.quantile(again, [tail, 1 - tail], axis=1)
    low, high = np.fmin(low, value), np.fmax(high, value)
    return value, low, high, at


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a measure of two fits, with what sampling of test and of train contribute to its error.

    Attributes
    ----------
    value, low, high, p : float
        With a two-sided p; NaN if the error is 0 or cannot be had.
    of_test, of_train : float
        Standard errors over test examples for fixed probes, and over training examples.
    """

    value: float
    low: float
    high: float
    p: float
    of_test: float
    of_train: float


def difference(
    value: float, influence: np.ndarray, without: np.ndarray, groups: np.ndarray | None = None, level: float = 0.95
) -> Difference:
    """The difference of two fits that were trained on different data and evaluated on the same examples.

    Its variance is the sum of two parts. That of the test examples comes from the influence of each of them, by group.
    That of the training examples comes from a jackknife: the difference is measured again without each block of both
    training sets (Efron & Tibshirani 1993, section 11.5, with blocks deleted). With the first part alone, two probes
    that were trained on samples of one population would often differ "significantly".

    Parameters
    ----------
    value : float
        The difference.
    influence : np.ndarray
        (n,), the influence of each test example on the difference, times n.
    without : np.ndarray
        (K,), the difference without each block of train.
    groups : np.ndarray, optional
        (n,), test examples that are not independent.
    level : float
        Coverage of the interval: Student's t, with the degrees of freedom of Satterthwaite 1946.
    """
    (of_test,), _ = standard_error(influence[None], groups)
    k = len(without)
    of_train = float(np.sqrt((k - 1) / k * ((without - without.mean()) ** 2).sum()))
    parts = np.array([of_test**2, of_train**2])
    total = float(np.sqrt(parts.sum()))
    if not np.isfinite(total) or total == 0 or not np.isfinite(value):
        nan = float("nan")
        return Difference(value, nan, nan, nan, float(of_test), of_train)
    freedom = parts.sum() ** 2 / (parts**2 / np.array([degrees(influence, groups), k - 1])).sum()
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * total
    p = float(2 * stats.t.sf(abs(value) / total, freedom))
    return Difference(value, value - half, value + half, p, float(of_test), of_train)
