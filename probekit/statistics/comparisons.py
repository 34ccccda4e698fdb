"""Paired differences: between layers, between models, and against controls, corrected over the layers of a curve.

All fits are evaluated on the same examples and the same draws, so effects of the examples (easy or hard ones) cancel.
The test asks whether *these fitted probes* differ on examples like these. The p-value does not cover the variation from
training or shuffling again; use several seeds for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from probekit.errors import UsageError
from probekit.metrics import derive
from probekit.metrics import metric as metric_called
from probekit.rows import make_rows
from probekit.rows.families import ALPHA
from probekit.statistics._sums import Units
from probekit.statistics.bootstrap import FEWEST, estimates, intervals, paired_replicates
from probekit.statistics.contrasts import Contrast, contrasts, family, fitting_metric, nothing_to_compare
from probekit.statistics.multiplicity import adjust, critical, holm, joint_level, tails
from probekit.statistics.options import CompareOptions, Correction, Tails
from probekit.statistics.permutation import BLOCK, Chance, exchanged, of_controls
from probekit.statistics.predictions import Predictions, join
from probekit.statistics.relabelling import above_chance, relabelled
from probekit.statistics.scored import SORTED

if TYPE_CHECKING:
    import pandas as pd

FINE = 10_000
"""Exchanges, if memory allows: with many pairs the smallest p is in the far tail, which needs many draws."""
NEXT_TO_0 = 1e-12
"""The end of an interval that touches 0 from outside."""
RANKED = 19
"""Minimum number of draws of a control for a test by rank: p is at least 1 / (1 + draws)."""


class Null(StrEnum):
    """The null hypotheses of p-values."""

    EXCHANGEABLE = "predictions exchangeable"
    INDEPENDENT = "labels independent of predictions"
    CONTROL = "outcomes exchangeable with the control's"
    RANK = "gold labels like shuffled ones"
    INITIALISATIONS = "no difference over initialisations"

    @property
    def sentence(self) -> str:
        """The null hypothesis in words."""
        return {
            Null.EXCHANGEABLE: "p: the probability of a difference at least as large if predictions are randomly "
            "exchanged between the fits, example by example.",
            Null.INDEPENDENT: "p: the probability that permuted labels give as good a value with the same "
            "predictions. The value and its interval are differences from the mean for such labels.",
            Null.CONTROL: "p: the probability of a difference at least as large if label and prediction are randomly "
            "exchanged between gold and control, example by example (or sentence by sentence).",
            Null.INITIALISATIONS: "p: the probability of a difference at least as large if predictions are randomly "
            "exchanged between the fits, example by example, plus an error from Student's t for the mean over "
            "initialisations.",
            Null.RANK: "p: from the rank of gold labels among the shuffled labels that probes were trained on. Ranks "
            "have no interval.",
        }[self]


@dataclass(frozen=True, slots=True)
class Family:
    """Differences that are corrected together. Arrays (K,), intervals (K, 2).

    Attributes
    ----------
    value : np.ndarray
        Estimates.
    ci : np.ndarray
        Single intervals.
    joint : np.ndarray
        Simultaneous intervals (step-down correction), or NaN.
    p, p_adjusted : np.ndarray
        Single and corrected p-values.
    """

    value: np.ndarray
    ci: np.ndarray
    joint: np.ndarray
    p: np.ndarray
    p_adjusted: np.ndarray


@dataclass(frozen=True, slots=True)
class Noise:
    """Fits of gold labels beside what permuted labels reach with the same predictions.

    Attributes
    ----------
    above : Family
        The metric minus its mean for permuted labels, and the test that it is better (one-sided).
    mean : np.ndarray
        (K,), that mean.
    edge : np.ndarray
        (K,), the value that a fit must exceed (if lower is better: stay below) for a corrected p of at most
        1 - ``level``; the metric's best possible value if there are too few draws for that.
    tails : tuple of ndarray
        p before correction, (K,), and that of each draw, (K, R), from which larger families correct.
    beyond : callable
        For such a family: from the p below which each fit is rejected, (K,), to its edges, (K,).
    """

    above: Family
    mean: np.ndarray
    edge: np.ndarray
    tails: tuple[np.ndarray, np.ndarray]
    beyond: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Drawn:
    """K differences, their null distribution, and their replicates.

    Attributes
    ----------
    value : np.ndarray
        (K,).
    resampled : np.ndarray
        (K, resamples).
    chance : Chance
        The test statistics, (K,), and their draws under the null, (K, R).
    units : int
        Examples or groups.
    sign : int
        1 if large differences favour the first, -1 if small ones do, 0 for a two-sided test.
    centre : np.ndarray, optional
        (K,), the expected statistics under the null; None for the mean of the draws and the statistic.
    """

    value: np.ndarray
    resampled: np.ndarray
    chance: Chance
    units: int
    sign: int
    centre: np.ndarray | None = None


def compare_predictions(
    evaluated: Predictions, other: Predictions | None = None, options: CompareOptions = CompareOptions()
) -> pd.DataFrame:
    """Rows of differences: each layer of each curve minus its reference, on the same examples.

    Parameters
    ----------
    evaluated : Predictions
        Predictions of layers, or of whole models.
    other : Predictions, optional
        A second table for the same examples. Without ``against``, the curves of ``evaluated`` minus those of ``other``
        (pretrained against fine-tuned), layer by layer; for whole models, as training runs write them, the first minus
        the mean of the others. With "random", the table with the random model.
    options : CompareOptions
        ``against``: "layer-0" (any "layer-NAME"), the layer with this name in the same curve; "best", its best layer;
        "permuted", the labels of the same examples in another order; "control-task", the mean over the draws of control
        tasks on the same layer (with "token-accuracy" if the main metric counts spans, unless you name a metric);
        "random", the same layer of the model with random weights; "bag-of-pieces", the probe on the word pieces that
        occur; "tf-idf-of-pieces", that on their tf-idf and that of neighbours; "majority", the most frequent class (by
        accuracy); "type-majority", that of each word. Default without ``other``: "layer-0".

    Returns
    -------
    DataFrame
        Rows, layers in their order: metric "difference(NAME)", value, ci_low and ci_high (a single interval), p, and
        the columns against, null (the null hypothesis of p), p_adjusted, correction, family (what is corrected
        together), joint_low and joint_high (simultaneous interval for the family with coverage ``level``; step-down
        only).

    Raises
    ------
    UsageError
        If there is nothing to compare with, the metric does not fit the labels, or the tables hold different examples.

    Notes
    -----
    Between fits (layers, models) the null is that predictions are exchangeable: for each example (group) it is drawn at
    random which of the two predictions belongs to the first fit, and both metrics are computed again
    (:func:`probekit.statistics.permutation.exchanged`). For accuracy and log-loss this flips the signs of the examples'
    differences; for ratios such as F1 or Matthews' coefficient it does not.

    Against "permuted" the null is that labels are independent of the predictions: labels are permuted (those of a group
    together), in the same way for all layers, and the metric is computed with the unchanged predictions
    (:func:`probekit.statistics.relabelling.relabelled`). Value and interval answer the same question: the metric minus
    its mean for independent labels and predictions with the same frequencies
    (:func:`probekit.statistics.relabelling.above_chance`). The distance from probes *trained* on shuffled labels is a
    different number, "above-shuffled" in rows of ``probe``: these probes may choose another penalty, so the two fits
    may differ even on a layer without information.

    Against "control-task" the label moves with the prediction: the null is that gold labels are predicted as well as
    those of the control task on the same examples.

    Against "random" several initialisations count as one model: the reference is their mean, whose error (Student's t
    over the seeds) is included in p and in the intervals.

    ``p_adjusted`` is corrected over the layers of a curve, or over ``family``: step-down min-p (Westfall & Young
    1993, algorithm 2.8) or Holm (1979). Against "best" all pairs of layers form one family, since the best layer
    was selected from the data. The test decides whether an interval holds 0: the single one excludes 0 exactly
    where p is at most 1 - ``level``, the joint one where p_adjusted is; the rest of the interval is from resamples.
    For metrics of counts they come from a posterior of the joint table of both fits' answers
    (:func:`probekit.statistics.bootstrap.paired_replicates`): two fits with the same predictions for n examples may
    differ by about 3 / n. Losses and errors of fits with the same predictions have no interval, and neither have
    ranks.
    """
    return compare_tables([(evaluated, other)], options)


def compare_tables(
    tables: Sequence[tuple[Predictions, Predictions | None]], options: CompareOptions = CompareOptions()
) -> pd.DataFrame:
    """Rows for several tables, as in :func:`compare_predictions`; ``family`` may include all of them."""
    found: list[tuple[Predictions, Contrast, str, Null, Drawn]] = []
    for evaluated, other in tables:
        both = evaluated if other is None else join(evaluated, other)
        metric = fitting_metric(both, options.metric)
        against = options.against or ("layer-0" if other is None else "other")
        if options.metric is None and against == "control-task" and metric_called(metric).spans:
            metric = "token-accuracy"  # the control's spans differ from gold's
        held = list(contrasts(both, against, metric))
        if not held:
            raise UsageError(nothing_to_compare(against, both))
        for contrast in held:
            null = _null_of(both, contrast, against, metric)
            found.append((both, contrast, metric, null, _drawn(both, contrast.pairs, metric, null, options)))
    families: dict[Any, list[int]] = {}
    for i, (both, contrast, *_) in enumerate(found):
        families.setdefault(family(both, contrast, options.family) or i, []).append(i)
    judged: dict[int, Family] = {}
    for members in families.values():
        judged |= dict(zip(members, _judged([found[i][-1] for i in members], options), strict=True))
    records: list[dict[str, Any]] = []
    for i, (both, contrast, metric, null, _) in enumerate(found):
        result = judged[i]
        for k, (fit, _others) in enumerate(contrast.pairs[: contrast.shown]):
            of: dict[Any, Any] = both.fits.iloc[fit].drop(labels="source", errors="ignore").to_dict()
            records.append(
                {
                    **of,
                    **{"analysis": "compare", "n": both.examples, "against": contrast.against},
                    **difference_columns(result, k, metric, null, options),
                }
            )
    return make_rows(records)


def difference_columns(
    judged: Family, k: int, metric: str, null: str, options: CompareOptions
) -> dict[str, str | float]:
    """The columns of a row for one difference of a family: value, intervals, p, and how they were found."""
    return {
        **{"metric": derive("difference", metric), "value": judged.value[k], "p": judged.p[k]},
        **{"ci_low": judged.ci[k, 0], "ci_high": judged.ci[k, 1], "p_adjusted": judged.p_adjusted[k]},
        **{"joint_low": judged.joint[k, 0], "joint_high": judged.joint[k, 1], "null": str(null)},
        **{"correction": str(options.correction), "family": str(options.family)},
    }


def paired(
    evaluated: Predictions,
    pairs: list[tuple[int, list[int]]],
    metric: str,
    *,
    null: Null = Null.EXCHANGEABLE,
    options: CompareOptions = CompareOptions(),
) -> Family:
    """Each fit minus the mean of others, K differences as one family; see :func:`compare_predictions`."""
    return _judged([_drawn(evaluated, pairs, metric, null, options)], options)[0]


def above_noise(
    evaluated: Predictions, fits: Sequence[int], metric: str, *, draws: int, seed: int, level: float = 0.95
) -> Noise:
    """Fits of gold labels beside permuted labels: what they reach, and whether each fit is better.

    The numbers of :func:`compare_predictions` against "permuted" with ``tails`` "better". Value, interval, p and the
    edge of the noise are made from the same permutations, so that they agree: a fit is beyond the edge exactly where
    its corrected p is at most 0.05, whatever the ``level`` of the intervals.
    """
    options = CompareOptions(tails=Tails.BETTER, resamples=draws, seed=seed, level=level)
    one = _drawn(evaluated, [(int(f), []) for f in fits], metric, Null.INDEPENDENT, options)
    above = _judged([one], options)[0]
    p, by_chance = tails(*in_deviations(*one.chance, one.sign, one.centre))
    null = np.sort(one.sign * np.nan_to_num(one.chance[1], nan=one.sign * np.inf), axis=1)

    def beyond(limit: np.ndarray) -> np.ndarray:
        # rank - 1 draws may be as good as the value, and p is still below the limit
        rank = np.ceil(limit * (1 + draws) - 1 - 1e-6).astype(int)
        edge = one.sign * np.where(rank > 0, null[np.arange(len(limit)), -np.maximum(rank, 1)], np.inf)
        return np.clip(edge, *metric_called(metric).range)

    edge = beyond(critical(p, by_chance, ALPHA))
    return Noise(above, one.chance[0] - above.value, edge, (p, by_chance), beyond)


def _null_of(e: Predictions, contrast: Contrast, against: str, metric: str) -> Null:
    """The null hypothesis of a contrast."""
    if against == "random" and {len(others) for _, others in contrast.pairs} not in ({0}, {1}):
        return Null.INITIALISATIONS
    if against != "permuted":
        return Null.CONTROL if against == "control-task" else Null.EXCHANGEABLE
    if metric != "log-loss" or e.probabilities is not None:
        return Null.INDEPENDENT
    if (draws := min(len(others) for _, others in contrast.pairs)) >= RANKED:
        return Null.RANK
    raise UsageError(
        "log-loss against shuffled labels needs predicted probabilities, which these files do not contain, or "
        f"{RANKED} draws of shuffled labels, but there are {draws}; run probekit probe again, which "
        "writes probabilities, or choose another metric."
    )


def _drawn(
    e: Predictions, pairs: list[tuple[int, list[int]]], metric: str, null: Null, options: CompareOptions
) -> Drawn:
    """Each fit minus the mean of others: measured, under the null, and resampled."""
    used = sorted({f for one, others in pairs for f in (one, *others)})
    part, place = e.take(used), {f: i for i, f in enumerate(used)}
    at = [(place[one], [place[f] for f in others]) for one, others in pairs]

    def minus(of: np.ndarray, of_others: np.ndarray) -> np.ndarray:
        return np.stack([of[one] - of_others[others].mean(0) for one, others in at])

    units = Units.of_groups(part.groups, len(part.ids)).count
    sign = 0 if options.tails is Tails.TWO_SIDED else metric_called(metric).sign
    of_examples: dict[str, Any] = {"resamples": options.resamples, "seed": options.seed}
    if null is Null.INDEPENDENT:
        fits = [one for one, _ in at]
        chance = relabelled(part, fits, metric, draws=options.resamples, seed=options.seed)
        value, again = above_chance(part, fits, metric, chance, **of_examples)
        return Drawn(value, again, chance, units, sign, chance[0] - value)
    measured = estimates(metric=metric, **part.sample())
    value = minus(measured, measured)
    if null is Null.RANK:
        return Drawn(value, np.full((len(at), options.resamples), np.nan), of_controls(part, at, metric), units, sign)
    slow = metric in SORTED and metric != "auroc"  # each draw sorts the scores
    draws = options.resamples if slow else max(options.resamples, min(FINE, BLOCK // units))
    chance = exchanged(part, at, metric, draws=draws, seed=options.seed)
    again = minus(*paired_replicates(metric=metric, **part.sample(), **of_examples))
    if null is Null.INITIALISATIONS:
        seeds = [measured[others] for _, others in at]
        rng = np.random.default_rng([options.seed, 3])
        again, by_chance = (part + _error_of_means(seeds, part.shape[1], rng) for part in (again, chance[1]))
        chance = chance[0], by_chance
    return Drawn(value, again, chance, units, sign, np.zeros(len(value)))


def _error_of_means(seeds: Sequence[np.ndarray], draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of the error of means over seeds, (K, draws), from the metrics of each one's seeds, K arrays (k,).

    Each is Student's t with k - 1 degrees of freedom times the standard error; errors of one draw are dependent, like
    the layers of a seed (multivariate t). Layers may have different numbers of seeds if the first ones agree.
    """
    out = np.empty((len(seeds), draws))
    most = max(len(one) for one in seeds)
    normal, uniform = rng.normal(size=(draws, most)), rng.random(draws)
    for own, one in zip(out, seeds, strict=True):
        k = len(one)
        if k < 2:
            raise UsageError("the error of a mean over initialisations needs at least two of them for each layer.")
        chi2 = stats.chi2.ppf(uniform, k - 1)
        own[:] = normal[:, :k] @ (one - one.mean()) / np.sqrt(k * chi2)
    return out


