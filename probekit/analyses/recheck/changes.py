"""The differences between two readings of the same examples, or between new examples and a probe's card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isnan, log, nan, sqrt
from typing import Any

import numpy as np
from scipy import stats

from probekit.analyses.cards import ABOVE, FOUND, share_above
from probekit.analyses.recheck import RecheckOptions
from probekit.analyses.recheck.decision import Change
from probekit.metrics import derive, metric
from probekit.monitors.probe import Probe
from probekit.statistics.bootstrap import bounds, estimates, intervals, is_counted, paired_replicates
from probekit.statistics.calibration import temperature
from probekit.statistics.clusters import mean_of_differences, reach
from probekit.statistics.detection import (
    area,
    area_influence,
    area_interval,
    own_recall,
    too_few_above,
    too_few_of_class,
)
from probekit.statistics.predictions import Predictions
from probekit.statistics.scored import RATES

AREA, ERROR = "auroc", "rmse"
OF_LABELS = {"mean-absolute-error": 1, ERROR: 1, "mean-squared-error": 2}
"""Metrics in the unit of the labels, or a power of it."""
Ends = tuple[float, float, float, str]
"""A number, its interval, and the reason why it has none."""


@dataclass(frozen=True, eq=False, slots=True)
class Readings:
    """What a probe says of n labelled examples.

    Attributes
    ----------
    said : Predictions
        Two fits, read the old way and the new way; or one, read the new way.
    scores : np.ndarray, optional
        float64 (fits, n), of two classes the logits, of numbers the numbers.
    """

    said: Predictions
    scores: np.ndarray | None

    @property
    def gold(self) -> np.ndarray:
        """The labels, (n,)."""
        return np.asarray(np.atleast_2d(self.said.gold)[0])


def changes(probe: Probe, readings: Readings, options: RecheckOptions) -> list[Change]:
    """All that the answer depends on."""
    paired = len(readings.said) == 2
    known = None if readings.scores is None or not probe.two_classes else _threshold(probe, options.rate)
    found = list((_paired if paired else _beside)(probe, readings, options))
    if known is not None:
        found += (_paired_at if paired else _beside_at)(known, readings, options)
    return found


def _threshold(probe: Probe, rate: float) -> Mapping[str, Any] | None:
    """The card's threshold; None if dev was too small for one. UsageError for a rate that the card does not know."""
    known = {one["rate"]: one["threshold"] for one in probe.card.get("thresholds", ())}
    return None if not known or known.get(rate, rate) is None else probe.operating_point(rate)


def _paired(probe: Probe, readings: Readings, options: RecheckOptions) -> Iterator[Change]:
    """The main metric and AUROC."""
    said, two = readings.said, probe.two_classes and readings.scores is not None
    name = said.metrics[0]
    if name != AREA or not two:
        yield _of_metric(said, name, options, ranking=not two)
    if _also_errors(name, readings):
        yield _of_metric(said, ERROR, options, ranking=True)
    if two:
        yield _of_area(readings, options)
        tail = f"recall-at-fpr-{options.rate:g}"
        lacking = [too_few_above(readings.gold, one, options.rate, said.groups) for one in readings.scores]  # type: ignore[union-attr]
        if tail in RATES and not any(lacking):
            recall = _of_metric(said, tail, options, ranking=True)
            yield replace(recall, margin=options.recall_margin, needed=False)


def _also_errors(name: str, readings: Readings) -> bool:
    """Whether the main metric of numbers says nothing of their shift and scale, as a correlation does."""
    return readings.gold.dtype.kind == "f" and name not in (*OF_LABELS, "r2")


def _unit(name: str, gold: np.ndarray) -> float:
    """In what a margin counts: the spread of the labels for errors in their unit, otherwise 1."""
    return float(np.std(gold)) ** OF_LABELS.get(name, 0)


def _of_metric(said: Predictions, name: str, options: RecheckOptions, *, ranking: bool) -> Change:
    sample = said.sample()
    before, after = (float(x) for x in estimates(metric=name, **sample))
    one, other = paired_replicates(metric=name, **sample, resamples=options.resamples, seed=options.seed)
    units = said.examples if said.groups is None else len(np.unique(said.groups))
    [[low, high]] = intervals((one[1] - other[0])[None], level=options.level, units=units)
    alike = said.predicted if said.log_loss is None else said.log_loss
    if not high > low:
        low, high = nan, nan
    same = bool(isnan(low) and (alike[0] == alike[1]).all())
    unit = _unit(name, said.gold)
    unseen = -log((1 - options.level) / 2) / units if same or not is_counted(metric=name, **sample) else 0.0
    return Change(
        derive("difference", name), before, after, after - before, low, high, options.margin * unit,
        better=metric(name).sign, ranking=ranking, same=same, unseen=unseen * unit, n=said.examples,
        why="" if same or high > low else f"no interval of the difference in {name} can be had",
    )  # fmt: skip


