"""Paired differences: between layers, between models, and against controls, corrected over the layers of a curve.

All fits were evaluated on the same examples and meet the same draws of chance, so what examples share (being easy,
being hard) cancels. What is tested is whether *these fitted probes* differ on examples like these; that training them
again, or shuffling again, would give other probes is not in the p-value: give several seeds for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from probekit.errors import UsageError
from probekit.metrics import derive
from probekit.metrics import metric as metric_called
from probekit.rows import make_rows
from probekit.statistics._sums import Units
from probekit.statistics.bootstrap import FEWEST, estimates, intervals, paired_replicates
from probekit.statistics.contrasts import Contrast, contrasts, family, fitting_metric, remedy, there
from probekit.statistics.multiplicity import adjust, holm, joint_level, tails
from probekit.statistics.options import CompareOptions, Correction, Tails
from probekit.statistics.permutation import BLOCK, Chance, exchanged, of_controls
from probekit.statistics.predictions import Predictions, join
from probekit.statistics.relabelling import above_chance, relabelled

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Family", "Null", "above_noise", "compare_predictions", "compare_tables", "paired"]

FINE = 10_000
"""Exchanges, as far as there is room: of many pairs the smallest p is in a tail of which few draws tell little."""
RANKED = 19
"""Draws of a control from which the rank of gold among them tells something: p is 1 / (1 + draws) at best."""


class Null(StrEnum):
    """What p-values are probabilities under."""

    EXCHANGEABLE = "predictions exchangeable"
    INDEPENDENT = "labels independent of predictions"
    CONTROL = "outcomes exchangeable with the control's"
    RANK = "gold labels like shuffled ones"
    INITIALISATIONS = "no difference over initialisations"

    @property
    def sentence(self) -> str:
        """What is tested, for people."""
        return {
            Null.EXCHANGEABLE: "p: how often a difference as large comes about when it is drawn for each example which "
            "of the fits said what.",
            Null.INDEPENDENT: "p: how often permuted labels are predicted as well, the predictions staying what they "
            "are. The value and its interval are of the distance to what such labels give on average.",
            Null.CONTROL: "p: how often a difference as large comes about when it is drawn for each example (sentence) "
            "which label and prediction are gold's, and which the control's.",
            Null.INITIALISATIONS: "p: how often a difference as large comes about when it is drawn for each example "
            "which of the fits said what, and from Student's t how far the mean over initialisations is off.",
            Null.RANK: "p: the rank of gold labels among the shuffled ones that probes were trained on. There is no "
            "interval: a rank has none.",
        }[self]


@dataclass(frozen=True, slots=True)
class Family:
    """Differences that are corrected together. Arrays (K,), intervals (K, 2).

    Attributes
    ----------
    value : np.ndarray
        Estimates.
    ci : np.ndarray
        Intervals of each one alone.
    joint : np.ndarray
        All at once (step-down correction), or NaN.
    p, p_adjusted : np.ndarray
        Of each one alone, and corrected.
    """

    value: np.ndarray
    ci: np.ndarray
    joint: np.ndarray
    p: np.ndarray
    p_adjusted: np.ndarray


@dataclass(frozen=True, slots=True)
class Drawn:
    """K differences, what chance makes of what was tested, and their replicates.

    Attributes
    ----------
    value : np.ndarray
        (K,).
    again : np.ndarray
        (K, resamples).
    chance : Chance
        What was tested, (K,), and its draws (K, R).
    units : int
        Examples or groups.
    sign : int
        1 where large differences speak for the first, -1 where small ones do, 0 where either way counts.
    centre : np.ndarray, optional
        (K,), what chance gives on average; the mean of the draws, the tested one among them, without it.
    """

    value: np.ndarray
    again: np.ndarray
    chance: Chance
    units: int
    sign: int
    centre: np.ndarray | None = None


def compare_predictions(
    evaluated: Predictions, other: Predictions | None = None, options: CompareOptions = CompareOptions()
) -> pd.DataFrame:
    """Rows of differences: each layer of each curve minus what it is held against, on the same examples.

    Parameters
    ----------
    evaluated : Predictions
        Of layers, or of whole models.
    other : Predictions, optional
        A second table, of the same examples. Without ``against``, the curves of ``evaluated`` minus those of ``other``
        (pretrained against fine-tuned), layer by layer; of whole models, as training runs leave them, the first minus
        the mean of the others; with "random", where the random model is.
    options : CompareOptions
        ``against``: "layer-0" (any "layer-NAME"), the same curve's layer of that name; "best", its best layer;
        "shuffled", labels that have nothing to do with what is predicted; "control-task", the mean over the draws of
        control tasks on the same layer (by "token-accuracy" where the main metric counts spans, unless another is
        asked for); "random", the same layer of the model with random weights. "layer-0" where neither this nor
        ``other`` is given.

    Returns
    -------
    DataFrame
        Rows, layers in their order: metric "difference(NAME)", value, ci_low and ci_high (of this one alone), p, and
        own columns against, null (what p is the probability under), p_adjusted, correction, family (what was corrected
        together), joint_low and joint_high (all of the family at once with the probability ``level``; step-down only).

    Raises
    ------
    UsageError
        Where there is nothing to hold against, the metric is not one of these labels, or the tables hold other
        examples.

    Notes
    -----
    Between fits (layers, models) the null is that it makes no difference which fit said what: for each example (group)
    it is drawn which of the two predictions is the first one's, and both metrics are computed again
    (:func:`probekit.statistics.permutation.exchanged`). Of accuracy and log-loss these are flipped signs of each
    example's difference; of ratios such as F1 or Matthews' coefficient they are not.

    Against "shuffled" the null is that labels have nothing to do with what is predicted: labels are permuted (those of
    a group together), the same for all layers, and the metric is computed of the predictions as they are
    (:func:`probekit.statistics.relabelling.relabelled`). Value and interval are of the same question: the metric minus
    what it is on average where labels and predictions are as frequent as these, and independent
    (:func:`probekit.statistics.relabelling.above_chance`). How far gold is above probes that were *trained* on shuffled
    labels is another thing, which rows of ``probe`` hold as "above-shuffled": these may choose another penalty, so that
    the two fits differ on a layer that knows nothing.

    Against "control-task" the label moves with the prediction: the null is that gold is predicted as well as the
    control task, which asks another question of the same examples.

    Against "random" several initialisations are one model: the value is held against their mean, whose error (Student's
    t over the seeds) is in p and in the intervals.

    ``p_adjusted`` is over the layers of a curve, or over what ``family`` says: step-down min-p (Westfall & Young 1993,
    algorithm 2.8) or Holm (1979). Against "best" all pairs of layers are one family, since the best was found by
    looking. Intervals are of other examples and know no null: at the edge they may disagree with p, which decides. Of
    metrics of counts they come from a posterior of the table in which both fits' answers stand
    (:func:`probekit.statistics.bootstrap.paired_replicates`): two that say the same of n examples may differ by about
    3 / n. Losses and errors of fits that say the same have no interval, nor has a rank.
    """
    return compare_tables([(evaluated, other)], options)


def compare_tables(
    tables: Sequence[tuple[Predictions, Predictions | None]], options: CompareOptions = CompareOptions()
) -> pd.DataFrame:
    """Rows of several tables, as :func:`compare_predictions` has them; ``family`` may reach over all of them."""
    found: list[tuple[Predictions, Contrast, str, Null, Drawn]] = []
    for evaluated, other in tables:
        both = evaluated if other is None else join(evaluated, other)
        metric = fitting_metric(both, options.metric)
        against = options.against or ("layer-0" if other is None else "other")
        if options.metric is None and against == "control-task" and metric_called(metric).spans:
            metric = "token-accuracy"  # the control's spans are others than gold's
        held = list(contrasts(both, against, metric))
        if not held:
            raise UsageError(f"there is nothing to compare with for {against!r}: {there(both)}.{remedy(against)}")
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
        own = judged[i]
        for k, (fit, _others) in enumerate(contrast.pairs[: contrast.shown]):
            of: dict[Any, Any] = both.fits.iloc[fit].drop(labels="source", errors="ignore").to_dict()
            records.append(
                {
                    **of,
                    **{"analysis": "compare", "metric": derive("difference", metric), "value": own.value[k]},
                    **{"ci_low": own.ci[k, 0], "ci_high": own.ci[k, 1], "p": own.p[k], "n": len(both.ids)},
                    **{"against": contrast.against, "null": str(null), "p_adjusted": own.p_adjusted[k]},
                    **{"correction": str(options.correction), "family": str(options.family)},
                    **{"joint_low": own.joint[k, 0], "joint_high": own.joint[k, 1]},
                }
            )
    return make_rows(records)


def paired(
    evaluated: Predictions,
    pairs: list[tuple[int, list[int]]],
    metric: str,
    *,
    null: Null = Null.EXCHANGEABLE,
    options: CompareOptions = CompareOptions(),
) -> Family:
    """Each fit minus the mean of some others, K of them as one family; see :func:`compare_predictions`."""
    return _judged([_drawn(evaluated, pairs, metric, null, options)], options)[0]


def above_noise(
    evaluated: Predictions, fits: Sequence[int], metric: str, *, draws: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """p-values of fits of gold labels being no better than noise, (K,), and corrected for all of them.

    Those of :func:`compare_predictions` against "shuffled", ``tails`` "better".
    """
    observed, null = relabelled(evaluated, fits, metric, draws=draws, seed=seed)
    p, by_chance = tails(*_sizes(observed, null, metric_called(metric).sign))
    return p, adjust(p, by_chance)


def _null_of(e: Predictions, contrast: Contrast, against: str, metric: str) -> Null:
    """What a contrast is tested against."""
    if against == "random" and {len(others) for _, others in contrast.pairs} not in ({0}, {1}):
        return Null.INITIALISATIONS
    if against != "shuffled":
        return Null.CONTROL if against == "control-task" else Null.EXCHANGEABLE
    if metric != "log-loss" or e.probabilities is not None:
        return Null.INDEPENDENT
    if (draws := min(len(others) for _, others in contrast.pairs)) >= RANKED:
        return Null.RANK
    raise UsageError(
        f"log-loss against shuffled labels wants the predicted probabilities, which these files do not hold, or "
        f"{RANKED} draws of shuffled labels, of which there are {draws}; probe again (probekit probe, which writes "
        "probabilities), or choose another metric."
    )


def _drawn(
    e: Predictions, pairs: list[tuple[int, list[int]]], metric: str, null: Null, options: CompareOptions
) -> Drawn:
    """Each fit minus the mean of some others: as measured, by chance, and on other examples."""
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
    draws = max(options.resamples, min(FINE, BLOCK // units))
    chance = exchanged(part, at, metric, draws=draws, seed=options.seed)
    again = minus(*paired_replicates(metric=metric, **part.sample(), **of_examples))
    if null is Null.INITIALISATIONS:
        seeds = [measured[others] for _, others in at]
        rng = np.random.default_rng([options.seed, 3])
        again, by_chance = (draws + _error_of_means(seeds, draws.shape[1], rng) for draws in (again, chance[1]))
        chance = chance[0], by_chance
    return Drawn(value, again, chance, units, sign, np.zeros(len(value)))


def _error_of_means(seeds: Sequence[np.ndarray], draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of the error of means over seeds, (K, draws), from the metrics of each one's seeds, K arrays (k,).

    Each is Student's t with k - 1 degrees of freedom times the standard error; those of one draw vary together, as the
    layers of a seed do (multivariate t). Layers may have different numbers of seeds, of which the first are the same.
    """
    out = np.empty((len(seeds), draws))
    most = max(len(one) for one in seeds)
    normal, uniform = rng.normal(size=(draws, most)), rng.random(draws)
    for own, one in zip(out, seeds, strict=True):
        k = len(one)
        if k < 2:
            raise UsageError("the error of a mean over initialisations wants two of them at each layer.")
        chi2 = stats.chi2.ppf(uniform, k - 1)
        own[:] = normal[:, :k] @ (one - one.mean()) / np.sqrt(k * chi2)
    return out


