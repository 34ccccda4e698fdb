"""Summaries of a layer curve with intervals: its best layer, its centre, and the first layer that is good enough.

Each number describes the curve in the population of examples. Its interval contains the numbers of all curves within a
simultaneous band for the true curve, even a flat one. Resampling the number itself would be biased, since a running
maximum and the distance from the lowest layer accumulate noise. Effects that all layers share cancel in the band. The
numbers are in units of layers, with layer 0 the input of the first block; ``final_norm`` is not between other layers
and is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.metrics import metric as metric_called
from probekit.rows import make_rows
from probekit.statistics.bootstrap import band, bounds, estimates
from probekit.statistics.comparisons import paired
from probekit.statistics.contrasts import against_best, curves, fitting_metric
from probekit.statistics.options import CompareOptions, SummaryOptions
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def curve_summary(evaluated: Predictions, options: SummaryOptions = SummaryOptions()) -> pd.DataFrame:
    """Summarise each curve for gold labels in four numbers with intervals.

    Parameters
    ----------
    evaluated : Predictions
        Predictions of the layers of any number of models.
    options : SummaryOptions
        ``metric`` is one of the table's or "log-loss", by default its first; ``margin``, ``resamples``, ``level``,
        ``seed``.

    Returns
    -------
    DataFrame
        Rows with the metrics best-layer, centre-of-gravity, expected-layer and first-good-layer; the column
        ``of_metric`` holds the metric of the curve. value, ci_low and ci_high are layers; NaN if undetermined. For the
        best layer, ``layers`` lists those not shown to be worse than the best ("2,3,4"), ci_low and ci_high are the
        first and last of them, and ``best_value``, ``best_low``, ``best_high`` are the metric there with a simultaneous
        interval for all layers, since the layer was selected; ``compared`` is the number of layers, and ``of_analysis``
        the analysis of the curve. ``why`` gives the reason for a missing interval.
    """
    metric = fitting_metric(evaluated, options.metric)
    numbered = evaluated.fits["layer"].notna().to_numpy(dtype=bool)
    records: list[dict[str, Any]] = []
    for whole in curves(evaluated):
        curve = whole[numbered[whole]]
        if not len(curve):
            continue
        part = evaluated.take(curve)
        common: dict[Any, Any] = part.fits.iloc[0].drop(labels=["penalty", "source"], errors="ignore").to_dict()
        common |= {
            "of_analysis": str(common.get("analysis", "")),
            "analysis": "summary",
            "site": "",
            "layer": None,
            "n": len(part.ids),
            "of_metric": metric,
        }
        records += [{**common, **one} for one in _numbers(part, metric, options)]
    return make_rows(records)


def _numbers(part: Predictions, metric: str, options: SummaryOptions) -> list[dict[str, Any]]:
    """The four numbers of one curve."""
    sign, layers = metric_called(metric).sign, part.fits["layer"].to_numpy(dtype=np.int64)
    arguments: dict[str, Any] = {"resamples": options.resamples, "level": options.level, "seed": options.seed}
    found = bounds(metric=metric, **arguments, **part.sample())
    why = next((w for w, value in zip(found.why, found.value, strict=True) if w and np.isfinite(value)), "")
    value, again = sign * found.value, sign * found.resampled
    known = np.isfinite(value) & np.isfinite(again).all(1)
    nothing = np.full(2, np.nan)
    if not known.any():
        why = why or "undefined at every layer"
        return [{"metric": name, "value": np.nan, "ci_low": np.nan, "ci_high": np.nan, "why": why} for name in NAMES]
    layers, value, again = layers[known], value[known], again[known]
    column = value[:, None]
    among = not_worse(part.take(np.flatnonzero(known)), metric, options)
    assert among is not None  # every value is known
    joint = band(found.value[known], found.ci[known], found.resampled[known], level=options.level)[value.argmax()]
    best = {
        "layers": ",".join(map(str, layers[among])),
        "compared": len(layers),
        **dict(zip(("best_value", "best_low", "best_high"), (sign * value.max(), *joint), strict=True)),
    }
    within = partial(_interval, layers, value, again, options.level)
    good = partial(first_good_layer, margin=options.margin), partial(first_good_within, margin=options.margin)
    numbers = {
        "best-layer": (best_layer(layers, column)[0], layers[among][[0, -1]]),
        "centre-of-gravity": (centre_of_gravity(layers, column)[0], within(centre_of_gravity, centre_within)),
        "expected-layer": (_less_biased(layers, value, again), within(expected_layer, expected_within)),
        "first-good-layer": (good[0](layers, column)[0], within(*good)),
    }
    return [
        {"metric": name, "value": number, "why": why, **(best if name == "best-layer" else {})}
        | dict(zip(("ci_low", "ci_high"), nothing if why else map(float, ends), strict=True))
        for name, (number, ends) in numbers.items()
    ]


def _interval(
    layers: np.ndarray, value: np.ndarray, again: np.ndarray, level: float, number: Number, within: Within
) -> tuple[float, float]:
    """The interval of a number: its range over the curves in a band around the measured one.

    The simultaneous band for the curve makes it too wide. The band is therefore narrowed as long as the interval fails
    at most half as often as allowed for each plausible true curve: the measured one, those that are flat from or up to
    some layer (where maxima and minima of noise are worst), and those in which the best and another layer are equal or
    exchanged. Each is simulated with the deviations of the replicates. The other half of the error allows for the
    unknown true curve. If a flat curve is plausible, every layer is.
    """
    own, error, reach = _deviations(again, level)
    open_ = [c for c in _flattened(value) if (np.abs(c - value) <= reach * error + 1e-12).all()]
    low, high = (value[:, None] + side * reach * error[:, None] for side in (-1, 1))
    if np.isnan(number(layers, value[:, None])[0]):
        return float(layers[0]), float(layers[-1])
    widest = tuple(float(end[0]) for end in within(layers, low, high))
    if not len(layers) > 1 or not error.any() or low.max() <= high.min():
        return widest[0], widest[1]
    needed = 0.0
    for curve in open_:
        truth = number(layers, curve[:, None])[0]
        if np.isnan(truth):
            return widest[0], widest[1]
        drawn = curve[:, None] + own
        while needed < 1:
            half = needed * reach * error[:, None]
            first, last = within(layers, drawn - half, drawn + half)
            if ((first - 1e-9 <= truth) & (truth <= last + 1e-9)).mean() >= (1 + level) / 2:
                break
            needed = min(1.0, needed + STEP)
    half = needed * reach * error[:, None]
    first, last = within(layers, value[:, None] - half, value[:, None] + half)
    return float(first[0]), float(last[0])


def _deviations(again: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Deviations of each layer in each resample from the shared part, (L, R), their standard errors, (L,), and the
    ``level`` quantile of the largest standardised deviation: none of them depends on the curve's height."""
    own = again - again.mean(0)
    own -= own.mean(1, keepdims=True)
    error = own.std(1, ddof=1)
    some = error > 1e-12
    away = np.abs(own[some]) / error[some][:, None]
    return own, np.where(some, error, 0.0), float(np.quantile(away.max(0), level)) if some.any() else 0.0