def _of_area(readings: Readings, options: RecheckOptions) -> Change:
    """That of AUROC: DeLong's variance of the difference, with an allowance for changes that no example shows."""
    y, groups, scores = readings.gold, readings.said.groups, readings.scores
    assert scores is not None
    before, after = (float(x) for x in area(y, scores))
    change, low, high = after - before, nan, nan
    if not (why := too_few_of_class(y, groups)):
        gain = np.subtract(*area_influence(y, scores)[::-1])
        low = change - _reach(-gain, y, groups, before, options.level)
        high = change + _reach(gain, y, groups, 1 - before, options.level)
    return Change(
        derive("difference", AREA), before, after, change, low, high, options.margin, ranking=True, n=len(y), why=why
    )


def _reach(influence: np.ndarray, y: np.ndarray, groups: np.ndarray | None, most: float, level: float) -> float:
    """How much larger than measured a change of AUROC may be, if one more unit of the smaller class changes the most.

    The posterior of a Bayesian bootstrap (Rubin 1981) by its first three moments (Pearson III). If k units change the
    most and others do not, its end is that of Clopper & Pearson (1934). In the other class a unit counts less.

    Parameters
    ----------
    most : float
        How much the share of the other class on its right side changes at most, for an average example.
    """
    code = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    units = min(len(np.unique(code[y == side])) for side in (0, 1))
    each, one = np.bincount(code, influence) / len(y), most / (units + 1)
    spread = sqrt((each**2).sum() * len(each) / (len(each) - 1) + one**2)
    if spread == 0:
        return 0.0  # all of it is right already, and nothing changed
    skew = 2 * ((each**3).sum() + one**3) / spread**3
    end = (1 + level) / 2
    further = reach(units, level) / float(stats.norm.ppf(end))
    return one + further * spread * float(stats.pearson3.ppf(end, skew))


def _paired_at(known: Mapping[str, Any], readings: Readings, options: RecheckOptions) -> Iterator[Change]:
    """The shares above the card's threshold."""
    y, said = readings.gold, readings.said
    assert readings.scores is not None
    above = (readings.scores > known["threshold"]).astype(np.int64)
    for name, side, margin, better in _sides(options):
        if not (y == side).any():
            why = "no example of the class"
            yield Change(derive("difference", name), nan, nan, nan, nan, nan, margin, better=better, why=why)
            continue
        part = replace(
            said.of_rows(y == side), gold=np.ones(int((y == side).sum()), np.int64), predicted=above[:, y == side],
            log_loss=None, prior_loss=None, probabilities=None, label_names=(), metrics=("accuracy",),
        )  # fmt: skip
        change = _of_metric(part, "accuracy", options, ranking=False)
        reach = _of_two(options.level) if name == ABOVE else 1.0
        yield replace(change, metric=derive("difference", name), margin=margin, better=better, reach=reach)
    yield replace(_of_rate(known, readings, options), needed=False, reach=_of_two(options.level))


def _of_two(level: float) -> float:
    """How much further an interval reaches if two tests share the error of one (Bonferroni)."""
    return float(stats.norm.ppf(1 - (1 - level) / 4) / stats.norm.ppf(1 - (1 - level) / 2))


def _sides(options: RecheckOptions) -> tuple[tuple[str, int, float, int], ...]:
    return (ABOVE, 0, options.rate * options.rate_margin, 0), (FOUND, 1, options.recall_margin, 1)


def _of_rate(known: Mapping[str, Any], readings: Readings, options: RecheckOptions) -> Change:
    """The share of negatives above the card's threshold now, beside the rate that the card says."""
    value, low, high, why = _share(known, readings, 0, options)
    rate = options.rate
    return Change(
        ABOVE, rate, value, value - rate, low - rate, high - rate, rate * options.rate_margin, better=0,
        n=int((readings.gold == 0).sum()), why=why,
    )  # fmt: skip


def _share(known: Mapping[str, Any], readings: Readings, side: int, options: RecheckOptions) -> Ends:
    """The share of one class above the card's threshold, read the new way."""
    assert readings.scores is not None
    return share_above(known, readings.gold, readings.scores[-1], side, readings.said.groups, options)


