"""Intervals of metrics over the evaluated examples, of many fits at once, from their predictions alone.

Nothing is fitted again, and every fit is evaluated on the same draws, so that differences between fits are paired.
What is drawn depends on the metric:

- accuracy, F1, Matthews and the like are functions of a table of counts. Examples, or whole groups of them, get random
  weights of a gamma distribution (the Bayesian bootstrap, Rubin 1981), and so do pseudo-examples, together one right
  and one wrong answer (½ a cell of two classes, Jeffreys' prior). Drawing examples again cannot see what none of them
  shows: of 60 right answers it draws 60. A posterior of the table can.
- Differences of two such metrics are of a posterior of the table in which both answers stand: of some pseudo-examples
  the one fit is right and the other wrong.
- Other metrics are evaluated on examples that are drawn with replacement (Efron & Tibshirani 1993, chapter 13), and
  their intervals are studentised: correlations by Fisher's z, means of losses and squared errors by their own spread.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
from scipy import stats

from probekit.errors import UsageError
from probekit.statistics._additive import ADDITIVE
from probekit.statistics._sums import Rows, Score, Side, Statistic, Sums, Units, scale, statistic
from probekit.statistics.options import check_resamples

__all__ = [
    "METRICS",
    "Bounds",
    "band",
    "bounds",
    "estimates",
    "intervals",
    "paired_replicates",
    "replicated",
    "replicates",
    "statistics",
    "unbiased",
]

METRICS = (*ADDITIVE, "spearman")
"""The metrics that are computed for all resamples at once."""
BLOCK = 1 << 24  # numbers held at once
KEPT = 1 << 26  # bytes of draws that are kept for the next call
FEWEST = 5  # groups, below which no interval holds what it promises


def replicates(
    gold: np.ndarray, predicted: np.ndarray, metric: str, *, resamples: int = 1000, seed: int = 0, **more: Any
) -> np.ndarray:
    """The metric of F fits in each resample of the examples, float64 (F, resamples); NaN where it is undefined.

    The draws depend on the seed and the number of examples (groups) only: all fits, layers and models of a data set
    meet the same ones, whatever is asked for together.

    Parameters
    ----------
    gold : np.ndarray
        (n,), or (F, n) where the fits were asked for different labels; codes of classes, or numbers.
    predicted : np.ndarray
        (F, n).
    metric : str
        One of METRICS, as ``probekit.metrics`` defines them; "log-loss" is the mean of ``log_loss``, nats.
    **more
        groups, log_loss, label_names, score, sentences: see :func:`statistics`.

    Raises
    ------
    UsageError
        As :func:`statistics` does.
    """
    parts = statistics(gold, predicted, metric, **more)
    return np.concatenate([replicated(one, units, resamples, seed)[0] for units, one in parts])


def paired_replicates(
    gold: np.ndarray, predicted: np.ndarray, metric: str, *, resamples: int = 1000, seed: int = 0, **more: Any
) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`replicates`, of each fit as the one and as the other of a difference, (F, resamples) each.

    Of metrics of counts the pseudo-examples are of pairs: of some the one is right and the other is wrong, so that two
    fits that say the same of all examples may still differ on others (Agresti & Min 2005; Bonett & Price 2012).
    """
    found = []
    for units, one in statistics(gold, predicted, metric, **more):
        pair = replicated(one, units, resamples, seed, pairs=True)
        if isinstance(one, Sums) and one.pseudo is not None:
            pair[0][one.pseudo.silent(metric) != ""] = np.nan
            pair[1][one.pseudo.silent(metric) != ""] = np.nan
        found.append(pair)
    return np.concatenate([one for one, _ in found]), np.concatenate([other for _, other in found])


def estimates(gold: np.ndarray, predicted: np.ndarray, metric: str, **more: Any) -> np.ndarray:
    """The metric of F fits on the examples as they are, float64 (F,); arguments as of :func:`replicates`."""
    parts = statistics(gold, predicted, metric, **more)
    return np.concatenate([one.at(np.ones((1, units.count)))[:, 0] for units, one in parts])


