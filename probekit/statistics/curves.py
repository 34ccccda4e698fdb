"""A layer curve in a few numbers, with intervals: where it is best, where its weight lies, where it gets good enough.

The numbers are computed in every resample of the examples, from the same draws as all other intervals, so that what
the layers share cancels. They are in units of layers, layer 0 being the input of the first block; ``final_norm`` is
no layer between others and is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.metrics import metric as metric_called
from probekit.rows import make_rows
from probekit.statistics._sums import Units
from probekit.statistics.bootstrap import estimates, intervals, replicates
from probekit.statistics.comparisons import curves, fitting_metric
from probekit.statistics.options import SummaryOptions
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["best_layer", "centre_of_gravity", "curve_summary", "expected_layer", "first_good_layer"]


def curve_summary(evaluated: Predictions, options: SummaryOptions = SummaryOptions()) -> pd.DataFrame:
    """Each curve on the gold labels in four numbers, with intervals.

    Parameters
    ----------
    evaluated : Predictions
        Of the layers of any number of models.
    options : SummaryOptions
        ``metric`` is one of the table's or "log-loss", its first for None; ``resamples``, ``level``, ``seed``.

    Returns
    -------
    DataFrame
        Rows with the metrics best-layer, centre-of-gravity, expected-layer and first-good-layer; the metric of the
        curve is the own column ``of_metric``. value, ci_low and ci_high are layers; NaN where undetermined, and so is
        the interval where that is so in more than half of the resamples. first-good-layer has no interval: it is made
        from one.
    """
    metric = fitting_metric(evaluated, options.metric)
    sign = metric_called(metric).sign
    numbered = evaluated.fits["layer"].notna().to_numpy(dtype=bool)
    records: list[dict[str, Any]] = []
    for whole in curves(evaluated):
        curve = whole[numbered[whole]]
        if not len(curve):
            continue
        part = evaluated.take(curve)
        layers = part.fits["layer"].to_numpy(dtype=np.int64)
        value = sign * estimates(metric=metric, **part.sample())[:, None]
        again = sign * replicates(metric=metric, resamples=options.resamples, seed=options.seed, **part.sample())
        units = Units.of_groups(part.groups, len(part.ids)).count
        common: dict[Any, Any] = part.fits.iloc[0].drop(labels=["penalty", "source"], errors="ignore").to_dict()
        common |= {"analysis": "summary", "site": "", "layer": None, "n": len(part.ids), "of_metric": metric}
        for name, function in STATISTICS.items():
            [[low, high]] = intervals(function(layers, again)[None], level=options.level, units=units)
            number = function(layers, value)[0]
            records.append({**common, "metric": name, "value": number, "ci_low": low, "ci_high": high})
        good = first_good_layer(layers, value[:, 0], again, level=options.level, units=units)
        records.append({**common, "metric": "first-good-layer", "value": good})
    return make_rows(records)


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
    """
    known = np.where(np.isnan(values), -np.inf, values)
    reached = np.maximum.accumulate(known, axis=0)
    with np.errstate(invalid="ignore"):
        steps = np.where(np.isfinite(reached[:-1]), np.diff(reached, axis=0), 0.0)
    return _ratio((layers[1:, None] * steps).sum(0), steps.sum(0), np.fmax.reduce(np.abs(values), axis=0))


def first_good_layer(
    layers: np.ndarray, values: np.ndarray, again: np.ndarray, *, level: float = 0.95, units: int | None = None
) -> float:
    """The lowest layer that is not shown to be worse than the best one: the interval of best minus it reaches 0.

    interval overlaps that of the best. NaN where no layer has a value.

    Parameters
    ----------
    values : np.ndarray
        (L,).
    again : np.ndarray
        (L, R), its replicates. The difference is paired, so a layer may fail although its own.
    """
    if np.isnan(values).all():
        return float("nan")
    behind = intervals(again[np.nanargmax(values)] - again, level=level, units=units)[:, 0]
    return float(layers[(behind <= 0) & ~np.isnan(values)][0])


def _ratio(above: np.ndarray, below: np.ndarray, scale: np.ndarray) -> np.ndarray:
    enough = below > 1e-9 * np.nan_to_num(scale)
    return np.divide(above, below, out=np.full_like(below, np.nan), where=enough)


STATISTICS = {
    "best-layer": best_layer,
    "centre-of-gravity": centre_of_gravity,
    "expected-layer": expected_layer,
}
