"""How often intervals of layer-curve numbers hold those of the true curve: plateaus, peaks, rising and flat curves.

13 layers whose predictions share the examples' difficulty, and neighbours more than that. The true curve of accuracies
is known, and with it each number. A flat curve has none: then the interval has to leave every layer open. The cases of
"fitted probes" begin with features of five layers; their true curve is that on a population of examples.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd
from calibration import case
from comparisons import probed
from scipy import stats

from probekit.probes.edges.depth import expected_layer_of
from probekit.statistics.bootstrap import band, bounds
from probekit.statistics.curves import centre_of_gravity, curve_summary, expected_layer, first_good_layer, not_worse
from probekit.statistics.options import SummaryOptions
from probekit.statistics.predictions import Predictions

LAYERS = np.arange(13)
CURVES = {
    "plateau from layer 2": np.interp(LAYERS, [0, 2, 12], [0.70, 0.85, 0.85]),
    "peak at layer 6": 0.85 - 0.02 * np.abs(LAYERS - 6),
    "rising": np.linspace(0.65, 0.85, 13),
    "late rise": np.interp(LAYERS, [0, 8, 10, 12], [0.55, 0.56, 0.80, 0.82]),
    "flat": np.full(13, 0.8),
}
NUMBERS = {
    "expected-layer": expected_layer,
    "centre-of-gravity": centre_of_gravity,
    "first-good-layer": first_good_layer,
}
EXPECTED_BEFORE = {"plateau from layer 2": "34–39 %"}


def said(rng: np.random.Generator, curve: np.ndarray, n: int, cluster: int = 1) -> Predictions:
    """Predictions of all layers: right where an example's difficulty, with some noise of the layer, is low enough.

    ``cluster``: so many examples form a group and share nine tenths of the variance of difficulty and noise.
    """
    of = np.arange(n) // cluster

    def normal(*shape: int) -> np.ndarray:
        alike = rng.normal(size=(*shape, n))[..., of]
        return alike if cluster == 1 else np.sqrt(0.9) * alike + np.sqrt(0.1) * rng.normal(size=(*shape, n))

    noise = normal(len(curve))
    for layer in range(1, len(curve)):
        noise[layer] = 0.7 * noise[layer - 1] + np.sqrt(1 - 0.7**2) * noise[layer]
    hard = np.sqrt(0.6) * normal() + np.sqrt(0.4) * noise
    right, gold = hard < stats.norm.ppf(curve)[:, None], rng.integers(2, size=n)
    fits = pd.DataFrame({"task": "toy", "split": "dev", "model": "m", "layer": LAYERS, "target": "gold"})
    groups = of if cluster > 1 else None
    return Predictions(fits, np.arange(n).astype(str), gold, np.where(right, gold, 1 - gold), ("accuracy",), groups)


@cache
def summed_up(shape: str, n: int, seed: tuple[int, ...]) -> pd.DataFrame:
    found = said(np.random.default_rng(seed), CURVES[shape], n)
    return curve_summary(found, SummaryOptions(resamples=500)).set_index("metric")


def truth(shape: str, name: str) -> float:
    """The number of the true curve."""
    curve = CURVES[shape]
    return float(NUMBERS[name](LAYERS, curve[:, None])[0])


def number(rng: np.random.Generator, *, shape: str, name: str, n: int) -> bool | None:
    """Whether the interval holds the number; of a flat curve, whether it leaves every layer open."""
    found = summed_up(shape, n, tuple(rng.integers(1 << 31, size=2).tolist())).loc[name]
    if np.isnan(found["ci_low"]):
        return None
    if shape == "flat":
        first = 1 if name == "expected-layer" else 0
        return bool(found["ci_low"] <= first and found["ci_high"] >= 12)
    return bool(found["ci_low"] - 1e-9 <= truth(shape, name) <= found["ci_high"] + 1e-9)


def best(rng: np.random.Generator, *, shape: str, n: int) -> bool:
    """Whether the set of layers that may be the best holds the first of the true best."""
    found = summed_up(shape, n, tuple(rng.integers(1 << 31, size=2).tolist())).loc["best-layer", "layers"]
    return str(int(CURVES[shape].argmax())) in found.split(",")


def best_of_groups(rng: np.random.Generator, *, shape: str, n: int) -> bool:
    """Whether the set of best layers holds the first of the true best if examples come in groups of four."""
    found = not_worse(said(rng, CURVES[shape], n, cluster=4), "accuracy")
    return bool(found is not None and found[CURVES[shape].argmax()])


def selected(rng: np.random.Generator, *, shape: str, n: int) -> bool:
    """Whether the interval of the layer that looks best holds its accuracy."""
    found = bounds(metric="accuracy", resamples=500, **said(rng, CURVES[shape], n).sample())
    low, high = band(found.value, found.ci, found.resampled)[found.value.argmax()]
    return bool(low <= CURVES[shape][found.value.argmax()] <= high)


@cache
def of_features(n: int, seed: tuple[int, ...]) -> tuple[pd.DataFrame, np.ndarray]:
    """What ``summary`` says of probes of five layers on n examples, and their accuracy on 40,000 others."""
    rng, train = np.random.default_rng(seed), 1000
    rows = train + n + 40_000
    y, d = rng.integers(2, size=rows), 10
    z, x = rng.normal(size=(rows, d)), []
    for strength in (0.2, 0.6, 1.0, 1.3, 1.0):
        z = 0.7 * z + np.sqrt(1 - 0.7**2) * rng.normal(size=(rows, d))
        x.append(z + strength * y[:, None] * (np.arange(d) == 0))
    e = probed(rng, [v[:train] for v in x], [v[train:] for v in x], y[:train], y[train:], ("accuracy",), controls=0)
    dev = replace(e, ids=e.ids[:n], gold=e.gold[..., :n], predicted=e.predicted[:, :n], groups=None, sentences=None,
                  **dict.fromkeys(("log_loss", "prior_loss", "probabilities")))  # fmt: skip
    layers = e.fits["layer"].notna().to_numpy(dtype=bool)
    true = (e.predicted == e.gold)[layers, n:].mean(1)
    return curve_summary(dev, SummaryOptions(resamples=500)).set_index("metric"), true


def fitted(rng: np.random.Generator, *, name: str, n: int) -> bool | None:
    """Whether what is printed of fitted probes holds the number of their curve on all examples."""
    found, true = of_features(n, tuple(rng.integers(1 << 31, size=2).tolist()))
    if name == "best-layer":
        return str(true.argmax()) in found.loc[name, "layers"].split(",")
    low, high = found.loc[name, ["ci_low", "ci_high"]]
    number = float(NUMBERS[name](np.arange(len(true)), true[:, None])[0])
    return None if np.isnan(low) else bool(low - 1e-9 <= number <= high + 1e-9)


for name in ("best-layer", "expected-layer"):
    for n in (200, 872):
        case(f"curves/{name} of fitted probes, n {n}", "coverage", runs=100)(partial(fitted, name=name, n=n))
for shape in CURVES:
    for n in (200, 872, 5000):
        for name in NUMBERS:
            before = EXPECTED_BEFORE.get(shape, "") if name == "expected-layer" else ""
            run = partial(number, shape=shape, name=name, n=n)
            case(f"curves/{name}, {shape}, n {n}", "coverage", before=before, runs=100, nightly=500)(run)
        case(f"curves/best-layer, {shape}, n {n}", "coverage", runs=100, nightly=500)(partial(best, shape=shape, n=n))
        run = partial(selected, shape=shape, n=n)
        before = "81 %" if shape == "flat" else ""
        case(f"curves/value at the best layer, {shape}, n {n}", "coverage", before=before, runs=100, nightly=500)(run)
for shape in ("plateau from layer 2", "peak at layer 6", "flat"):
    for n in (200, 872):
        case(f"curves/best-layer, {shape}, n {n}, groups of 4", "coverage", runs=100, nightly=500)(
            partial(best_of_groups, shape=shape, n=n)
        )


RECALL = np.array([[0.5, 0.7, 0.8, 0.85], [0.3, 0.5, 0.7, 0.75], [0.05, 0.2, 0.5, 0.6]])
"""Of three classes, by probes of four mixes of layers."""


def mixes(rng: np.random.Generator, n: int, share: float) -> Predictions:
    """Predictions of four mixes, which mostly agree; the third class has ``share`` of the examples."""
    gold, alike, predicted = rng.choice(3, size=n, p=[0.7 - share, 0.3, share]), rng.random(n), []
    for recall in RECALL.T:
        hard, wrong = np.where(rng.random(n) < 0.7, alike, rng.random(n)), (gold + rng.integers(1, 3, size=n)) % 3
        wrong = np.where((wrong == 2) & (rng.random(n) < 0.9), gold == 0, wrong)  # the rare class is rarely said
        predicted.append(np.where(hard < recall[gold], gold, wrong))
    fits = pd.DataFrame({"task": "toy", "layer": range(4), "representation": "mix", "target": "gold"})
    return Predictions(fits, np.arange(n).astype(str), gold, np.array(predicted), ("accuracy", "macro-f1"))


@cache
def of_all_mixes(share: float, metric: str) -> float:
    return expected_layer_of(
        mixes(np.random.default_rng(0), 1_000_000, share), metric, resamples=0, level=0.95, seed=0
    )[0]


def mixed(rng: np.random.Generator, *, n: int, share: float, metric: str) -> bool | None:
    """Whether the interval of `edges`' expected layer holds that of all examples."""
    found = mixes(rng, n, share)
    _, low, high = expected_layer_of(found, metric, resamples=500, level=0.95, seed=int(rng.integers(1 << 30)))
    return None if np.isnan(low) else bool(low <= of_all_mixes(share, metric) <= high)


for n, share in ((300, 0.02), (300, 0.05), (1000, 0.01), (1000, 0.02)):
    for metric in ("accuracy", "macro-f1"):
        name = f"edges/expected layer of {metric}, a label of {share:.0%}, n {n}"
        case(name, "coverage", runs=300)(partial(mixed, n=n, share=share, metric=metric))