def statistics(
    gold: np.ndarray,
    predicted: np.ndarray,
    metric: str,
    *,
    groups: np.ndarray | None = None,
    log_loss: np.ndarray | None = None,
    label_names: Sequence[str] = (),
    score: Score | None = None,
    sentences: np.ndarray | None = None,
) -> Iterator[tuple[Units, Statistic]]:
    """The metric as a function of how often each unit is drawn, some fits at a time (memory), in order.

    gold (n,) or (F, n), predicted (F, n) : as of :func:`replicates`. For "span-f1": lists of tag names, one a
        sentence, or codes of ``label_names`` by word.

    Parameters
    ----------
    groups : np.ndarray, optional
        (n,), what is drawn as a whole: the sentence of each word, the document …; each example for None.
    log_loss : np.ndarray, optional
        (F, n), nats, of "log-loss"
    score : Score, optional
        The metric's own function of (gold, predicted), both (n,). It is called once a fit and resample where the name
        is unknown, or where its value on the first fit is not what the name says.
    sentences : np.ndarray, optional
        (n,), of "span-f1" the sentence of each word; the groups for None.

    Raises
    ------
    UsageError
        For shapes that do not go together, and for a metric that is neither known nor given.
    """
    if metric == "log-loss":
        if log_loss is None:
            raise UsageError("log-loss wants the losses of the examples (log_loss), and there are none.")
        predicted = log_loss
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    gold = gold[None] if gold.ndim == 1 else gold
    if predicted.ndim != 2 or gold.shape not in (predicted.shape, (1, predicted.shape[1])) or not predicted.size:
        raise UsageError(f"predictions (F, n) and gold (n,) or (F, n) are wanted, not {predicted.shape}, {gold.shape}.")
    if metric not in METRICS and score is None:
        raise UsageError(f"unknown metric {metric!r}; known are {', '.join(METRICS)}.")
    units = Units.of_groups(groups, predicted.shape[1])
    names = tuple(label_names) or _tag_names(metric, gold, predicted)
    known = metric in METRICS and (score is None or _agree(metric, score, gold[0], predicted[0], units, names))
    coded = metric in ("matthews", "macro-f1") and gold.dtype.kind in "iu"
    classes = 1 + int(gold.max()) - int(gold.min()) if coded else 1
    step = max(1, int(BLOCK // (max(units.count, units.rows // 8) * 3 * classes)))
    for at in range(0, len(predicted), step):
        g, p = (y if len(y) == 1 else y[at : at + step] for y in (gold, predicted))
        if known:
            yield units, statistic(metric, g, p, units, label_names=names, sentences=sentences)
        else:
            yield units, Rows(g, p, units, partial(_loop, score))  # type: ignore[arg-type]


def _tag_names(metric: str, gold: np.ndarray, predicted: np.ndarray) -> tuple[str, ...]:
    if metric != "span-f1" or gold.dtype != object:
        return ()
    return tuple(sorted({tag for y in (gold, predicted) for row in y for tags in row for tag in tags}))


def _agree(
    metric: str, score: Score, gold: np.ndarray, predicted: np.ndarray, units: Units, names: Sequence[str]
) -> bool:
    if metric == "span-f1" and gold.dtype != object:  # codes by word, where the metric's function wants lists of names
        return True
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        mine = statistic(metric, gold[None], predicted[None], units, label_names=names).at(np.ones((1, units.count)))
        return bool(np.isclose(mine[0, 0], score(gold, predicted), rtol=1e-6, atol=1e-9, equal_nan=True))


def _loop(score: Score, gold: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    drawn = (np.repeat(np.arange(len(gold)), row.astype(np.int64)) for row in weights)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a resample may hold one class only
        return np.array([float(score(gold[rows], predicted[rows])) for rows in drawn])


def draws(units: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each unit is drawn: float32 (resamples of this block, units), the same for the same three numbers."""
    block = max(1, BLOCK // units)
    kept = _kept(units, resamples, seed) if units * resamples <= KEPT else None
    rng = np.random.default_rng(seed)
    for at in range(0, resamples, block):
        size = min(block, resamples - at)
        yield (_draw(units, size, rng) if kept is None else kept[at : at + size]).astype(np.float32)


@lru_cache(maxsize=2)
def _kept(units: int, resamples: int, seed: int) -> np.ndarray:
    counts = _draw(units, resamples, np.random.default_rng(seed))
    counts.setflags(write=False)
    return counts


def _draw(units: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Counts of ``units`` draws out of as many, uint8 (resamples, units): more than 255 of one do not happen."""
    counts = np.empty((resamples, units), dtype=np.uint8)
    step = max(1, (1 << 16) // units)  # what the processor's cache holds
    for at in range(0, resamples, step):
        drawn = rng.integers(units, size=(min(step, resamples - at), units), dtype=np.uint32).astype(np.int64)
        drawn += np.arange(len(drawn))[:, None] * units
        counts[at : at + step] = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
    return counts


def replicated(
    one: Statistic, units: Units, resamples: int, seed: int, *, pairs: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The replicates of a metric of some fits, float64 (F, resamples), as the one and as the other of ``pairs``."""
    if isinstance(one, Sums) and one.pseudo is not None:
        found = _posterior(one, units.count, resamples, seed, "pairs" if pairs else ("both",))
        return found[0], found[-1]
    again = np.concatenate([one.at(w) for w in draws(units.count, resamples, seed)], axis=1)
    return again, again


def unbiased(one: Statistic, value: np.ndarray, units: Units, resamples: int, seed: int) -> np.ndarray:
    """The replicates of a metric whose ``value`` (F,) is biased by products of shares, float64 (F, resamples).

    Those of the examples alone are off by as much again on average, so that twice their distance is taken off.
    """
    if isinstance(one, Sums) and one.pseudo is not None:
        again, alone = _posterior(one, units.count, resamples, seed, ("both", "none"))
    else:
        again, alone = replicated(one, units, resamples, seed)
    return again - 2 * (np.nanmean(alone, axis=1) - value)[:, None]


def _posterior(
    one: Sums, units: int, resamples: int, seed: int, sides: Sequence[Side] | Literal["pairs"]
) -> list[np.ndarray]:
    """The replicates of a metric of counts for each side, or as the one and as the other, float64 (F, resamples)."""
    pseudo = one.pseudo
    assert pseudo is not None
    block, whole = max(1, BLOCK // units), scale(units)
    weights, masses = np.random.default_rng([seed, 2]), np.random.default_rng([seed, 3])
    out: list[list[np.ndarray]] = []
    for at in range(0, resamples, block):
        size = min(block, resamples - at)
        w = np.rint(weights.standard_exponential((size, units), dtype=np.float32) * np.float32(whole))

        def draw(shape: np.ndarray, size: int = size) -> np.ndarray:
            return np.rint(masses.standard_gamma(shape, (size, len(shape))) * whole)

        if sides == "pairs":
            drawn: list[tuple[np.ndarray, Side]] = [(mass, "both") for mass in pseudo.of_pairs(draw)]
        else:
            mass = draw(pseudo.mass)
            drawn = [(mass, side) for side in sides]
        out.append(one.posterior(w, drawn))
    return [np.concatenate(parts, axis=1) for parts in zip(*out, strict=True)]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A metric of F fits with its intervals.

    Attributes
    ----------
    value : np.ndarray
        (F,), on the examples as they are.
    ci : np.ndarray
        (F, 2), NaN where there is no interval.
    why : np.ndarray
        Str (F,), why there is none; "" where there is one, and where none was asked for.
    again : np.ndarray
        (F, resamples), as of :func:`replicates`.
    """

    value: np.ndarray
    ci: np.ndarray
    why: np.ndarray
    again: np.ndarray


def bounds(
    gold: np.ndarray,
    predicted: np.ndarray,
    metric: str,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    **more: Any,
) -> Bounds:
    """The metric of F fits, each with an interval of its value on all the examples that these were drawn from.

    Parameters
    ----------
    gold, predicted, metric, **more
        As of :func:`replicates`.
    resamples : int
        100 or more; 0 for no intervals.
    level : float
        How often an interval holds the value.

    Raises
    ------
    UsageError
        For 1 to 99 resamples, and as of :func:`replicates`.

    Notes
    -----
    Measured coverage by metric, prevalence and number of examples is in docs/calibration.md
    (benchmarks/rates/intervals.py). There is no interval where fewer than 5 groups were drawn, where the metric is
    undefined, of Matthews and macro-F1 where there is one class only, of F1 where no example is, or is called, of class
    1 or a span, where a correlation is exact or its predictions are all the same, where all errors are alike, and of
    macro-F1 with fewer than 10 examples a class. Root mean squared errors whose squares have no variance (Student's t
    with 3 degrees of freedom) are covered in 80 to 90 %: a sample without an outlier says nothing about outliers.
    """
    check_resamples(resamples, level, seed, none=True)
    found = []
    for units, one in statistics(gold, predicted, metric, **more):
        value = one.at(np.ones((1, units.count)))[:, 0]
        if not resamples:
            none = np.full((len(value), 2), np.nan), np.full(len(value), "", dtype=object)
            found.append(Bounds(value, *none, np.empty((len(value), 0))))
            continue
        again, ci, why = _ends(one, value, metric, units, resamples, level, seed)
        why[~np.isfinite(ci).all(1) & (why == "")] = "undefined in most resamples"
        why[np.isnan(value)] = "undefined on these examples"
        if units.count < FEWEST:
            why[:] = f"of {units.count} {'examples' if units.of is None else 'groups'}, fewer than {FEWEST}"
        ci[why != ""] = np.nan
        found.append(Bounds(value, ci, why, again))
    return Bounds(*(np.concatenate([getattr(b, name) for b in found]) for name in ("value", "ci", "why", "again")))


def _ends(
    one: Statistic, value: np.ndarray, metric: str, units: Units, resamples: int, level: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Replicates, ends of the intervals, and why there are none."""
    why = np.full(len(value), "", dtype=object)
    if isinstance(one, Sums) and one.pseudo is not None:
        sides: list[Side] = ["both", "low", "high", "none"]
        again, low, high, alone = _posterior(one, units.count, resamples, seed, sides)
        ends = [intervals(x, level=level, units=units.count)[:, i] for i, x in enumerate((low, high))]
        ci = np.stack(ends, axis=1)
        why = one.pseudo.silent(metric)
        if metric == "macro-f1":  # a mean of several ratios is biased, its replicates twice as much
            classes = (one.pseudo.known & one.pseudo.right).sum(1)
            ci = np.clip(ci - np.where(classes > 2, 2 * (alone.mean(1) - value), 0)[:, None], 0, 1)
            why[(units.rows / one.pseudo.size < 10 * classes) & (classes > 2)] = "fewer than 10 examples a class"
        return again, np.stack([np.fmin(ci[:, 0], value), np.fmax(ci[:, 1], value)], axis=1), why
    again, _ = replicated(one, units, resamples, seed)
    if metric in ("pearson", "spearman"):
        flat = np.ptp(np.nan_to_num(again), axis=1) < 1e-12
        why[flat] = "the predictions are all the same"
        why[np.abs(value) > 1 - 1e-9] = "the correlation is exact"
        return again, _by_fisher(value, again, level, units.count), why
    if isinstance(one, Sums) and metric in ("rmse", "log-loss"):
        ci, enough = _studentised(one, units, resamples, level, seed, squared=metric == "rmse")
        why[~enough] = "all examples err alike"
        return again, ci, why
    return again, intervals(again, level=level, units=units.count), why


def _by_fisher(value: np.ndarray, again: np.ndarray, level: float, units: int) -> np.ndarray:
    """Fisher's z with the spread of the replicates' (Fisher 1921; Efron & Tibshirani 1993, section 12.6), (F, 2)."""
    z, drawn = (np.arctanh(np.clip(r, -1 + 1e-12, 1 - 1e-12)) for r in (value, again))
    there, degrees = np.isfinite(drawn), max(1, units - 1)
    known = np.maximum(there.sum(1), 1)
    mean = np.where(there, drawn, 0).sum(1) / known
    spread = np.sqrt((np.where(there, drawn - mean[:, None], 0) ** 2).sum(1) / known)
    half = stats.t.ppf((1 + level) / 2, degrees) * np.sqrt(units / degrees) * spread
    half = np.where(2 * known >= again.shape[1], half, np.nan)
    return np.tanh(np.stack([z - half, z + half], axis=1))


def _studentised(
    one: Sums, units: Units, resamples: int, level: float, seed: int, *, squared: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Bootstrap-t intervals of a mean (Efron & Tibshirani 1993, section 12.5), and whether examples differ at all.

    The error of the error matters where tails are heavy: the intervals are wider by Student's t against the normal
    distribution, with so many degrees of freedom as the kurtosis leaves (Satterthwaite 1946).

    squared : of the root of a mean of squares, whose logarithm is studentised.
    """
    total, rows = one.by_unit()
    planes = (total, rows, total**2, total * rows, rows**2)

    def mean_and_error(sums: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        a, n, aa, an, nn = sums
        mean = a / n
        return mean, np.sqrt(np.maximum(aa - 2 * mean * an + mean**2 * nn, 0)) / n

    mean, error = mean_and_error([plane.sum(1, keepdims=True) for plane in planes])
    parts = []
    with np.errstate(invalid="ignore", divide="ignore"):
        for w in draws(units.count, resamples, seed):
            drawn, its = mean_and_error([plane @ w.astype(np.float64).T for plane in planes])
            parts.append((np.log(drawn / mean) * drawn if squared else drawn - mean) / its)
        t = np.concatenate(parts, axis=1)
        away = (total - mean * rows) ** 2
        kurtosis = units.count * (away**2).sum(1) / away.sum(1) ** 2
        degrees = np.clip(units.count / np.maximum(kurtosis - 1, 1), 1, max(1, units.count - 1))
        wider = stats.t.ppf((1 + level) / 2, degrees) / stats.norm.ppf((1 + level) / 2)
        ends = wider[:, None] * intervals(np.where(np.isfinite(t), t, np.nan), level=level)[:, ::-1]
        ci = np.sqrt(mean * np.exp(-ends * error / mean)) if squared else mean - ends * error
        if not squared and (total >= 0).all():
            ci = np.maximum(ci, 0)
    return ci, error[:, 0] > 1e-12 * np.abs(mean[:, 0])


def band(value: np.ndarray, ci: np.ndarray, again: np.ndarray, *, level: float = 0.95) -> np.ndarray:
    """Intervals that hold all F values at once with the probability ``level``, (F, 2): the single ones, widened.

    By how much is the largest of the fits' standardised deviations in a resample (max-t; Westfall & Young 1993,
    section 2.6): the more alike the fits, the less.
    """
    there = np.isfinite(ci).all(1)
    spread = again[there].std(1, keepdims=True)
    away = np.abs(again[there] - again[there].mean(1, keepdims=True))[spread[:, 0] > 0] / spread[spread > 0][:, None]
    if not len(away):
        return ci
    reach = np.quantile(np.fmax.reduce(away, axis=0), level) / stats.norm.ppf((1 + level) / 2)
    return value[:, None] + max(1.0, float(reach)) * (ci - value[:, None])


def intervals(replicated: np.ndarray, *, level: float = 0.95, units: int | None = None) -> np.ndarray:
    """Percentile intervals of F fits, (F, 2), from their replicates (F, resamples).

    Replicates that are undefined are left out; (NaN, NaN) where fewer than half remain.

    Parameters
    ----------
    units : int, optional
        How many examples or groups were drawn. The percentiles are then those of the expanded interval (Hesterberg
        2015, section 5.3), which makes up for the narrowness of few units; of 400 it differs in the third digit.
    """
    if units is not None and units < 2:  # one thing drawn again is that thing
        return np.full((len(replicated), 2), np.nan)
    if units is not None:
        level = 1 - 2 * float(stats.norm.cdf(np.sqrt(units / (units - 1)) * stats.t.ppf((1 - level) / 2, units - 1)))
    ordered = np.sort(replicated, axis=1)  # NaN last
    known = np.isfinite(ordered).sum(1)
    enough = (known > 0) & (2 * known >= replicated.shape[1])
    out = np.full((len(ordered), 2), np.nan)
    for side, share in enumerate(((1 - level) / 2, (1 + level) / 2)):
        at = share * (np.maximum(known, 1) - 1)
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(known, 1) - 1)
        rows = np.flatnonzero(enough)
        a, b = ordered[rows, low[rows]], ordered[rows, high[rows]]
        out[rows, side] = a + (at - low)[rows] * (b - a)
    return out
