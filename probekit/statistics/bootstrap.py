"""Intervals of metrics over the evaluated examples, for many fits at once, from their predictions.

Nothing is refitted, and every fit is evaluated on the same draws, so differences between fits are paired. The sampling
scheme depends on the metric:

- accuracy, F1, Matthews and the like are functions of a table of counts. Examples, or whole groups of them, get random
  weights of a gamma distribution (the Bayesian bootstrap, Rubin 1981), and so do pseudo-examples that add up to one
  right and one wrong answer (½ per cell for two classes, Jeffreys' prior). Resampling cannot produce outcomes that no
  example shows: from 60 right answers it always draws 60. A posterior of the table can.
- Differences of two such metrics come from a posterior of the joint table of both answers: on some pseudo-examples one
  fit is right and the other wrong.
- Other metrics are evaluated on examples drawn with replacement (Efron & Tibshirani 1993, chapter 13), and their
  intervals are studentised: correlations with Fisher's z, R² and mean absolute errors on a logarithmic scale, means of
  losses, squared errors and F1 of answers with their standard errors. Student's t has the degrees of freedom of the
  examples or groups that carry most of the spread.
- Metrics of scores, such as AUROC, have intervals of their own: see :mod:`probekit.statistics.scored` and
  :mod:`probekit.statistics.detection`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
from scipy import stats

from probekit.constraint import Natural, Share, check
from probekit.errors import UsageError
from probekit.statistics._additive import ADDITIVE
from probekit.statistics._sums import (
    BLOCK,
    FEWEST,
    Rows,
    Score,
    Side,
    Statistic,
    Units,
    UnitSums,
    freedom,
    scale,
    statistic,
)  # fmt: skip
from probekit.statistics.options import ResamplesOrNone
from probekit.statistics.over_labels import ALONE, OverLabels, combined, over_labels, rows_that_count
from probekit.statistics.scored import CALIBRATION, SCORED, SORTED, Scores, ends_of, ends_over_labels, statistic_of
from probekit.statistics.streams import uniform

UNTESTED = ("r2", "mean-absolute-error", CALIBRATION)
"""Metrics with intervals, but without the tests of those of `METRICS`."""
METRICS = (*(name for name in ADDITIVE if name not in UNTESTED), "spearman", "micro-f1", "uuas", *SORTED)
"""The metrics with vectorised resampling."""
KEPT = 1 << 26  # bytes of draws that are cached for the next call
FEW = 4
"""Degrees of freedom of squared errors below which the interval of their root has a warning."""
HEAVY = (
    "few examples carry most of the squared error: with such errors, intervals of rmse hold the truth in 90 to 94 % of "
    "samples, and those that miss it are too low"
)


COUNTED_AS = {"micro-f1": "f1", "uuas": "accuracy"}
"""Metrics that are another one on the same gold values and predictions: of pairs of a target and a label, micro F1; of
the edges of gold trees, which are found or not, UUAS."""


def replicates(
    gold: np.ndarray,
    predicted: np.ndarray,
    metric: str,
    *,
    resamples: int = 1000,
    seed: int = 0,
    by_name: bool = False,
    **more: Any,
) -> np.ndarray:
    """The metric of F fits in each resample of the examples, float64 (F, resamples); NaN if it is undefined.

    The draws depend only on the seed and the number of examples (groups): all fits, layers and models of a data set
    have the same ones in every call. With ``by_name`` they depend on the seed and the group alone, so that tasks share
    those of the groups that they share.

    Parameters
    ----------
    gold : np.ndarray
        (n,), or (F, n) if the fits have different target labels; class codes, or numbers.
    predicted : np.ndarray
        (F, n).
    metric : str
        One of METRICS, defined as in ``probekit.metrics``; "log-loss" is the mean of ``log_loss``, nats.
    by_name : bool
        Whether ``groups`` are those of :func:`probekit.statistics.shared_units.shared_units`.
    **more
        groups, log_loss, label_names, score, sentences, scores: see :func:`statistics`.

    Raises
    ------
    UsageError
        As in :func:`statistics`.
    """
    parts = statistics(gold, predicted, metric, **more)
    return np.concatenate([replicated(one, units, resamples, seed, by_name=by_name)[0] for units, one in parts])


def paired_replicates(
    gold: np.ndarray,
    predicted: np.ndarray,
    metric: str,
    *,
    resamples: int = 1000,
    seed: int = 0,
    by_name: bool = False,
    **more: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Like :func:`replicates`, for each fit as the first and as the second of a difference, (F, resamples) each.

    For metrics of counts the pseudo-examples are pairs: on some, one fit is right and the other is wrong, so two fits
    with the same predictions for all examples may still differ on others (Agresti & Min 2005; Bonett & Price 2012).
    """
    found, metric = [], COUNTED_AS.get(metric, metric)
    for units, one in statistics(gold, predicted, metric, **more):
        pair = replicated(one, units, resamples, seed, pairs=True, by_name=by_name)
        if isinstance(one, UnitSums) and one.pseudo is not None:
            pair[0][one.pseudo.silent(metric) != ""] = np.nan
            pair[1][one.pseudo.silent(metric) != ""] = np.nan
        found.append(pair)
    return np.concatenate([one for one, _ in found]), np.concatenate([other for _, other in found])


