"""Scores between control and ceiling: (value - control) / (ceiling - control), with intervals.

Metrics of different tasks differ in what a probe without information reaches. A normalised score is 0 for a probe that
is as good as the control, and 1 at the ceiling; below 0 it is worse than the control.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
from scipy import stats

from probekit.constraint import Share, check
from probekit.errors import UsageError
from probekit.metrics import derive
from probekit.metrics import metric as metric_called
from probekit.rows import make_rows
from probekit.statistics._sums import Units
from probekit.statistics.bootstrap import FEWEST, estimates, intervals, paired_replicates
from probekit.statistics.contrasts import beside, contrasts, fitting_metric
from probekit.statistics.options import Resamples
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

CONTROL, MAJORITY = "control", "majority"
SHARES = ("accuracy", "token-accuracy")
"""Metrics whose best constant prediction is the class most frequent among the evaluated examples."""


class Measured(NamedTuple):
    """A metric, float64 (…), and its values in resamples of the examples, (…, resamples); higher is better."""

    value: np.ndarray
    resampled: np.ndarray


@dataclass(frozen=True, slots=True)
class Normalised:
    """Normalised scores of F fits.

    Attributes
    ----------
    value : np.ndarray
        (F,), NaN if the control reaches the ceiling.
    ci : np.ndarray
        (F, 2), NaN if there is no interval.
    resampled : np.ndarray
        (F, resamples), the scores in the resamples.
    control : np.ndarray
        (F,), the metric that counts as 0.
    by : np.ndarray
        Str (F,), "control" or "majority": which of the two is the larger and counts as 0.
    why : np.ndarray
        Str (F,), the reason if there is no interval, or "".
    """

    value: np.ndarray
    ci: np.ndarray
    resampled: np.ndarray
    control: np.ndarray
    by: np.ndarray
    why: np.ndarray


def normalised(
    gold: Measured,
    control: Measured | None = None,
    majority: Measured | None = None,
    *,
    ceiling: float = 1.0,
    level: float = 0.95,
    units: int | None = None,
    seed: int | Sequence[int] = 0,
) -> Normalised:
    """(value - control) / (ceiling - control) of F fits, with intervals over examples and draws of the control.

    The control is the mean over the draws, or the majority class if that is better. All values are of the same examples
    and resamples, so that what makes examples easy for gold and control alike cancels.

    Parameters
    ----------
    gold : Measured
        (F,) and (F, resamples).
    control : Measured, optional
        (k, F) and (k, F, resamples): k draws of shuffled labels or of a control task, fitted like gold.
    majority : Measured, optional
        () or (F,), and (resamples,) or (F, resamples): the prediction of the class most frequent in train.
    ceiling : float
        The metric that counts as 1.
    units : int, optional
        Number of examples or groups that were resampled, for wider intervals if there are few.
    seed : int or sequence of int
        For the error of the control's mean.

    Raises
    ------
    UsageError
        If there is neither control nor majority, or the shapes differ.

    Notes
    -----
    The interval covers the normalised score of these fitted probes in the population that the examples (groups) are a
    sample of, relative to the control's expectation over draws of labels. It does not cover training again on other
    examples. Percentiles of the ratio are those of Fieller's method (1954) as long as the ceiling is above the control
    in all but the outer percentiles of the resamples; otherwise there is no interval. The error of the mean over k
    draws is Student's t with k - 1 degrees of freedom times its standard error; for k = 1 it is unknown and left out.

    Examples
    --------
    >>> gold, control = np.array([0.8]), np.array([[0.5], [0.5]])
    >>> again = np.random.default_rng(0).normal(0.8, 0.01, size=(1, 1000))
    >>> one = normalised(Measured(gold, again), Measured(control, np.full((2, 1, 1000), 0.5)))
    >>> one.value.round(2).tolist(), one.ci.round(2).tolist()
    ([0.6], [[0.56, 0.64]])
    """
    shape = gold.resampled.shape
    if control is None and majority is None:
        raise UsageError("a normalised score needs a control or the majority class.")
    if control is not None and (
        control.resampled.shape[1:] != shape or control.value.shape != control.resampled.shape[:2]
    ):
        raise UsageError(f"the control has the shape {control.resampled.shape}; expected (k, {shape[0]}, {shape[1]}).")
    floors = {}
    if control is not None:
        floors[CONTROL] = control.value.mean(0), control.resampled.mean(0) + _error(control.value, shape[1], seed)
    if majority is not None:
        floors[MAJORITY] = np.broadcast_to(majority.value, shape[:1]), np.broadcast_to(majority.resampled, shape)
    values = np.stack([value for value, _ in floors.values()])
    at = np.where(np.isnan(values), -np.inf, values).argmax(0), np.arange(shape[0])
    zero, drawn = values[at], np.stack([again for _, again in floors.values()])[at]
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(ceiling - zero > 1e-9, (gold.value - zero) / (ceiling - zero), np.nan)
        again = np.where(ceiling - drawn > 1e-9, (gold.resampled - drawn) / (ceiling - drawn), np.nan)
    ci, why = intervals(again, level=level, units=units), np.full(shape[0], "", dtype=object)
    why[~np.isfinite(ci).all(1)] = "undefined in most resamples"
    why[np.isnan(again).mean(1) > (1 - level) / 2] = "the control may be at the ceiling"
    why[np.isnan(value)] = "the control is at the ceiling"
    if units is not None and units < FEWEST:
        why[:] = f"{units} examples or groups; intervals need at least {FEWEST}"
    ci = np.stack([np.fmin(ci[:, 0], value), np.fmax(ci[:, 1], value)], axis=1)
    ci[why != ""] = np.nan
    return Normalised(value, ci, again, zero, np.array(list(floors))[at[0]], why)


def _error(values: np.ndarray, resamples: int, seed: int | Sequence[int]) -> np.ndarray:
    """Draws of the error of the mean over draws (k, F), the same for all fits, (F, resamples)."""
    k = len(values)
    if k < 2:
        return np.zeros((values.shape[1], resamples))
    rng = np.random.default_rng([*np.atleast_1d(seed), 4])
    t = stats.t.ppf(rng.permutation((np.arange(resamples) + 0.5) / resamples), k - 1)
    return values.std(0, ddof=1)[:, None] / np.sqrt(k) * t


def mean_score(
    value: np.ndarray, again: np.ndarray, units: Sequence[int], *, level: float = 0.95
) -> tuple[float, float, float]:
    """The mean of scores over T tasks, and its interval over the examples of these tasks.

    Parameters
    ----------
    value : np.ndarray
        (T,), the scores.
    again : np.ndarray
        (T, resamples), resampled together where tasks share examples.
    units : sequence of int
        The number of examples or groups of each task.
    level : float
        Coverage.

    Returns
    -------
    tuple of float
        The mean and the ends of its interval; NaN if a score is undefined in more resamples than are outside of one end
        (2.5 % of them at level .95), or a task has one unit.

    Notes
    -----
    Replicates of counts lean towards the middle, by less than their spread; the mean over tasks has a smaller spread
    and the same lean, so that its interval is around the mean of the scores. It is that of Student's t, with the
    degrees of freedom of a sum of variances (Satterthwaite 1946).

    Examples
    --------
    >>> again = 0.5 + np.random.default_rng(0).normal(size=(2, 4000)) * 0.1
    >>> [round(float(x), 2) for x in mean_score(np.array([0.6, 0.4]), again, [1000, 1000])]
    [0.5, 0.36, 0.64]
    """
    known, count = np.isfinite(again), np.asarray(units, dtype=float)
    middle = np.nanmean(np.where(known.any(1, keepdims=True), again, 0), axis=1, keepdims=True)
    moved = np.where(known, again - middle, 0) * np.sqrt(count / np.maximum(count - 1, 1))[:, None]
    mean = float(value.mean())
    if (known.mean(1) < 1 - (1 - level) / 2).any() or count.min() < 2:
        return mean, np.nan, np.nan
    spread = moved.var(axis=1)
    degrees = spread.sum() ** 2 / max(float((spread**2 / (count - 1)).sum()), np.finfo(float).tiny)
    tail = (1 + level) / 2
    wider = stats.t.ppf(tail, max(degrees, 1)) / stats.norm.ppf(tail)
    low, high = np.quantile(moved.mean(0), [1 - tail, tail]) * wider
    return mean, mean + float(low), mean + float(high)


def _with_most_frequent(gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """The predictions (F, n), of which the first fit says of every example the most frequent of its gold labels."""
    classes, counts = np.unique(gold if gold.ndim == 1 else gold[0], return_counts=True)
    return np.concatenate([np.full((1, predicted.shape[1]), classes[counts.argmax()]), predicted[1:]])


def normalised_rows(evaluated: Predictions, **options: Any) -> pd.DataFrame:
    """The rows of :func:`normalised_layers`, with the same options."""
    return normalised_layers(evaluated, **options)[0]


def normalised_layers(
    evaluated: Predictions,
    *,
    metric: str | None = None,
    against: str = "shuffled",
    ceiling: float | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    by_name: bool = False,
) -> tuple[pd.DataFrame, np.ndarray]:
    """A row "normalised(METRIC)" for each layer of each curve of gold labels.

    For accuracy, the majority class is the one most frequent among the evaluated examples. A probe that knows nothing
    reaches the share of a class by always naming it; with the class most frequent in train, which may be the rarer one
    here, this would count as knowledge. For other metrics it is the prediction of the majority class of train.

    Parameters
    ----------
    evaluated : Predictions
        Predictions of probes, with controls and the majority class.
    metric : str, optional
        By default the table's first.
    against : {"shuffled", "control-task"}
        The control.
    ceiling : float, optional
        The metric that counts as 1; by default its best value, 1 or 0 for errors.
    resamples, level, seed
        Of the examples; of the intervals.
    by_name : bool
        As in :func:`probekit.statistics.bootstrap.replicates`: for means over tasks.

    Returns
    -------
    rows : DataFrame
        value, ci_low, ci_high as in :func:`normalised`; the columns against (the control, or "majority" if that is
        better), control (its metric), ceiling, and why (the reason for a missing interval, or "").
    again : np.ndarray
        (rows, resamples), the scores in the resamples.

    Raises
    ------
    UsageError
        If the metric does not fit the labels or has no best value, or there is no control.
    """
    name = fitting_metric(evaluated, metric)
    resamples, level = check("resamples", Resamples, resamples), check("level", Share, level)
    about, records = metric_called(name), []
    scores: list[np.ndarray] = []
    best = (about.range[1] if about.sign == 1 else about.range[0]) if ceiling is None else ceiling
    if not np.isfinite(best):
        raise UsageError(f"{name} has no best value; give the ceiling.")

    units = Units.of_groups(evaluated.groups, len(evaluated.ids)).count
    for contrast in contrasts(evaluated, against, name):
        fits = [one for one, _ in contrast.pairs]
        draws = list(zip(*(others for _, others in contrast.pairs), strict=True))
        constant = fits[:1] if name in SHARES else beside(evaluated.fits, np.array(fits), "none")
        sample = evaluated.take([*constant, *fits, *(fit for draw in draws for fit in draw)]).sample()
        if name in SHARES:
            sample["predicted"] = _with_most_frequent(sample["gold"], sample["predicted"])
        value = about.sign * estimates(metric=name, **sample)
        drawn = paired_replicates(metric=name, resamples=resamples, seed=seed, by_name=by_name, **sample)
        first, second = (Measured(value, about.sign * again) for again in drawn)
        gold, controls = slice(len(constant), len(constant) + len(fits)), slice(len(constant) + len(fits), None)
        found = normalised(
            Measured(*(x[gold] for x in first)),
            Measured(*(x[controls].reshape(len(draws), len(fits), *x.shape[1:]) for x in second)) if draws else None,
            Measured(*(x[0] for x in second)) if constant else None,
            ceiling=about.sign * best, level=level, units=units, seed=(seed, crc32(evaluated.task.encode())),
        )  # fmt: skip
        for k, fit in enumerate(fits):
            of: dict[Any, Any] = evaluated.fits.iloc[fit].to_dict()
            own = {"metric": derive("normalised", name), "value": found.value[k], "n": len(evaluated.ids)}
            own |= {"ci_low": found.ci[k, 0], "ci_high": found.ci[k, 1], "control": about.sign * found.control[k]}
            own |= {"against": contrast.against if found.by[k] == CONTROL else MAJORITY, "ceiling": best}
            records.append({**of, **own, "why": found.why[k]})
            scores.append(found.resampled[k])
    if not records:
        raise UsageError(f"there is no layer of gold labels with the control {against!r}.")
    return make_rows(records), np.array(scores)