def _beside(probe: Probe, readings: Readings, options: RecheckOptions) -> Iterator[Change]:
    """The main metric and AUROC, beside those of the card."""
    said, two, card = readings.said, probe.two_classes and readings.scores is not None, probe.card
    name, known = said.metrics[0], {one["metric"]: one for one in card.get("metrics", ())}
    of_area = known.get(AREA) or card.get(AREA)
    how: dict[str, Any] = {"resamples": options.resamples, "level": options.level, "seed": options.seed}
    names = [name] * (name != AREA or not two) + [ERROR] * _also_errors(name, readings)
    for one in names:
        found = bounds(metric=one, **said.sample(), **how)
        now = float(found.value[0]), float(found.ci[0, 0]), float(found.ci[0, 1]), str(found.why[0])
        margin = options.margin * _unit(one, said.gold)
        yield _from_card(
            one, known.get(one) or card.get(one), now, margin, said.examples, ranking=not two or not of_area
        )
    if two:
        y, scores, groups = readings.gold, readings.scores, said.groups
        assert scores is not None
        if of_area:
            low, high, why = area_interval(y, scores, groups, options.level)
            area_now = float(area(y, scores)[0]), float(low[0]), float(high[0]), why
            yield _from_card(AREA, of_area, area_now, options.margin, len(y), ranking=True)
        at = _threshold(probe, options.rate)
        if at and at.get("recall") is not None and not too_few_above(y, scores[0], options.rate, groups):
            value, low, high, _ = own_recall(
                y, scores, options.rate, groups, resamples=options.resamples, level=options.level, seed=options.seed
            )
            tail = float(value[0]), float(low[0]), float(high[0]), ""
            name, margin = f"recall-at-fpr-{options.rate:g}", options.recall_margin
            yield replace(_from_card(name, _recall(at), tail, margin, len(y), ranking=True), needed=False)


def _beside_at(known: Mapping[str, Any], readings: Readings, options: RecheckOptions) -> Iterator[Change]:
    yield _of_rate(known, readings, options)
    now, n = _share(known, readings, 1, options), int((readings.gold == 1).sum())
    yield _from_card(FOUND, _recall(known), now, options.recall_margin, n, ranking=False)


def _recall(known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: known.get(key) for name, key in
            (("value", "recall"), ("ci_low", "recall_low"), ("ci_high", "recall_high"))}  # fmt: skip


def _from_card(
    name: str, known: Mapping[str, Any] | None, now: Ends, margin: float, n: int, *, ranking: bool
) -> Change:  # fmt: skip
    """A difference to a number of the card; its interval is made from both intervals (Zou & Donner 2008)."""
    keys = ("value", "ci_low", "ci_high")
    before, its_low, its_high = (nan if (v := (known or {}).get(key)) is None else float(v) for key in keys)
    value, low, high, why = now
    change = value - before
    down = sqrt((value - low) ** 2 + (its_high - before) ** 2)
    up = sqrt((high - value) ** 2 + (before - its_low) ** 2)
    better = 1 if name == FOUND else metric(name).sign
    why = why or ("the card has no interval of it" if isnan(down) else "")
    return Change(
        derive("difference", name), before, value, change, change - down, change + up, margin,
        better=better, ranking=ranking, fixed=its_high - before if better > 0 else before - its_low, n=n, why=why,
    )  # fmt: skip


def of_scores(probe: Probe, readings: Readings, options: RecheckOptions) -> Iterator[dict[str, Any]]:
    """Rows of what happened to the scores, the decisions and the temperature, read both ways."""
    said, scores = readings.said, readings.scores
    if len(said) == 2:
        if scores is not None:
            old, new = scores
            value, low, high, _ = mean_of_differences(new - old, said.groups, options.level)
            yield {"metric": "score-shift", "before": old.mean(), "after": new.mean(), "value": value,
                   "ci_low": low, "ci_high": high}  # fmt: skip
            spread = old.std(), new.std()
            ratio = spread[1] / spread[0] if spread[0] else nan
            yield {"metric": "score-scale", "before": spread[0], "after": spread[1], "value": ratio}
            flat = not spread[0] or not spread[1]
            yield {"metric": "score-correlation", "value": nan if flat else float(np.corrcoef(old, new)[0, 1])}
        if readings.gold.dtype.kind in "iu":
            other = (said.predicted[0] != said.predicted[1]).astype(np.int64)
            found = bounds(
                np.ones(len(other), np.int64), other[None], "accuracy", groups=said.groups,
                resamples=options.resamples, level=options.level, seed=options.seed,
            )  # fmt: skip
            yield {"metric": "changed-decisions", "value": float(found.value[0]), "ci_low": found.ci[0, 0],
                   "ci_high": found.ci[0, 1]}  # fmt: skip
    if said.probabilities is not None and said.of_label is None:
        with np.errstate(divide="ignore"):
            log_p = np.log(said.probabilities.astype(np.float64))
        before, after = ([nan] + [float(one) for one in temperature(log_p, readings.gold)])[-2:]
        yield {"metric": "temperature", "before": before, "after": after, "value": after}
