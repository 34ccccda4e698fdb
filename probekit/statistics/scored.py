"""Metrics of scores of classes: areas under curves, recall at a rate of false positives, calibration error.

The score of a class is its log-odds. Of two classes, the positives are the examples of class 1. Of more, areas and
precisions are means over the classes that have positives and negatives, each against the rest, as in scikit-learn
(``multi_class="ovr"``, ``average="macro"``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import expit

from probekit.statistics._sums import Rows, Units
from probekit.statistics.calibration import BINS
from probekit.statistics.detection import mean_area_interval, own_recall, too_few_above, too_few_of_class

RATES = {"recall-at-fpr-0.01": 0.01, "recall-at-fpr-0.05": 0.05, "recall-at-fpr-0.1": 0.1}
"""Metrics of two classes, and the rate of false positives of each."""
SORTED = ("auroc", "average-precision", *RATES)
"""The metrics for which only the order of the scores counts."""
CALIBRATION = f"calibration-error-{BINS}"
SCORED = (*SORTED, CALIBRATION)
LEAST = 1e-45  # the smallest float32
ROUNDING = 5e-7  # relative, of log-odds that come from float32 losses
AT_ONCE = 1 << 22
DRAWS = 2000  # of normal errors of the bins
FEWEST_IN_BIN = 10
"""With fewer examples a bin, their shares of right answers are too coarse for an interval of the calibration error."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What the scores of F fits for n examples are computed from, a few fits at a time.

    Attributes
    ----------
    gold : np.ndarray
        Int (1 or F, n).
    log_loss : np.ndarray
        (F, n), nats. Of two classes it determines the scores of any labels.
    probabilities : np.ndarray, optional
        (G, n, classes).
    place : np.ndarray
        Int (F,), the row of each fit in ``probabilities``; -1 for none.
    classes : int
        The number of classes.
    """

    gold: np.ndarray
    log_loss: np.ndarray
    probabilities: np.ndarray | None
    place: np.ndarray
    classes: int

    def rows(self, rows: np.ndarray) -> Scores:
        """Those of some examples."""
        shares = None if self.probabilities is None else self.probabilities[:, rows]
        return replace(self, gold=self.gold[:, rows], log_loss=self.log_loss[:, rows], probabilities=shares)

    def part(self, start: int, stop: int) -> np.ndarray:
        """Log-odds, float64 (fits, n, 1) of class 1 of two, else (fits, n, classes); NaN where they are not stored."""
        found = []
        for f in range(start, min(stop, len(self.place))):
            at = int(self.place[f])
            if at >= 0 and self.probabilities is not None:
                shares = np.maximum(self.probabilities[at].astype(np.float64), LEAST)
                rest = np.maximum(shares.sum(1, keepdims=True) - shares, LEAST) if self.classes > 2 else shares[:, ::-1]
                odds = np.log(shares) - np.log(rest)
                found.append(odds if self.classes > 2 else odds[:, 1:])
            elif self.classes == 2:
                gold, loss = self.gold[f if len(self.gold) > 1 else 0], self.log_loss[f].astype(np.float64)
                odds = -loss - np.log(np.maximum(-np.expm1(-loss), LEAST))
                found.append(_rejoined(np.where(gold == 1, odds, -odds))[:, None])
            else:
                found.append(np.full((self.log_loss.shape[1], self.classes), np.nan))
        return np.stack(found)


def _rejoined(odds: np.ndarray) -> np.ndarray:
    """Log-odds (n,) in which those that only rounding of losses tells apart are equal again.

    Equal scores have another loss for a positive than for a negative, and both are rounded to float32. Where many
    scores follow each other closely, only those in steps of the rounding are joined, not the whole run.
    """
    order = np.argsort(odds, kind="stable")
    ranked = odds[order]
    place = np.arange(len(odds))
    apart = np.diff(ranked, prepend=-np.inf) > ROUNDING * np.maximum(1, np.abs(ranked))
    start = ranked[np.maximum.accumulate(np.where(apart, place, 0))]
    step = np.floor((ranked - start) / (ROUNDING * np.maximum(1, np.abs(start))))
    first = apart | (np.diff(step, prepend=0) != 0)
    out = np.empty_like(odds)
    out[order] = ranked[np.maximum.accumulate(np.where(first, place, 0))]
    return out


def measured(name: str, gold: np.ndarray, scores: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """A metric of one fit for R label sets, orders or resamples, float64 (R,).

    Parameters
    ----------
    gold : np.ndarray
        Int (n,) or (R, n).
    scores : np.ndarray
        (n, K) or (R, n, K); K is 1 for two classes.
    weights : np.ndarray, optional
        (R, n), how often each example counts (default: once).

    Returns
    -------
    np.ndarray
        NaN without a positive or a negative, and where negatives are fewer than 1 / rate.
    """
    count = _draws(gold, scores, weights)
    if np.isnan(scores).any():
        return np.full(count, np.nan)
    if name == CALIBRATION:
        gaps = _gaps(gold, scores)
        w = np.ones((1, len(gold))) if weights is None else weights
        return np.asarray(np.abs(w @ gaps).sum(1) / w.sum(1))
    out, step = np.empty(count), max(1, AT_ONCE // scores.shape[-2])
    for at in range(0, count, step):
        some = slice(at, at + step)
        part = [x if x is None or x.ndim == whole else x[some] for x, whole in ((gold, 1), (scores, 2))]
        out[some] = _over_classes(name, part[0], part[1], None if weights is None else weights[some])
    return out


def _draws(gold: np.ndarray, scores: np.ndarray, weights: np.ndarray | None) -> int:
    for x, whole in ((gold, 1), (scores, 2), (weights, 1)):
        if x is not None and x.ndim > whole:
            return len(x)
    return 1


def _over_classes(name: str, gold: np.ndarray, scores: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    if scores.shape[-1] == 1:
        return _of_class(name, gold == 1, scores[..., 0], weights)
    values = np.stack([_of_class(name, gold == c, scores[..., c], weights) for c in range(scores.shape[-1])])
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.where(known, values, 0).sum(0) / known.sum(0)


def _of_class(name: str, positive: np.ndarray, scores: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Positives (n,) or (R, n), scores (n,) or (R, n), weights (R, n) → (R,): from counts above each threshold."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    ranked, of = (_taken(x, order) for x in (scores, positive))
    w = 1.0 if weights is None else _taken(weights.astype(np.float64), order)
    true, false = (np.atleast_2d(np.cumsum(w * side, axis=-1, dtype=np.float64)) for side in (of, ~of))
    last = np.append(np.diff(ranked, axis=-1) != 0, np.ones((*ranked.shape[:-1], 1), dtype=bool), axis=-1)
    if last.ndim == 1:  # equal scores are one threshold
        if not last.all():
            true, false = true[:, last], false[:, last]
    elif not last.all():
        ends = np.where(last, np.arange(last.shape[1]), last.shape[1])
        ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
        true, false = (np.take_along_axis(np.broadcast_to(x, ends.shape), ends, 1) for x in (true, false))
    positives, negatives = true[:, -1], false[:, -1]
    with np.errstate(invalid="ignore", divide="ignore"):
        if name in RATES:
            limit = RATES[name] * negatives + 1e-9
            found = np.where(false <= limit[:, None], true, 0).max(1) / positives
            return np.where(limit >= 1, found, np.nan)
        if name == "auroc":
            both = np.concatenate([true[:, :1], true[:, 1:] + true[:, :-1]], axis=1)
            steps = np.concatenate([false[:, :1], np.diff(false, axis=1)], axis=1)
            return np.asarray(np.einsum("re,re->r", both, steps) / (2 * positives * negatives))
        gains = np.concatenate([true[:, :1], np.diff(true, axis=1)], axis=1)
        found = np.nan_to_num(gains * true / (true + false)).sum(1) / positives
        return np.where(negatives > 0, found, np.nan)


def _taken(x: np.ndarray, order: np.ndarray) -> np.ndarray:
    return x[..., order] if order.ndim == 1 else np.take_along_axis(np.broadcast_to(x, order.shape), order, -1)


def _gaps(gold: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """How far each example is above the confidence of its bin, (n, bins): right or not, minus the confidence.

    Bins of equal mass by confidence; what lies between two bins is of both (see
    :func:`probekit.statistics.calibration.calibration_error`).
    """
    n = len(gold)
    if scores.shape[1] == 1:
        guess, confidence = (scores[:, 0] > 0).astype(np.int64), expit(np.abs(scores[:, 0]))
    else:
        guess, confidence = scores.argmax(1), expit(scores.max(1))
    _, tie = np.unique(confidence, return_inverse=True)
    order, bins = np.argsort(confidence, kind="stable"), min(BINS, n)
    bin_of = np.empty(n, dtype=np.int64)
    bin_of[order] = np.repeat(np.arange(bins), np.diff(np.arange(bins + 1) * n // bins))
    share = np.zeros((tie.max() + 1, bins))
    np.add.at(share, (tie, bin_of), 1)
    share /= share.sum(1, keepdims=True)
    return np.asarray(((guess == gold) - confidence)[:, None] * share[tie])


def statistic_of(name: str, gold: np.ndarray, scores: np.ndarray, units: Units) -> Rows:
    """The metric of fits; gold (1 or F, n), scores (F, n, K)."""
    return Rows(gold, scores, units, partial(measured, name))


def ends_of(
    name: str, one: Rows, value: np.ndarray, again: np.ndarray, units: Units, level: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the intervals of F fits, (F, 2), and why there is none, str (F,)."""
    gold = np.broadcast_to(one.gold, one.predicted.shape[:2])
    ci, why = np.full((len(value), 2), np.nan), np.full(len(value), "", dtype=object)
    for f, (y, s) in enumerate(zip(gold, one.predicted, strict=True)):
        if np.isfinite(value[f]):
            ci[f], why[f] = _ends(name, y, s, float(value[f]), again[f], units, level, seed)
    return ci, why


