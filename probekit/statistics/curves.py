"""A layer curve in a few numbers, with intervals: where it is best, where its weight lies, where it gets good enough.

Each number is that of the curve of values on all examples, of which these are a sample. Its interval holds the numbers
of all curves within a band that holds the whole true curve, however flat: resampling the number itself would not do,
for a running maximum and the distance from the lowest layer collect noise. What all layers share cancels in the band.
The numbers are in units of layers, layer 0 being the input of the first block; ``final_norm`` is no layer between
others and is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.metrics import metric as metric_called
from probekit.rows import make_rows
from probekit.statistics.bootstrap import band, bounds
from probekit.statistics.contrasts import curves, fitting_metric
from probekit.statistics.options import SummaryOptions
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "best_layer",
    "best_layers",
    "centre_of_gravity",
    "centre_within",
    "curve_summary",
    "expected_layer",
    "expected_within",
    "first_good_layer",
    "first_good_within",
    "not_worse",
]


def curve_summary(evaluated: Predictions, options: SummaryOptions = SummaryOptions()) -> pd.DataFrame:
    """Each curve on the gold labels in four numbers, with intervals.

    Parameters
    ----------
    evaluated : Predictions
        Of the layers of any number of models.
    options : SummaryOptions
        ``metric`` is one of the table's or "log-loss", its first for None; ``margin``, ``resamples``, ``level``,
        ``seed``.

    Returns
    -------
    DataFrame
        Rows with the metrics best-layer, centre-of-gravity, expected-layer and first-good-layer; the metric of the
        curve is the own column ``of_metric``. value, ci_low and ci_high are layers; NaN where undetermined. Of the best
        layer ``layers`` names those that are not shown to be worse than the best ("2,3,4"), ci_low and ci_high are the
        first and last of them, and ``best_value``, ``best_low``, ``best_high`` are the metric there with an interval
        that holds all layers at once, for the layer was chosen among them. ``why`` says why there is no interval.
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
        common |= {"analysis": "summary", "site": "", "layer": None, "n": len(part.ids), "of_metric": metric}
        records += [{**common, **one} for one in _numbers(part, metric, options)]
    return make_rows(records)


