"""How often intervals of paired differences hold the difference of the same two probes on all examples.

Both probes are fixed: each calls so many positives and so many negatives positive, and errs on the same hard examples
more often than chance would have it. The difference follows from these shares.
"""

from __future__ import annotations

from functools import cache, partial
from unittest.mock import patch

import numpy as np
import pandas as pd
from calibration import case
from intervals import TAGS, of_table, two_classes
from scipy import stats

from probekit.statistics import comparisons
from probekit.statistics.bootstrap import estimates
from probekit.statistics.comparisons import compare_predictions
from probekit.statistics.options import CompareOptions
from probekit.statistics.predictions import Predictions

SHARED = 0.5
"""Of the variance of how hard an example is, what both probes have in common."""
PAIRS = {
    "nearly perfect": ((0.98, 0.005), (0.95, 0.01)),
    "nearly perfect, equal": ((0.99, 0.005), (0.99, 0.005)),
    "ordinary": ((0.9, 0.02), (0.6, 0.1)),
    "ordinary, equal": ((0.6, 0.1), (0.6, 0.1)),
    "nearly constant": ((0.1, 0.01), (0.03, 0.003)),
}
"""Shares of positives and of negatives that each of two probes calls positive."""


def holds(gold: np.ndarray, said: np.ndarray, name: str, truth: float, groups: np.ndarray | None = None) -> bool | None:
    """Whether the interval of the second layer minus the first holds the truth; None where there is none."""
    fits = pd.DataFrame({"task": "t", "split": "dev", "model": "m", "layer": [0, 1], "target": "gold"})
    e = Predictions(fits, np.arange(len(gold)).astype(str), gold, said, (name,), groups, label_names=TAGS)
    with patch.object(comparisons, "FINE", 1):  # p, which takes most of the time, is not asked for
        [row] = compare_predictions(e, options=CompareOptions(resamples=1000, metric=name)).to_dict("records")
    return None if np.isnan(row["ci_low"]) else bool(row["ci_low"] - 1e-9 <= truth <= row["ci_high"] + 1e-9)


def hardness(rng: np.random.Generator, n: int) -> np.ndarray:
    """How hard each of n examples is for each of two probes, normal, (2, n)."""
    return np.sqrt(SHARED) * rng.normal(size=n) + np.sqrt(1 - SHARED) * rng.normal(size=(2, n))


def pair(rng: np.random.Generator, *, probes: str, prevalence: float, name: str, n: int) -> bool | None:
    """Two probes of two classes."""
    gold = (rng.random(n) < prevalence).astype(np.int64)
    hard = hardness(rng, n)
    called = np.array(PAIRS[probes])[:, 1 - gold]
    right = hard < stats.norm.ppf(np.where(gold, called, 1 - called))
    one, other = (of_table(two_classes(prevalence, *shares), name) for shares in PAIRS[probes])
    return holds(gold, np.where(right, gold, 1 - gold), name, other - one)


def words(rng: np.random.Generator, *, name: str, sentences: int, right: tuple[float, float]) -> bool | None:
    """Tags of words, sentences being hard for both probes alike."""
    gold, said, sentence = tagged(rng, sentences, right)
    return holds(gold, said, name, word_truth(name, right), sentence)


def tagged(
    rng: np.random.Generator, sentences: int, right: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gold tags, predicted ones (2, words), and the sentence of each word."""
    sentence = np.repeat(np.arange(sentences), rng.integers(5, 21, size=sentences))
    n = len(sentence)
    entity, kind = rng.random(n) < 0.15, 2 * rng.integers(2, size=n)
    gold = np.where(entity, 1 + kind, 0)
    gold[1:] = np.where((gold[1:] == 0) & entity[:-1] & (rng.random(n - 1) < 0.4), kind[:-1] + 2, gold[1:])
    hard = np.sqrt(0.3) * rng.normal(size=sentences)[sentence] + np.sqrt(0.7) * hardness(rng, n)
    wrong = (gold + rng.integers(1, 5, size=(2, n))) % 5
    return gold, np.where(hard < stats.norm.ppf(right)[:, None], gold, wrong), sentence


@cache
def word_truth(name: str, right: tuple[float, float]) -> float:
    """The difference on 40,000 sentences (± .0006)."""
    gold, said, sentence = tagged(np.random.default_rng(0), 40_000, right)
    one, other = estimates(gold, said, name, groups=sentence, label_names=TAGS)
    return float(other - one)


def above_chance(rng: np.random.Generator, *, probe: str, prevalence: float, name: str, n: int) -> bool | None:
    """Whether the interval against shuffled labels holds the metric less that of independent labels."""
    table = two_classes(prevalence, *PAIRS[probe][0])
    gold, said = np.divmod(rng.choice(4, size=n, p=table.ravel()), 2)
    shuffled = rng.permutation(gold)
    fits = pd.DataFrame({"task": "t", "split": "dev", "model": "m", "layer": 0, "target": ["gold", "shuffled"]})
    fits["draw"] = [None, 0]
    e = Predictions(fits, np.arange(n).astype(str), np.stack([gold, shuffled]), np.stack([said, said]), (name,))
    how = CompareOptions(resamples=1000, metric=name, against="shuffled", seed=int(rng.integers(1 << 30)))
    [row] = compare_predictions(e, options=how).to_dict("records")
    truth = of_table(table, name) - of_table(np.outer(table.sum(1), table.sum(0)), name)
    return None if np.isnan(row["ci_low"]) else bool(row["ci_low"] - 1e-9 <= truth <= row["ci_high"] + 1e-9)


for name, probe, prevalence, n in (
    *(("accuracy", probe, 0.5, n) for probe in ("nearly perfect", "ordinary") for n in (60, 300)),
    *((name, "ordinary", 0.1, 300) for name in ("accuracy", "matthews", "f1", "macro-f1")),
    *((name, "nearly perfect", 0.1, 300) for name in ("accuracy", "matthews", "f1", "macro-f1")),
    *((name, "nearly constant", 0.1, 300) for name in ("accuracy", "matthews", "f1", "macro-f1")),
):
    run = partial(above_chance, probe=probe, prevalence=prevalence, name=name, n=n)
    case(f"differences/{name} above chance, {probe}, {prevalence:.0%} positive, n {n}", "coverage", runs=400)(run)

SETTINGS = [
    *(("accuracy", probes, 0.5, n) for probes in PAIRS if "constant" not in probes for n in (60, 300)),
    ("accuracy", "nearly perfect", 0.5, 1000),
    ("accuracy", "nearly perfect, equal", 0.5, 1000),
    *((name, probes, 0.1, 300) for name in ("matthews", "f1", "macro-f1") for probes in PAIRS),
    *((name, "nearly perfect", 0.5, 60) for name in ("matthews", "f1", "macro-f1")),
    *((name, "ordinary", 0.02, 300) for name in ("matthews", "f1", "macro-f1")),
    *((name, "nearly perfect", 0.02, 1000) for name in ("matthews", "f1", "macro-f1")),
]
for name, probes, prevalence, n in SETTINGS:
    where = f"differences/{name}, {probes}, {prevalence:.0%} positive, n {n}"
    run = partial(pair, probes=probes, prevalence=prevalence, name=name, n=n)
    case(where, "coverage")(run)
for name in ("token-accuracy", "macro-f1", "span-f1"):
    for called, right in (("nearly perfect", (0.98, 0.99)), ("ordinary", (0.8, 0.85))):
        for sentences in (30, 100):
            where = f"differences/{name} of words, {called}, {sentences} sentences"
            run = partial(words, name=name, sentences=sentences, right=right)
            case(where, "coverage")(run)