def _judged(drawn: Sequence[Drawn], options: CompareOptions) -> list[Family]:
    """p-values and intervals of differences that form one family."""
    draws = sorted({one.chance[1].shape[1] for one in drawn})
    if len(draws) > 1 and draws[0] < options.resamples:  # a rank among few
        raise UsageError(
            f"the curves of a family have {draws[0]} and {draws[-1]} draws under the null, and the smallest number "
            "would limit all of them; correct each curve separately (--family curve), or run probekit probe again for "
            "those without stored probabilities."
        )
    sizes = [in_deviations(one.chance[0], one.chance[1][:, : draws[0]], one.sign, one.centre) for one in drawn]
    size, drawn_size = (np.concatenate(part) for part in zip(*sizes, strict=True))
    p, by_chance = tails(size, drawn_size)
    step_down = options.correction is not Correction.HOLM
    if options.correction is Correction.MAX_T:
        undefined = np.isnan(size)[:, None]  # does not affect the others
        p_adjusted = adjust(-size, -np.where(undefined, -np.inf, np.nan_to_num(drawn_size, nan=np.inf)))
    else:
        p_adjusted = adjust(p, by_chance) if step_down else holm(p)
    wide = joint_level(np.concatenate([one.resampled for one in drawn]), options.level) if step_down else np.nan
    families, start = [], 0
    for one in drawn:
        own = slice(start, start := start + len(one.value))
        ci = _agreeing(_around(one, options.level), one, p[own], 1 - options.level)
        joint = np.full_like(ci, np.nan)
        if step_down:
            joint = _agreeing(_around(one, wide), one, p_adjusted[own], 1 - options.level)
        families.append(Family(one.value, ci, joint, p[own], p_adjusted[own]))
    return families


