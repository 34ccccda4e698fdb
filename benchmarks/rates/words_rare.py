"""Rare spans: probes that find hardly any of them, or nearly all, from features to the interval and to the sentence.

Sentences are of very unequal length, and a third of them hold most spans. Probes are fitted by the protocol to 60
sentences; the truth is span F1 on a population of 3,000 other sentences, and the dev split is a sample of these. Where
the features know nothing of the spans, the share of runs in which a layer is said to beat shuffled labels.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from calibration import case
from comparisons import noise_layers, probed
from intervals import holds
from spans import drawn
from verdict import rows_of

from probekit.analyses.verdict import sentences
from probekit.statistics.bootstrap import estimates
from probekit.statistics.predictions import Predictions

NAMES = ("O", "B-X", "I-X")
PROBES, POPULATION, TRAIN = 4, 3_000, 60
METRICS = ("span-f1", "token-accuracy")


def tagged(rng: np.random.Generator, count: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Tags of words, and the sentence of each; ``rate``: spans a word."""
    length = np.clip(np.rint(rng.lognormal(2.2, 0.8, size=count)), 2, 100).astype(int)
    of = np.repeat(np.arange(count), length)
    rich = np.where(rng.random(count) < 1 / 3, 2.4, 0.3)
    begins = rng.random(len(of)) < (rate * rich)[of]
    begins[np.flatnonzero(np.diff(of, prepend=-1))[:4]] = True  # so that train has some
    tags = begins.astype(np.int64)
    inside = np.append(False, begins[:-1]) & ~begins & (np.diff(of, prepend=-1) == 0) & (rng.random(len(of)) < 0.5)
    return np.where(inside, 2, tags), of


@cache
def population(strength: float, d: int, rate: float, number: int) -> tuple[Predictions, list[np.ndarray], float]:
    """Predictions of one of the fitted probes, the rows of each sentence, and the truth."""
    rng = np.random.default_rng([number, d, round(100 * strength), round(1000 * rate)])
    made = []
    for count in (TRAIN, POPULATION):
        tags, of = tagged(rng, count, rate)
        x = rng.normal(size=(len(of), d))
        x[:, :3] += strength * np.eye(3)[tags]
        made.append((tags, [x], of))
    (y, x, of), (y_dev, x_dev, of_dev) = made
    e = probed(
        rng, x, x_dev, y, y_dev, METRICS, kind="sequence-labelling", names=NAMES, groups=(of, of_dev), controls=0
    )
    e = e.take(e.fits["layer"].notna().to_numpy(dtype=bool))
    truth = float(estimates(metric="span-f1", **e.sample())[0])
    return e, np.split(np.arange(len(of_dev)), np.flatnonzero(np.diff(of_dev)) + 1), truth


def covered(rng: np.random.Generator, *, strength: float, d: int, rate: float, units: int) -> bool | None:
    """Whether the interval of a sample of sentences holds span F1 of the fitted probe on all."""
    e, rows, truth = population(strength, d, rate, int(rng.integers(PROBES)))
    at, of = drawn(rng, rows, units)
    gold = np.atleast_2d(e.gold)[0, at]
    return holds(gold, e.predicted[0, at], "span-f1", truth, groups=of, label_names=NAMES)


def named(rng: np.random.Generator, *, count: int, rate: float) -> bool:
    """Whether the sentence says that a layer beats shuffled labels, where features know nothing."""
    made = []
    for _ in range(2):
        tags, of = tagged(rng, count, rate)
        shared = noise_layers(rng, count, 20, 3)
        x = [a[of] + b for a, b in zip(shared, noise_layers(rng, len(of), 20, 3), strict=True)]
        made.append((tags, x, of))
    (y, x, of), (y_dev, x_dev, of_dev) = made
    e = probed(
        rng, x, x_dev, y, y_dev, METRICS, kind="sequence-labelling", names=NAMES, groups=(of, of_dev), controls=1
    )
    return "no layer beats" not in sentences(rows_of(e, int(rng.integers(1 << 30))), [e])[0]


SETTINGS = {"finds hardly any": (2.0, 100, 0.03), "finds some": (4.0, 100, 0.03), "finds nearly all": (5.0, 10, 0.03)}
for probe, (strength, d, rate) in SETTINGS.items():
    for units in (20, 50, 200):
        run = partial(covered, strength=strength, d=d, rate=rate, units=units)
        case(f"intervals/span-f1, rare spans, {probe}, {units} sentences", "coverage", runs=300)(run)
for count in (40, 150):
    run = partial(named, count=count, rate=0.03)
    case(f"verdict/a layer of noise is named, span-f1, rare spans, {count} sentences", "false positives", runs=100)(run)