def ends_over_labels(
    name: str, parts: Sequence[Rows], value: np.ndarray, again: np.ndarray, units: Units, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`ends_of`, of the mean over labels, on the scale of logits."""
    ci, why = np.full((len(value), 2), np.nan), np.full(len(value), "", dtype=object)
    code = np.arange(units.rows) if units.of is None else units.of
    for f in range(len(value)):
        gold = [part.gold[f if len(part.gold) > 1 else 0] for part in parts]
        both = [k for k, y in enumerate(gold) if 0 < (y == 1).sum() < len(y)]
        some, scores = [gold[k] for k in both], [parts[k].predicted[f, :, 0] for k in both]
        if name == CALIBRATION:
            why[f] = "calibration errors of several labels have none; see those of each label"
        elif reason := next(filter(None, (_too_few(name, *one, units) for one in zip(some, scores, strict=True))), ""):
            why[f] = f"of a label, {reason}"
        elif some and np.isfinite(value[f]):
            few = min(len(np.unique(code[y == side])) for y in some for side in (0, 1))
            ci[f] = _on_logits(float(value[f]), again[f], few, level)
    return ci, why


def _too_few(name: str, y: np.ndarray, scores: np.ndarray, units: Units) -> str:
    why = too_few_of_class(y, units.of)
    return why or (too_few_above(y, scores, RATES[name], units.of) if name in RATES else "")


def _ends(
    name: str, y: np.ndarray, scores: np.ndarray, value: float, again: np.ndarray, units: Units, level: float, seed: int
) -> tuple[Any, str]:
    if name == CALIBRATION:
        return _calibration_ends(_gaps(y, scores), value, units, level)
    sides = [1] if scores.shape[1] == 1 else [c for c in range(scores.shape[1]) if (y == c).any()]
    if why := next(filter(None, (too_few_of_class(y == c, units.of) for c in sides)), ""):
        return np.nan, why if scores.shape[1] == 1 else f"of a class, {why}"
    if name == "auroc":
        of = scores[:, np.array(sides) % scores.shape[1]].T
        return mean_area_interval(np.stack([y == c for c in sides]), of, units.of, level), ""
    if name in RATES:
        if why := too_few_above(y, scores[:, 0], RATES[name], units.of):
            return np.nan, why
        _, low, high, _ = own_recall(y, scores.T, RATES[name], units.of, resamples=len(again), level=level, seed=seed)
        return (low[0], high[0]), ""
    few = min(len(np.unique((np.arange(len(y)) if units.of is None else units.of)[y == c])) for c in sides)
    return _on_logits(value, again, few, level), ""


def _on_logits(value: float, again: np.ndarray, units: int, level: float) -> tuple[float, float]:
    """The spread of replicates on the scale of logits, times Student's t of so many units."""
    bounded = np.clip([value, *again[np.isfinite(again)]], 1e-6, 1 - 1e-6)
    z = np.log(bounded / (1 - bounded))
    half = float(stats.t.ppf((1 + level) / 2, max(1, units - 1))) * float(z[1:].std()) * np.sqrt(units / (units - 1))
    return float(expit(z[0] - half)), float(expit(z[0] + half))


def _calibration_ends(gaps: np.ndarray, value: float, units: Units, level: float) -> tuple[Any, str]:
    """Calibration errors under which one as large as this is no surprise.

    The bins' mean gaps are normal, with the covariance of groups (examples). Of true gaps that are t times the measured
    ones, t from 0 on, those are kept under which the measured sum of their sizes lies between the quantiles. With
    t = 0 the probe is calibrated, and chance alone makes the error.
    """
    n, bins = gaps.shape
    by_unit = gaps if units.of is None else np.stack([np.bincount(units.of, g, units.count) for g in gaps.T], axis=1)
    if len(by_unit) < FEWEST_IN_BIN * bins:
        what = "examples" if units.of is None else "groups"
        return np.nan, f"{len(by_unit)} {what}; calibration errors need {FEWEST_IN_BIN} for each of {bins} bins"
    mean = gaps.sum(0) / n
    away = by_unit - by_unit.mean(0)
    power, basis = np.linalg.eigh(away.T @ away * len(away) / (len(away) - 1))
    normal = np.random.default_rng(0).standard_normal((DRAWS, bins))
    noise = normal * np.sqrt(np.maximum(power, 0)) @ basis.T / n
    tail = (1 - level) / 2

    def reached(t: float, share: float) -> float:
        return float(np.quantile(np.abs(t * mean + noise).sum(1), share))

    ends = []
    for share in (1 - tail, tail):  # the lower end: whose upper quantile is the value
        low, high = 0.0, 4.0
        if reached(low, share) >= value:
            ends.append(0.0)
            continue
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if reached(middle, share) < value else (low, middle)
        ends.append(low * value)
    return (min(ends[0], value), max(ends[1], value)), ""


def exchanged_values(name: str, gold: np.ndarray, ranks: np.ndarray, fits: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """First minus the mean of the others, (R,), after example i is rotated by slots (R, n) fits.

    gold (F, n), ranks (F, n, K) of all fits; fits (1 + k,), those of the pair.
    """
    size, example = len(fits), np.arange(gold.shape[1])
    values = []
    for i in range(size):
        of = fits[(i + slots) % size]
        values.append(measured(name, gold[of, example], ranks[of, example]))
    return np.asarray(values[0] - np.mean(values[1:], axis=0))


def ranks_of(scores: np.ndarray) -> np.ndarray:
    """Average ranks within each fit and class of (F, n, K)."""
    return np.asarray(stats.rankdata(scores, axis=1, nan_policy="propagate"))


def placements(gold: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """What each example adds to the area of its fit, (F, n), from ranks: their mean is the area minus 1/2.

    Mean ranks of positives and of negatives, over n, differ by the area minus 1/2 (Hanley & McNeil 1982).
    """
    ranks, n = ranks_of(scores), gold.shape[1]
    out = np.zeros(ranks.shape[:2])
    for f, (y, r) in enumerate(zip(np.broadcast_to(gold, ranks.shape[:2]), ranks, strict=True)):
        sides = [y == 1] if r.shape[1] == 1 else [y == c for c in range(r.shape[1])]
        known = [(side, r[:, k]) for k, side in enumerate(sides) if side.any() and not side.all()]
        for side, rank in known:
            centred = rank - (n + 1) / 2
            out[f] += np.where(side, centred / side.sum(), -centred / (~side).sum()) / len(known)
    return out