def _flattened(value: np.ndarray) -> list[np.ndarray]:
    """The curve; with the layers from or up to some layer at their mean; with the best and another layer at their
    mean, or exchanged."""
    curves = [value]
    for cut in range(len(value) - 1):
        for part in (slice(cut, None), slice(None, cut + 2)):
            curve = value.copy()
            curve[part] = value[part].mean()
            curves.append(curve)
    best = int(np.nanargmax(value))
    for other in np.delete(np.arange(len(value)), best):
        two = [best, int(other)]
        for values in (value[two].mean(), value[two][::-1]):
            curve = value.copy()
            curve[two] = values
            curves.append(curve)
    return curves


def not_worse(evaluated: Predictions, metric: str, options: SummaryOptions = SummaryOptions()) -> np.ndarray | None:
    """Which fits are not shown to be worse than the best one, bool (F,); they include the best with ``level``.

    A fit is left out if :func:`probekit.statistics.comparisons.compare_predictions` against "best" shows it to differ:
    predictions are exchanged between two fits, and all pairs of fits are one family. None if a fit has no value.
    """
    value = estimates(metric=metric, **evaluated.sample())
    if not np.isfinite(value).all():
        return None
    best = int(metric_called(metric).best(value))
    among = np.ones(len(value), dtype=bool)
    pairs = against_best(range(len(value)), best)
    if pairs:
        how = CompareOptions(resamples=options.resamples, level=options.level, seed=options.seed)
        p = paired(evaluated, pairs, metric, options=how).p_adjusted
        among[[f for f, _ in pairs[: len(value) - 1]]] = p[: len(value) - 1] > 1 - options.level
    return among