def _around(one: Drawn, level: float) -> np.ndarray:
    """Intervals around the measured values, (K, 2).

    NaN with fewer than 5 groups, and if the replicates have no spread except rounding.
    """
    low, high = intervals(one.resampled, level=level, units=one.units).T
    known = (high - low > 1e-9 * np.abs(one.chance[0])) & (one.units >= FEWEST)
    ends = np.fmin(low, one.value), np.fmax(high, one.value)
    return np.stack([np.where(known, end, np.nan) for end in ends], axis=1)


def _agreeing(ends: np.ndarray, one: Drawn, p: np.ndarray, alpha: float) -> np.ndarray:
    """Intervals, (K, 2), in which the test decides about 0: they exclude it exactly where p is at most ``alpha``.

    A one-sided test excludes it on its side only. An end moves to 0 and no further, so an interval misses a true
    difference of 0 only where the test errs, and any other no more often than before (as the bounds of Strassburger &
    Bretz 2008, section 2, for corrected tests).
    """
    low, high = ends.T.copy()
    for side, end in ((1, low), (-1, high)):
        beyond = (p <= alpha + 1e-12) & (side * one.value > 0) & (one.sign in (0, side))
        end[beyond] = side * np.maximum(side * end[beyond], NEXT_TO_0)
        end[~beyond] = side * np.minimum(side * end[~beyond], 0)
    return np.stack([low, high], axis=1)


def in_deviations(observed: np.ndarray, null: np.ndarray, sign: int, centre: np.ndarray | None = None) -> Chance:
    """Test statistics and draws, in standard deviations of all of them, in the direction of the alternative.

    Two-sided ones are distances from ``centre``, which is known if outcomes are exchanged or labels permuted: the mean
    of the draws deviates by chance and would favour one of two equal sides. If nothing varies under the null, up to
    rounding, the statistic is 0.
    """
    every = np.concatenate([observed[:, None], null], axis=1)
    known = np.isfinite(every)
    held = np.where(known, every, 0.0)
    count = np.maximum(known.sum(1, keepdims=True), 1)
    mean = held.sum(1, keepdims=True) / count if centre is None else centre[:, None]
    spread = np.sqrt((np.where(known, every - mean, 0) ** 2).sum(1, keepdims=True) / count)
    flat = spread <= 1e-9 * np.maximum(1, np.abs(mean))
    size = np.where(flat & known, 0.0, (every - mean) / np.where(flat, 1, spread))
    size = np.abs(size) if sign == 0 else sign * size
    return size[:, 0], size[:, 1:]