def _numbers(part: Predictions, metric: str, options: SummaryOptions) -> list[dict[str, Any]]:
    """The four numbers of one curve."""
    sign, layers = metric_called(metric).sign, part.fits["layer"].to_numpy(dtype=np.int64)
    how: dict[str, Any] = {"resamples": options.resamples, "level": options.level, "seed": options.seed}
    found = bounds(metric=metric, **how, **part.sample())
    why = next((w for w, value in zip(found.why, found.value, strict=True) if w and np.isfinite(value)), "")
    value, again = sign * found.value, sign * found.again
    known = np.isfinite(value) & np.isfinite(again).all(1)
    nothing = np.full(2, np.nan)
    if not known.any():
        why = why or "undefined at every layer"
        return [{"metric": name, "value": np.nan, "ci_low": np.nan, "ci_high": np.nan, "why": why} for name in NAMES]
    layers, value, again = layers[known], value[known], again[known]
    column = value[:, None]
    among = best_layers(value, again, level=options.level)
    joint = band(found.value[known], found.ci[known], found.again[known], level=options.level)[value.argmax()]
    best = {
        "layers": ",".join(map(str, layers[among])),
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
    """The interval of a number: what it is on the curves of a band around the measured one.

    The band that holds the whole curve makes it too wide. Its height is lowered as far as the interval still fails half
    as often as it may, whichever of the curves that the data leave open is the true one: the measured one, those that
    are flat from some layer on or up to some layer, where maxima and minima of noise are worst, and those in which the
    best layer and another one are alike, or the other way about. Each is simulated
    with the replicates' deviations. The other half pays for not knowing the true curve. Where a flat curve is open, so
    is every layer.
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
    """What of each layer deviates in each resample beyond what all layers share, (L, R), its error, (L,), and how many
    errors the largest deviation of any layer reaches with the probability ``level``: no number here depends on the
    curve's height."""
    own = again - again.mean(0)
    own -= own.mean(1, keepdims=True)
    error = own.std(1, ddof=1)
    some = error > 1e-12
    away = np.abs(own[some]) / error[some][:, None]
    return own, np.where(some, error, 0.0), float(np.quantile(away.max(0), level)) if some.any() else 0.0


def _flattened(value: np.ndarray) -> list[np.ndarray]:
    """The curve, and it with the layers from some layer on, or up to some layer, at their mean; with the best layer and
    another one at their mean, or exchanged."""
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


def best_layers(value: np.ndarray, again: np.ndarray, *, level: float = 0.95) -> np.ndarray:
    """Which layers are not shown to be worse than the best, bool (L,): the true best one is with probability ``level``.

    A layer is left out where some other is above it by more than the largest such difference, in standard errors, that
    noise makes in ``level`` of resamples (Hsu 1984, constrained multiple comparisons with the best, by max-t).

    Parameters
    ----------
    value, again : np.ndarray
        (L,), higher is better, and its replicates, (L, R).
    """
    among = np.ones(len(value), dtype=bool)
    for layer in range(len(value)):
        behind = again - again[layer]
        behind -= behind.mean(1, keepdims=True)
        error = behind.std(1, ddof=1)
        others = error > 1e-12
        if others.any():
            t = (value - value[layer])[others] / error[others]
            among[layer] = t.max() <= np.quantile((behind[others] / error[others][:, None]).max(0), level)
    among[value.argmax()] = True
    return among


def not_worse(evaluated: Predictions, metric: str, options: SummaryOptions = SummaryOptions()) -> np.ndarray | None:
    """Which fits are not shown to be worse than the best one, bool (F,), as :func:`best_layers` tells.

    None where a fit has no value, or no interval.
    """
    found = bounds(
        metric=metric, resamples=options.resamples, level=options.level, seed=options.seed, **evaluated.sample()
    )
    if any(found.why) or not np.isfinite(found.value).all() or not np.isfinite(found.again).all():
        return None
    sign = metric_called(metric).sign
    return best_layers(sign * found.value, sign * found.again, level=options.level)


def best_layer(layers: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The layer with the highest value, the lowest of equals, (R,); NaN where no layer has a value, or all the same.

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
    """Mean layer, each weighted by how far its value lies above the lowest of the curve, (R,).

    The weights are of layers, like the scalar mix of Tenney, Das & Pavlick 2019 (section 3.1), but from separate
    probes; taking the lowest value out makes the number independent of the metric's origin. Layers may be missing
    (NaN). NaN where the curve is flat, or has one layer only.
    """
    with np.errstate(invalid="ignore"):
        above = np.nan_to_num(values - np.fmin.reduce(values, axis=0))
    return _ratio((layers[:, None] * above).sum(0), above.sum(0), np.fmax.reduce(np.abs(values), axis=0))


def expected_layer(layers: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Σ l Δ(l) / Σ Δ(l) with Δ(l) = s(l) - s(l - 1) (Tenney, Das & Pavlick 2019, equation 4), (R,).

    There s(l) is a probe of all layers up to l; here it is the best value among them, as a probe that may look at all
    of them does at least that well. Each step is put at the layer where it ends, the first layer being no step. NaN
    where no layer is better than the first (Σ Δ = 0): then there is nothing whose layer could be expected.

    The running maximum of measured values lies above that of the true ones: on a plateau every layer adds some noise.
    :func:`curve_summary` takes out what it adds in resamples.
    """
    known = np.where(np.isnan(values), -np.inf, values)
    reached = np.maximum.accumulate(known, axis=0)
    with np.errstate(invalid="ignore"):
        steps = np.where(np.isfinite(reached[:-1]), np.diff(reached, axis=0), 0.0)
    return _ratio((layers[1:, None] * steps).sum(0), steps.sum(0), np.fmax.reduce(np.abs(values), axis=0))


def expected_within(layers: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest expected layer of all curves between ``low`` and ``high``, (L, B) each: (B,), (B,).

    Σ l Δ(l) / Σ Δ(l) is l(1) + Σ d(k) (M(L) - M(k)) / (M(L) - M(0)), d(k) being the distance to the next layer and M
    the running maximum. It falls with each M(k) between and, once these are at their ends, rises with M(0) and M(L):
    so its ends are those of few curves, one for each layer that may be the best. From l(1) to l(L) where a flat curve
    lies within; NaN of one layer.
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
    """The expected layer minus what its resamples are above it, on the layers (Efron & Tibshirani 1993, 10.6)."""
    number = expected_layer(layers, value[:, None])[0]
    drawn = expected_layer(layers, again)
    if np.isnan(number) or 2 * np.isfinite(drawn).sum() < again.shape[1]:
        return float("nan")
    return float(np.clip(2 * number - np.nanmean(drawn), layers[1], layers[-1]))


def centre_within(layers: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest centre of gravity of curves between ``low`` and ``high``, (L, B) each: (B,), (B,).

    Of those that are high on one side of some layer and low on the other, with the lowest value at either of its ends.
    From the first to the last layer where a flat curve lies within; NaN of one.
    """
    if len(layers) < 2:
        return np.full(low.shape[1], np.nan), np.full(low.shape[1], np.nan)
    first, last = np.full(low.shape[1], np.inf), np.full(low.shape[1], -np.inf)
    for lowest in (low.min(0), high.min(0)):
        up, down = (np.maximum(end - lowest, 0) for end in (high, low))
        sums = [(np.cumsum(x, axis=0), np.cumsum(layers[:, None] * x, axis=0)) for x in (up, down)]
        for (w1, s1), (w2, s2) in (sums, sums[::-1]):  # the one up to each layer, the other beyond it
            weight, above = w1 + w2[-1] - w2, s1 + s2[-1] - s2
            with np.errstate(invalid="ignore", divide="ignore"):
                centre = np.where(weight > 0, above / weight, np.nan)
            first, last = np.fmin(first, np.fmin.reduce(centre)), np.fmax(last, np.fmax.reduce(centre))
    flat = low.max(0) <= high.min(0)
    return np.where(flat, layers[0], first), np.where(flat, layers[-1], last)


def first_good_layer(layers: np.ndarray, values: np.ndarray, *, margin: float = 0.1) -> np.ndarray:
    """The lowest layer that reaches all but ``margin`` of the way from the curve's lowest to its highest value, (R,).

    NaN where no layer has a value, and where the curve is flat, or has one layer only.

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
    """Between which layers the first good one lies, for all curves between ``low`` and ``high``, (L, B): (B,), (B,).

    From the lowest layer that reaches far enough on some such curve, which fewer examples make lower, to the lowest one
    that does so on all of them, or the last that may be the best, which fewer examples make higher.
    """
    if len(layers) < 2:
        return np.full(low.shape[1], np.nan), np.full(low.shape[1], np.nan)

    def reaches(at: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Where a layer at one end of the band does, the others being at the other, (L, B)."""
        out = np.empty(at.shape, dtype=bool)
        for layer in range(len(layers)):
            rest = np.delete(others, layer, axis=0)
            top, bottom = np.maximum(rest.max(0), at[layer]), np.minimum(rest.min(0), at[layer])
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
STEP = 1 / 16  # by which a band is made higher, of the height that holds the whole curve
NAMES = ("best-layer", "centre-of-gravity", "expected-layer", "first-good-layer")
"""The numbers of a curve."""
