"""Where in a model the information is: centre of gravity and expected layer (Tenney, Das & Pavlick 2019, section 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from probekit.metrics import metric as metric_called
from probekit.statistics.bootstrap import COUNTED_AS, estimates, replicates
from probekit.statistics.detection import FEWEST_OF_CLASS
from probekit.statistics.predictions import Predictions

OF_CLASSES = ("f1", "macro-f1")
"""Scores that a class of few examples makes uncertain."""


def centre_of_gravity(layers: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Σ l s(l) of the weights of a mix, which sum to 1 (equation 2).

    Parameters
    ----------
    layers : np.ndarray
        (L,), the numbers of the layers.
    weights : np.ndarray
        (..., L), those of the mix.

    Examples
    --------
    >>> centre_of_gravity(np.arange(3), np.array([0.25, 0.25, 0.5]))
    1.25
    """
    return weights @ layers


def expected_layer(layers: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Σ l Δ(l) / Σ Δ(l) with Δ(l) = score(l) - score(l - 1) (equations 3 and 4).

    Parameters
    ----------
    layers : np.ndarray
        (L,), ascending.
    scores : np.ndarray
        (L, R), of probes of a mix of all layers up to each; higher is better.

    Returns
    -------
    np.ndarray
        (R,); NaN where the mix of all layers is not better than the first layer alone (Σ Δ ≤ 0). Steps down count as
        such, so that the number can lie beyond the layers if scores fall much between others.

    Examples
    --------
    >>> expected_layer(np.arange(3), np.array([[0.5], [0.8], [0.9]]))
    array([1.25])
    """
    steps = np.diff(scores, axis=0)
    gain = scores[-1] - scores[0]
    some = gain > 1e-9 * np.abs(scores).max(0)
    return np.divide(layers[1:] @ steps, gain, out=np.full(len(gain), np.nan), where=some)


def expected_layer_of(
    mixes: Predictions, metric: str, *, resamples: int, level: float, seed: int
) -> tuple[float, float, float]:
    """The expected layer of one model, and its interval over the groups of dev.

    Parameters
    ----------
    mixes : Predictions
        Of the probes of mixes up to each layer, one fit for each, in order.
    metric : str
        The score.
    resamples, level, seed
        Of the bootstrap; the trained probes stay as they are.

    Returns
    -------
    tuple of float
        Value, lower and upper end: Fieller's interval of a ratio, with the covariance of the resamples and Student's t
        with as many degrees of freedom as there are groups, or groups of the rarest class of F1, minus 1. The value is
        missing where the mix of all layers is not better than the first layer; the interval, where it is not shown to
        differ from it, and where :func:`rare_class`.
    """
    layers = mixes.fits["layer"].to_numpy(dtype=np.float64)
    sign, name = metric_called(metric).sign, COUNTED_AS.get(metric, metric)
    sample: dict[str, Any] = {**mixes.sample(), "metric": name, "score": metric_called(metric).function}
    scores, tail = sign * estimates(**sample), (1 + level) / 2
    value, gain = float(expected_layer(layers, scores[:, None])[0]), float(scores[-1] - scores[0])
    fewest = _rarest(mixes, metric)[0]
    if np.isnan(value) or not resamples or fewest < 5 or rare_class(mixes, metric):
        return value, np.nan, np.nan
    steps = np.diff(sign * replicates(**sample, resamples=resamples, seed=seed), axis=0)
    return value, *_fieller(value, np.cov(layers[1:] @ steps, steps.sum(0)), gain, stats.t.ppf(tail, fewest - 1))


def rare_class(mixes: Predictions, metric: str) -> str:
    """Why the layers' scores have no interval: a class that is too rare for its F1; "" if there is none.

    With fewer than 10 examples of a class of three, intervals of the expected layer cover 76 to 91 %
    (docs/calibration.md); an accuracy has no such classes.
    """
    count, rarest = _rarest(mixes, metric)
    if count >= FEWEST_OF_CLASS or metric not in OF_CLASSES:
        return ""
    name = mixes.label_names[rarest] if rarest < len(mixes.label_names) else rarest
    what = "examples" if mixes.groups is None else "groups with examples"
    return f"{count} {what} of {name}; intervals need at least {FEWEST_OF_CLASS}"


def _rarest(mixes: Predictions, metric: str) -> tuple[int, int]:
    """The number of examples (groups) of the class that has fewest, of those whose F1 counts; all without such."""
    units = np.arange(len(mixes.ids)) if mixes.groups is None else mixes.groups
    gold = np.atleast_2d(mixes.gold)[0]
    if metric not in OF_CLASSES:
        return len(np.unique(units)), 0
    classes = [1] if metric == "f1" else np.union1d(gold, mixes.predicted)
    return min((len(np.unique(units[gold == c])), int(c)) for c in classes)


def _fieller(ratio: float, cov: np.ndarray, below: float, t: float) -> tuple[float, float]:
    """The ratios e for which above - e · below is within t standard errors of 0 (Fieller 1954); cov is of the two.

    Missing if ``below`` is not that far from 0: then the set has no ends.
    """
    (vn, c), (_, vd) = cov
    g = t**2 * vd / below**2
    if not g < 1:
        return np.nan, np.nan
    inner = vn - 2 * ratio * c + ratio**2 * vd - g * (vn - (c**2 / vd if vd else 0))
    middle, half = ratio - (t / below) ** 2 * c, t / below * np.sqrt(max(inner, 0))
    return float((middle - half) / (1 - g)), float((middle + half) / (1 - g))


def over_seeds(values: np.ndarray, level: float) -> tuple[float, float, float]:
    """The mean of some trainings, with Student's interval; without one for a single training."""
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return mean, np.nan, np.nan
    half = stats.t.ppf((1 + level) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n)
    return mean, mean - float(half), mean + float(half)