def is_counted(gold: np.ndarray, predicted: np.ndarray, metric: str, **more: Any) -> bool:
    """Whether intervals of the metric allow for what no example shows; arguments as in :func:`replicates`."""
    parts = statistics(gold, predicted, COUNTED_AS.get(metric, metric), **more)
    return all(isinstance(one, UnitSums) and one.pseudo is not None for _, one in parts)


def estimates(gold: np.ndarray, predicted: np.ndarray, metric: str, **more: Any) -> np.ndarray:
    """The metric of F fits on the examples without resampling, float64 (F,); arguments as in :func:`replicates`."""
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
    scores: Scores | None = None,
    of_label: np.ndarray | None = None,
) -> Iterator[tuple[Units, Statistic]]:
    """The metric as a function of how often each unit is drawn, a few fits at a time to save memory, in order.

    gold (n,) or (F, n), predicted (F, n) : as in :func:`replicates`. For "span-f1": lists of tag names, one per
        sentence, or codes of ``label_names``, one per word.

    Parameters
    ----------
    groups : np.ndarray, optional
        (n,), units that are drawn as a whole: the sentence of each word, the document …; None for single examples.
    log_loss : np.ndarray, optional
        (F, n), nats, for "log-loss".
    score : Score, optional
        The metric's function of (gold, predicted), both (n,). It is called once per fit and resample if the name is
        unknown, or if its value on the first fit differs from that of the named metric.
    sentences : np.ndarray, optional
        (n,), for "span-f1" the sentence of each word; None for the groups.
    scores : Scores, optional
        For metrics of scores.
    of_label : np.ndarray, optional
        Str (n,), the label that each row is about, where several can hold; see
        :mod:`probekit.statistics.over_labels`.

    Raises
    ------
    UsageError
        If shapes do not match, or the metric is unknown and no ``score`` is given.
    """
    metric = COUNTED_AS.get(metric, metric)
    if metric == "log-loss":
        if log_loss is None:
            raise UsageError("log-loss needs the losses of the examples (log_loss), but there are none.")
        predicted = log_loss
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    gold = gold[None] if gold.ndim == 1 else gold
    if predicted.ndim != 2 or gold.shape not in (predicted.shape, (1, predicted.shape[1])) or not predicted.size:
        raise UsageError(
            f"expected predictions (F, n) and gold (n,) or (F, n), got {predicted.shape} and {gold.shape}."
        )
    if of_label is not None and over_labels(metric, of_label):
        yield from _over_labels(gold, predicted, metric, of_label, groups, scores)
        return
    if metric in SCORED:
        yield from _of_scores(gold, metric, Units.of_groups(groups, predicted.shape[1]), scores)
        return
    if metric not in METRICS and score is None:
        raise UsageError(f"unknown metric {metric!r}; expected one of {', '.join(METRICS)}.")
    units = Units.of_groups(groups, predicted.shape[1])
    names = tuple(label_names) or _tag_names(metric, gold, predicted)
    known = metric in (*METRICS, *UNTESTED) and (
        score is None or _agree(metric, score, gold[0], predicted[0], units, names)
    )
    coded = metric in ("matthews", "macro-f1") and gold.dtype.kind in "iu"
    classes = 1 + int(gold.max()) - int(gold.min()) if coded else 1
    step = max(1, int(BLOCK // (max(units.count, units.rows // 8) * 3 * classes)))
    for at in range(0, len(predicted), step):
        g, p = (y if len(y) == 1 else y[at : at + step] for y in (gold, predicted))
        if known:
            yield units, statistic(metric, g, p, units, label_names=names, sentences=sentences)
        else:
            yield units, Rows(g, p, units, partial(_loop, score))  # type: ignore[arg-type]


def _of_scores(gold: np.ndarray, metric: str, units: Units, scores: Scores | None) -> Iterator[tuple[Units, Statistic]]:
    if scores is None:
        raise UsageError(
            f"{metric} needs probabilities of classes, and these predictions have none; choose another metric."
        )
    step = max(1, int(BLOCK // (8 * units.rows * scores.classes)))
    for at in range(0, len(scores.place), step):
        part = scores.part(at, at + step)
        yield units, statistic_of(metric, gold if len(gold) == 1 else gold[at : at + step], part, units)


def _over_labels(
    gold: np.ndarray, predicted: np.ndarray, metric: str, of_label: np.ndarray, groups: np.ndarray | None,
    scores: Scores | None,
) -> Iterator[tuple[Units, Statistic]]:  # fmt: skip
    labels, alone = rows_that_count(of_label, gold), ALONE.get(metric, metric)
    units = Units.of_groups(None if groups is None else groups[labels[0]], len(labels[0]))
    step = max(1, int(BLOCK // (48 * units.rows * len(labels))))
    for at in range(0, len(predicted), step):
        some, parts = slice(at, at + step), list[Statistic]()
        for rows in labels:
            y, p = gold[:, rows] if len(gold) == 1 else gold[some, rows], predicted[some, rows]
            if metric in SCORED:
                if scores is None:
                    raise UsageError(f"{metric} needs probabilities of labels, and these predictions have none.")
                parts.append(statistic_of(metric, y, scores.rows(rows).part(at, at + step), units))
            else:
                parts.append(statistic(alone, y, p, units))
        yield units, combined(metric, parts)


def _tag_names(metric: str, gold: np.ndarray, predicted: np.ndarray) -> tuple[str, ...]:
    if metric != "span-f1" or gold.dtype != object:
        return ()
    return tuple(sorted({tag for y in (gold, predicted) for row in y for tags in row for tag in tags}))


def _agree(
    metric: str, score: Score, gold: np.ndarray, predicted: np.ndarray, units: Units, names: Sequence[str]
) -> bool:
    if metric == "span-f1" and gold.dtype != object:  # codes by word, while the metric's function needs lists of names
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
    """Counts of ``units`` draws from ``units`` units, uint8 (resamples, units); counts above 255 do not occur."""
    counts = np.empty((resamples, units), dtype=np.uint8)
    step = max(1, (1 << 16) // units)  # fits into the processor's cache
    for at in range(0, resamples, step):
        drawn = rng.integers(units, size=(min(step, resamples - at), units), dtype=np.uint32).astype(np.int64)
        drawn += np.arange(len(drawn))[:, None] * units
        counts[at : at + step] = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
    return counts


def replicated(
    one: Statistic, units: Units, resamples: int, seed: int, *, pairs: bool = False, by_name: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The replicates of a metric of several fits, float64 (F, resamples), as first and as second of ``pairs``."""
    names = units.names if by_name else None
    if isinstance(one, UnitSums) and one.pseudo is not None:
        found = _posterior(one, units.count, resamples, seed, "pairs" if pairs else ("both",), names)
        return found[0], found[-1]
    drawn = draws(units.count, resamples, seed) if names is None else _draws_of(names, resamples, seed)
    again = np.concatenate([one.at(w) for w in drawn], axis=1)
    return again, again


def _draws_of(names: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each unit is drawn, by its name: Poisson variables of mean 1, float32 (resamples of this block, units).

    As many draws as units are expected, and metrics are ratios (Hanley & MacGibbon 2006).
    """
    shares, block = stats.poisson.cdf(np.arange(20), 1), max(1, BLOCK // (8 * len(names)))
    for at in range(0, resamples, block):
        u = uniform(names, at, min(at + block, resamples), (seed, 1))
        yield np.searchsorted(shares, u).astype(np.float32)


def unbiased(one: Statistic, value: np.ndarray, units: Units, resamples: int, seed: int) -> np.ndarray:
    """The replicates of a metric whose ``value`` (F,) is biased by products of proportions, float64 (F, resamples).

    On average the replicates of the examples add the same bias again, so twice their distance is subtracted.
    """
    if isinstance(one, UnitSums) and one.pseudo is not None:
        again, alone = _posterior(one, units.count, resamples, seed, ("both", "none"))
    else:
        again, alone = replicated(one, units, resamples, seed)
    return again - 2 * (np.nanmean(alone, axis=1) - value)[:, None]


def _posterior(
    one: UnitSums,
    units: int,
    resamples: int,
    seed: int,
    sides: Sequence[Side] | Literal["pairs"],
    names: np.ndarray | None = None,
) -> list[np.ndarray]:
    """The replicates of a metric of counts for each side, or as first and second of pairs, float64 (F, resamples)."""
    pseudo = one.pseudo
    assert pseudo is not None
    block, whole = max(1, BLOCK // (units if names is None else 8 * units)), scale(units)
    weights = np.random.default_rng([seed, 2])
    # pseudo-examples are the task's own, also where it shares sentences with others
    masses = np.random.default_rng([seed, 3] if names is None else [seed, 3, *names[:2].tolist(), units])
    out: list[list[np.ndarray]] = []
    for at in range(0, resamples, block):
        size = min(block, resamples - at)
        if names is None:
            w = np.rint(weights.standard_exponential((size, units), dtype=np.float32) * np.float32(whole))
        else:
            w = np.rint(-np.log(uniform(names, at, at + size, (seed, 2))).astype(np.float32) * np.float32(whole))

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
        (F,), on the examples without resampling.
    ci : np.ndarray
        (F, 2), NaN if there is no interval.
    why : np.ndarray
        Str (F,), the reason if there is no interval; "" if there is one or none was requested.
    warning : np.ndarray
        Str (F,), what an interval does not cover as often as it says; "" if it does.
    resampled : np.ndarray
        (F, resamples), as in :func:`replicates`.
    """

    value: np.ndarray
    ci: np.ndarray
    why: np.ndarray
    warning: np.ndarray
    resampled: np.ndarray


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
    """The metric of F fits, each with an interval for its value in the population of examples.

    Parameters
    ----------
    gold, predicted, metric, **more
        As in :func:`replicates`.
    resamples : int
        100 or more; 0 for no intervals.
    level : float
        Coverage of the intervals.

    Raises
    ------
    UsageError
        For 1 to 99 resamples, and as in :func:`replicates`.

    Notes
    -----
    Measured coverage by metric, prevalence and number of examples is in docs/calibration.md
    (benchmarks/rates/intervals.py). There is no interval with fewer than 5 groups; if the metric is undefined; for
    Matthews and macro-F1 with a single class; for F1 if class 1 (or spans) occurs in neither gold labels nor
    predictions; if a correlation is exact or the predictions are constant; if all errors are equal; and for macro-F1
    with fewer than 10 examples per class. Root mean squared errors whose squares have infinite variance (Student's t
    with 3 degrees of freedom) are covered in 80 to 90 %: a sample without outliers contains no information about them.
    """
    resamples, level = check("resamples", ResamplesOrNone, resamples), check("level", Share, level)
    check("seed", Natural, seed)
    found = []
    metric = COUNTED_AS.get(metric, metric)
    for units, one in statistics(gold, predicted, metric, **more):
        value = one.at(np.ones((1, units.count)))[:, 0]
        if not resamples:
            silent = np.full(len(value), "", dtype=object)
            found.append(Bounds(value, np.full((len(value), 2), np.nan), silent, silent, np.empty((len(value), 0))))
            continue
        again, ci, why = _ends(one, value, metric, units, resamples, level, seed)
        why[~np.isfinite(ci).all(1) & (why == "")] = "undefined in most resamples"
        why[np.isnan(value)] = "undefined on these examples"
        if units.count < FEWEST:
            why[:] = f"{units.count} {'examples' if units.of is None else 'groups'}; intervals need at least {FEWEST}"
        ci[why != ""] = np.nan
        warning = _heavy(one, metric, len(value))
        warning[why != ""] = ""
        found.append(Bounds(value, ci, why, warning, again))
    return Bounds(*(np.concatenate([getattr(b, name.name) for b in found]) for name in fields(Bounds)))


def _ends(
    one: Statistic, value: np.ndarray, metric: str, units: Units, resamples: int, level: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Replicates, ends of the intervals, and reasons for missing ones."""
    why = np.full(len(value), "", dtype=object)
    if isinstance(one, UnitSums) and one.pseudo is not None:
        sides: list[Side] = ["both", "low", "high", "none"]
        again, low, high, alone = _posterior(one, units.count, resamples, seed, sides)
        how: dict[str, Any] = {"level": level, "units": units.count, "degrees": one.pseudo.degrees}
        ends = [intervals(x, **how)[:, i] for i, x in enumerate((low, high))]
        ci = np.stack(ends, axis=1)
        why = one.pseudo.silent(metric)
        if metric == "macro-f1":  # a mean of several ratios is biased, and its replicates twice as much
            classes = (one.pseudo.known & one.pseudo.right).sum(1)
            ci = np.clip(ci - np.where(classes > 2, 2 * (alone.mean(1) - value), 0)[:, None], 0, 1)
            why[(units.rows / one.pseudo.size < 10 * classes) & (classes > 2)] = "fewer than 10 examples a class"
        return again, np.stack([np.fmin(ci[:, 0], value), np.fmax(ci[:, 1], value)], axis=1), why
    again, _ = replicated(one, units, resamples, seed)
    if metric in SCORED and isinstance(one, OverLabels):
        ci, why = ends_over_labels(metric, [p for p in one.parts if isinstance(p, Rows)], value, again, units, level)
        return again, ci, why
    if metric in SCORED and isinstance(one, Rows):
        return again, *ends_of(metric, one, value, again, units, level, seed)
    if metric in ("pearson", "spearman", "quadratic-kappa"):
        flat = np.ptp(np.nan_to_num(again), axis=1) < 1e-12
        why[flat] = "the predictions are all the same"
        why[np.abs(value) > 1 - 1e-9] = "the correlation is exact"
        return again, by_spread(metric, value, again, level, _influence(one)), why
    if isinstance(one, UnitSums) and (metric in UNTESTED or (metric == "rmse" and len(one.cuts) > 3)):
        why[~(value < 1) if metric == "r2" else value == 0] = "all errors are 0"
        return again, by_spread(metric, value, again, level, one.influence()), why
    if isinstance(one, UnitSums) and metric in ("rmse", "log-loss"):
        ci, enough = _studentised(one, units, resamples, level, seed, squared=metric == "rmse")
        why[~enough] = "all examples have the same error"
        return again, ci, why
    if isinstance(one, UnitSums) and metric.startswith(("answer-f1", "chrf")):
        ci, enough = _studentised(one, units, resamples, level, seed, squared=False)
        why[~enough] = "all examples have the same value"
        return again, np.minimum(ci, 1), why
    return again, intervals(again, level=level, units=units.count), why


SCALES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    **dict.fromkeys(
        ("pearson", "spearman", "quadratic-kappa"), (lambda r: np.arctanh(np.clip(r, -1 + 1e-12, 1 - 1e-12)), np.tanh)
    ),
    "r2": (lambda r: -np.log(np.maximum(1 - r, 1e-300)), lambda z: 1 - np.exp(-z)),
    **dict.fromkeys(("mean-absolute-error", "rmse"), (lambda x: np.log(np.maximum(x, 1e-300)), np.exp)),
}
"""The scales on which intervals of metrics are symmetric, and back; that of correlations is Fisher's (1921) z."""


def by_spread(metric: str, value: np.ndarray, again: np.ndarray, level: float, influence: np.ndarray) -> np.ndarray:
    """The replicates' spread on the metric's scale, times Student's t, (F, 2).

    (Efron & Tibshirani 1993, section 12.6.) ``influence`` (F, units) : what units add to the metric. If few of them
    carry most of the spread, as where groups are of very unequal size, it has few degrees of freedom.
    """
    units, degrees = influence.shape[1], freedom(influence)
    to, back = SCALES[metric]
    z, drawn = to(value), to(again)
    there = np.isfinite(drawn)
    known = np.maximum(there.sum(1), 1)
    mean = np.where(there, drawn, 0).sum(1) / known
    spread = np.sqrt((np.where(there, drawn - mean[:, None], 0) ** 2).sum(1) / known)
    half = stats.t.ppf((1 + level) / 2, degrees) * np.sqrt(units / max(1, units - 1)) * spread
    half = np.where(2 * known >= again.shape[1], half, np.nan)
    return back(np.stack([z - half, z + half], axis=1))


def _influence(one: Statistic) -> np.ndarray:
    """That of each unit on a correlation, (F, units); for Spearman's, on Pearson's of the ranks."""
    if isinstance(one, UnitSums):
        return one.influence()
    if isinstance(one, OverLabels):
        return np.asarray(np.mean([_influence(part) for part in one.parts], axis=0))
    assert isinstance(one, Rows)
    gold, predicted = (np.asarray(stats.rankdata(x, axis=1)) for x in (one.gold, one.predicted))
    of_ranks = statistic("pearson", gold, predicted, one.units)
    assert isinstance(of_ranks, UnitSums)
    return of_ranks.influence()


def _heavy(one: Statistic, metric: str, fits: int) -> np.ndarray:
    """The warning of root mean squared errors, (F,); "" of others, and where many examples (groups) carry them."""
    if metric != "rmse" or not isinstance(one, UnitSums) or len(one.cuts) > 3:
        return np.full(fits, "", dtype=object)
    total, rows = one.by_unit()
    away = total - total.sum(1, keepdims=True) / rows.sum(1, keepdims=True) * rows
    return np.where(freedom(away) < FEW, HEAVY, "").astype(object)


def _studentised(
    one: UnitSums, units: Units, resamples: int, level: float, seed: int, *, squared: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Bootstrap-t intervals of a mean (Efron & Tibshirani 1993, section 12.5), and whether examples differ at all.

    With heavy tails the error of the standard error matters: the intervals are widened by the ratio of Student's t to
    normal quantiles, with degrees of freedom from the kurtosis (Satterthwaite 1946).

    squared : for the root of a mean of squares, whose logarithm is studentised.
    """
    total, rows = one.by_unit()
    planes = (total, rows, total**2, total * rows, rows**2)

    def mean_and_error(sums: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        a, n, aa, an, nn = sums
        mean = a / n
        return mean, np.sqrt(np.maximum(aa - 2 * mean * an + mean**2 * nn, 0)) / n

    mean, error = mean_and_error([plane.sum(1, keepdims=True) for plane in planes])
    parts = []
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for w in draws(units.count, resamples, seed):
            drawn, its = mean_and_error([plane @ w.astype(np.float64).T for plane in planes])
            parts.append((np.log(drawn / mean) * drawn if squared else drawn - mean) / its)
        t = np.concatenate(parts, axis=1)
        wider = stats.t.ppf((1 + level) / 2, freedom(total - mean * rows)) / stats.norm.ppf((1 + level) / 2)
        ends = wider[:, None] * intervals(np.where(np.isfinite(t), t, np.nan), level=level)[:, ::-1]
        ci = np.sqrt(mean * np.exp(-ends * error / mean)) if squared else mean - ends * error
        if not squared and (total >= 0).all():
            ci = np.maximum(ci, 0)
    return ci, error[:, 0] > 1e-12 * np.abs(mean[:, 0])


def band(value: np.ndarray, ci: np.ndarray, again: np.ndarray, *, level: float = 0.95) -> np.ndarray:
    """Simultaneous intervals for all F values with coverage ``level``, (F, 2): the single ones, widened.

    The factor comes from the largest standardised deviation of the fits in each resample (max-t; Westfall & Young 1993,
    section 2.6): the more similar the fits, the smaller it is.
    """
    there = np.isfinite(ci).all(1)
    spread = again[there].std(1, keepdims=True)
    away = np.abs(again[there] - again[there].mean(1, keepdims=True))[spread[:, 0] > 0] / spread[spread > 0][:, None]
    if not len(away):
        return ci
    reach = np.quantile(np.fmax.reduce(away, axis=0), level) / stats.norm.ppf((1 + level) / 2)
    return value[:, None] + max(1.0, float(reach)) * (ci - value[:, None])


def intervals(
    replicated: np.ndarray, *, level: float = 0.95, units: int | None = None, degrees: np.ndarray | None = None
) -> np.ndarray:
    """Percentile intervals of F fits, (F, 2), from their replicates (F, resamples).

    Undefined replicates are left out; (NaN, NaN) if fewer than half remain.

    Parameters
    ----------
    units : int, optional
        Number of examples or groups drawn. The percentiles are then those of the expanded interval (Hesterberg 2015,
        section 5.3), which corrects for intervals that are too narrow with few units; for 400 units the third digit
        changes.
    degrees : np.ndarray, optional
        (F,), degrees of freedom of the spread between units, by default ``units`` - 1.
    """
    if units is not None and units < 2:  # resampling one unit always gives the same unit
        return np.full((len(replicated), 2), np.nan)
    tail = np.full(len(replicated), (1 - level) / 2)
    if units is not None:
        t = stats.t.ppf((1 - level) / 2, units - 1 if degrees is None else degrees)
        tail[:] = stats.norm.cdf(np.sqrt(units / (units - 1)) * t)
    ordered = np.sort(replicated, axis=1)  # NaN last
    known = np.isfinite(ordered).sum(1)
    enough = (known > 0) & (2 * known >= replicated.shape[1])
    out = np.full((len(ordered), 2), np.nan)
    for side, share in enumerate((tail, 1 - tail)):
        at = share * (np.maximum(known, 1) - 1)
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(known, 1) - 1)
        rows = np.flatnonzero(enough)
        a, b = ordered[rows, low[rows]], ordered[rows, high[rows]]
        out[rows, side] = a + (at - low)[rows] * (b - a)
    return out