def best_layer(layers: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The layer with the highest value, the lowest one if tied, (R,); NaN if no layer has a value, or all are equal.

    Parameters
    ----------
    layers : np.ndarray
        (L,) numbers, ascending.
    values : np.ndarray
        (L, R), higher is better; NaN layers are left out.
    """
    known = np.where(np.isnan(values), -np.inf, values)
    flat = (len(layers) > 1) & (np.fmax.reduce(values, axis=0) == np.fmin.reduce(values, axis=0))
    return np.where(np.isnan(values).all(0) | flat, np.nan, layers[known.argmax(0)])


def centre_of_gravity(layers: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean layer, weighted by the distance of its value from the lowest one of the curve, (R,).

    The weights are like the scalar mix of Tenney, Das & Pavlick 2019 (section 3.1), but from separate probes;
    subtracting the lowest value makes the number independent of the metric's origin. Layers may be missing (NaN). NaN
    if the curve is flat, or has only one layer.
    """
    with np.errstate(invalid="ignore"):
        above = np.nan_to_num(values - np.fmin.reduce(values, axis=0))
    return _ratio((layers[:, None] * above).sum(0), above.sum(0), np.fmax.reduce(np.abs(values), axis=0))


def expected_layer(layers: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Σ l Δ(l) / Σ Δ(l) with Δ(l) = s(l) - s(l - 1) (Tenney, Das & Pavlick 2019, equation 4), (R,).

    In the paper s(l) is a probe of all layers up to l; here it is the best value among them, since a probe that reads
    all of them does at least that well. Each step counts at the layer where it ends; the first layer is not a step. NaN
    if no layer is better than the first (Σ Δ = 0).

    The running maximum of measured values exceeds that of the true ones: on a plateau every layer adds noise.
    :func:`curve_summary` subtracts this bias, estimated in resamples.
    """
    known = np.where(np.isnan(values), -np.inf, values)
    reached = np.maximum.accumulate(known, axis=0)
    with np.errstate(invalid="ignore"):
        steps = np.where(np.isfinite(reached[:-1]), np.diff(reached, axis=0), 0.0)
    return _ratio((layers[1:, None] * steps).sum(0), steps.sum(0), np.fmax.reduce(np.abs(values), axis=0))


def expected_within(layers: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest expected layer of all curves between ``low`` and ``high``, (L, B) each: (B,), (B,).

    Σ l Δ(l) / Σ Δ(l) is l(1) + Σ d(k) (M(L) - M(k)) / (M(L) - M(0)), where d(k) is the distance to the next layer and M
    the running maximum. It decreases in each M(k) in between and, with these at their extremes, increases in M(0) and
    M(L): so few curves attain the ends, one for each layer that may be the best. From l(1) to l(L) if the band contains
    a flat curve; NaN for one layer.
    """
    if len(layers) < 2:
        return np.full(low.shape[1], np.nan), np.full(low.shape[1], np.nan)
    below, gaps = np.maximum.accumulate(low, axis=0), np.diff(layers[1:]).astype(float)
    flat = below[-1] <= high[0]
    later = np.maximum(np.maximum.accumulate(high[1:-1], axis=0), low[0])
    last = np.zeros(low.shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        first = gaps @ np.maximum(below[-1] - later, 0) / (below[-1] - low[0])
        for top in range(1, len(layers)):  # the layer that is best
            short = (high[top] - np.maximum(below[1:top], high[0])) / (high[top] - high[0])
            last = np.where(high[top] >= below[-1], np.fmax(last, gaps[: top - 1] @ short), last)
    first = np.minimum(first, last)  # which rounding may put above it
    return np.where(flat, layers[1], layers[1] + first), np.where(flat, layers[-1], layers[1] + last)


def _less_biased(layers: np.ndarray, value: np.ndarray, again: np.ndarray) -> float:
    """The expected layer minus its bootstrap estimate of bias, within the layers (Efron & Tibshirani 1993, 10.6)."""
    number = expected_layer(layers, value[:, None])[0]
    drawn = expected_layer(layers, again)
    if np.isnan(number) or 2 * np.isfinite(drawn).sum() < again.shape[1]:
        return float("nan")
    return float(np.clip(2 * number - np.nanmean(drawn), layers[1], layers[-1]))


def centre_within(layers: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest centre of gravity of curves between ``low`` and ``high``, (L, B) each: (B,), (B,).

    The extremes are curves that are high on one side of some layer and low on the other, with the lowest value at
    either end. From the first to the last layer if the band contains a flat curve; NaN for one layer.
    """
    if len(layers) < 2:
        return np.full(low.shape[1], np.nan), np.full(low.shape[1], np.nan)
    first, last = np.full(low.shape[1], np.inf), np.full(low.shape[1], -np.inf)
    for lowest in (low.min(0), high.min(0)):
        up, down = (np.maximum(end - lowest, 0) for end in (high, low))
        sums = [(np.cumsum(x, axis=0), np.cumsum(layers[:, None] * x, axis=0)) for x in (up, down)]
        for (w1, s1), (w2, s2) in (sums, sums[::-1]):  # one up to each layer, the other after it
            weight, above = w1 + w2[-1] - w2, s1 + s2[-1] - s2
            with np.errstate(invalid="ignore", divide="ignore"):
                centre = np.where(weight > 0, above / weight, np.nan)
            first, last = np.fmin(first, np.fmin.reduce(centre)), np.fmax(last, np.fmax.reduce(centre))
    flat = low.max(0) <= high.min(0)
    return np.where(flat, layers[0], first), np.where(flat, layers[-1], last)


def first_good_layer(layers: np.ndarray, values: np.ndarray, *, margin: float = 0.1) -> np.ndarray:
    """The lowest layer within ``margin`` of the highest value, as a fraction of the curve's range, (R,).

    NaN if no layer has a value, the curve is flat, or has only one layer.

    Parameters
    ----------
    values : np.ndarray
        (L, R), higher is better; NaN layers are left out.
    """
    top, bottom = np.fmax.reduce(values, axis=0), np.fmin.reduce(values, axis=0)
    with np.errstate(invalid="ignore"):
        good = values >= top - margin * (top - bottom) - 1e-12
        flat = ~(top - bottom > 1e-9 * np.abs(top))
    return np.where(flat, np.nan, layers[good.argmax(0)])


def first_good_within(
    layers: np.ndarray, low: np.ndarray, high: np.ndarray, *, margin: float = 0.1
) -> tuple[np.ndarray, np.ndarray]:
    """Range of the first good layer over all curves between ``low`` and ``high``, (L, B): (B,), (B,).

    From the lowest layer that is good on some such curve to the lowest one that is good on all of them, or the last
    that may be the best. With fewer examples the range widens.
    """
    if len(layers) < 2:
        return np.full(low.shape[1], np.nan), np.full(low.shape[1], np.nan)

    def reaches(at: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Whether each layer is good with its value at one end of the band and the others at the other end, (L, B)."""
        out = np.empty(at.shape, dtype=bool)
        for layer in range(len(layers)):
            remaining = np.delete(others, layer, axis=0)
            top, bottom = np.maximum(remaining.max(0), at[layer]), np.minimum(remaining.min(0), at[layer])
            out[layer] = at[layer] >= top - margin * (top - bottom) - 1e-12
        return out

    sure = reaches(low, high)
    last = layers[len(layers) - 1 - (high >= low.max(0))[::-1].argmax(0)]
    certain = np.where(sure.any(0), layers[sure.argmax(0)], last)
    return layers[reaches(high, low).argmax(0)], np.minimum(last, certain)


def _ratio(above: np.ndarray, below: np.ndarray, scale: np.ndarray) -> np.ndarray:
    enough = below > 1e-9 * np.nan_to_num(scale)
    return np.divide(above, below, out=np.full_like(below, np.nan), where=enough)


Number = Callable[[np.ndarray, np.ndarray], np.ndarray]
Within = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
STEP = 1 / 16  # step by which the band is widened, as a fraction of the simultaneous band
NAMES = ("best-layer", "centre-of-gravity", "expected-layer", "first-good-layer")
"""The summaries of a curve."""