def _judged(drawn: Sequence[Drawn], options: CompareOptions) -> list[Family]:
    """p-values and intervals of some differences as one family."""
    draws = sorted({one.chance[1].shape[1] for one in drawn})
    if len(draws) > 1 and draws[0] < options.resamples:  # a rank among few
        raise UsageError(
            f"the curves of a family have {draws[0]} and {draws[-1]} draws of chance, and the fewest would "
            "decide for all; correct each curve by itself (--family curve), or probe again where no "
            "probabilities are stored."
        )
    sizes = [_sizes(one.chance[0], one.chance[1][:, : draws[0]], one.sign, one.centre) for one in drawn]
    size, drawn_size = (np.concatenate(part) for part in zip(*sizes, strict=True))
    p, by_chance = tails(size, drawn_size)
    step_down = options.correction is not Correction.HOLM
    if options.correction is Correction.MAX_T:
        undefined = np.isnan(size)[:, None]  # costs the others nothing
        p_adjusted = adjust(-size, -np.where(undefined, -np.inf, np.nan_to_num(drawn_size, nan=np.inf)))
    else:
        p_adjusted = adjust(p, by_chance) if step_down else holm(p)
    wide = joint_level(np.concatenate([one.again for one in drawn]), options.level) if step_down else np.nan
    families, start = [], 0
    for one in drawn:
        ci = _around(one, options.level)
        joint = _around(one, wide) if step_down else np.full_like(ci, np.nan)
        own = slice(start, start := start + len(one.value))
        families.append(Family(one.value, ci, joint, p[own], p_adjusted[own]))
    return families


def _around(one: Drawn, level: float) -> np.ndarray:
    """Intervals that hold what was measured, (K, 2).

    None of fewer than 5 groups, and where nothing tells how far two that are alike, up to rounding, may differ.
    """
    low, high = intervals(one.again, level=level, units=one.units).T
    known = (high - low > 1e-9 * np.abs(one.chance[0])) & (one.units >= FEWEST)
    ends = np.fmin(low, one.value), np.fmax(high, one.value)
    return np.stack([np.where(known, end, np.nan) for end in ends], axis=1)


def _sizes(observed: np.ndarray, null: np.ndarray, sign: int, centre: np.ndarray | None = None) -> Chance:
    """How much each speaks against chance: in standard deviations of all of them, to the side that counts.

    Two sides are as far from the ``centre``, known where outcomes are exchanged or labels permuted: that of the draws
    is off by chance, and would leave out one of two sides that are alike.
    Where nothing varies by chance, up to rounding, there is nothing that could speak.
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
