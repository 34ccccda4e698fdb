"""Thresholds of kept probes and of alarms: how often further harmless examples exceed them.

Logistic probes are fitted on features, 20 in each setting. The rate of the threshold in a card is exact, since the
features are normal and the score is linear. For an alarm, texts have as many pieces as a lognormal distribution says,
and the pieces of a text resemble each other; in some cases texts of a group do, too. The rate is the share that it
stops of 10,000 further harmless texts, each of a group of its own.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from calibration import case
from scipy.stats import norm

from probekit.analyses.cards import threshold_of
from probekit.errors import UsageError
from probekit.monitors import Alarm, Probe
from probekit.monitors.alarm import highest
from probekit.probes.protocol.diagnostic import evaluate_layers
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.solvers.scores import Score

PROBES, TEXTS = 20, 10_000
OPTIONS = ProbeOptions(controls=0, resamples=0, folds=3, penalties=(1e-3, 1e-2, 0.1, 1.0), choose_by="log-loss")
ABOUT = {"task": "t", "split": "dev", "model": "m", "representation": "mean"}
CARD = {"layer": "0", "kind": "classification", "classes": ["no", "yes"]}


def near(rng: np.random.Generator, of: np.ndarray, alike: float, d: int) -> np.ndarray:
    """Vectors (n, d) of variance 1; those of one group, of (n,), have the correlation ``alike``."""
    shared = rng.normal(size=(int(of[-1]) + 1, d))[of]
    return alike**0.5 * shared + (1 - alike) ** 0.5 * rng.normal(size=(len(of), d))


@cache
def probe_of(number: int, n: int, positives: int, d: int) -> Probe:
    """A logistic probe, fitted on n examples, of which so many are positive."""
    rng = np.random.default_rng([number, n, positives, d])
    y, kept = (np.arange(n) < positives).astype(int), list[Any]()
    x = near(rng, np.arange(n), 0.0, d)
    x[:, 0] += 2 * y
    question = Question("classification", ("accuracy",), ("no", "yes"), ABOUT)
    evaluate_layers({"0": x}, y, {"0": x}, y, question, options=OPTIONS, keep=lambda *layer: kept.append(layer[1]))
    return Probe(kept[0], CARD)


def of_groups(rng: np.random.Generator, groups: int, size: int | tuple[int, int]) -> np.ndarray:
    """The group of each example."""
    sizes = size if isinstance(size, int) else rng.integers(size[0], size[1] + 1, groups)
    return np.repeat(np.arange(groups), sizes)


def kept(
    rng: np.random.Generator, *, rate: float, groups: int, size: int | tuple[int, int] = 1, alike: float = 0.0,
    train: int = 400, positives: int = 100, d: int = 8,
) -> bool | None:  # fmt: skip
    """Whether the interval in a card holds the rate of its threshold."""
    probe, of = probe_of(int(rng.integers(PROBES)), train, positives, d), of_groups(rng, groups, size)
    y = np.r_[np.zeros(len(of), int), 1]
    scores = probe.decision_function(np.r_[near(rng, of, alike, d), np.ones((1, d))])
    found = threshold_of(rate, y, scores, None if size == 1 else np.r_[of, -1], OPTIONS)
    if found.get("rate_low") is None:
        return None
    mean = float(probe.decision_function(np.zeros((1, d)))[0])
    truth = norm.sf((found["threshold"] - mean) / np.linalg.norm(probe.direction))
    return bool(found["rate_low"] <= truth <= found["rate_high"])


def pieces_of(rng: np.random.Generator, probe: Probe, of: np.ndarray, alike: float) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the pieces of harmless texts of groups, and how many pieces each text has; medium correlation."""
    length = np.clip(rng.lognormal(3, 0.8, size=len(of)), 3, 200).astype(int)
    of_texts = np.repeat(near(rng, of, alike, 8), length, 0)
    x = 0.3**0.5 * of_texts + 0.7**0.5 * rng.normal(size=of_texts.shape)
    return probe.decision_function(x), length


@cache
def population(number: int) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the pieces of further harmless texts, and how many pieces each text has."""
    rng, probe = np.random.default_rng([number, 1]), probe_of(number, 400, 200, 8)
    return pieces_of(rng, probe, np.arange(TEXTS), 0.0)


@cache
def further(number: int, rule: str) -> np.ndarray:
    """The highest scores of further harmless texts."""
    return highest(Score.parse(rule), *population(number))


def alarmed(
    rng: np.random.Generator, *, rule: str, rate: float, groups: int, size: int | tuple[int, int] = 1,
    alike: float = 0.0,
) -> tuple[Alarm, np.ndarray] | None:  # fmt: skip
    """An alarm, and which further harmless texts it stops."""
    number, of = int(rng.integers(PROBES)), of_groups(rng, groups, size)
    harmless = pieces_of(rng, probe_of(number, 400, 200, 8), of, alike)
    try:
        alarm = Alarm.calibrated(*harmless, rule=rule, rate=rate, groups=None if size == 1 else of)
    except UsageError:
        return None
    return alarm, further(number, rule) > alarm.threshold


def held(rng: np.random.Generator, **setting: Any) -> bool | None:
    """Whether the interval of an alarm holds the share of harmless texts that it stops."""
    found = alarmed(rng, **setting)
    return None if found is None else bool(found[0].low <= found[1].mean() <= found[0].high)


def stopped(rng: np.random.Generator, **setting: Any) -> bool | None:
    """Whether an alarm stops a further harmless text."""
    found = alarmed(rng, **setting)
    return None if found is None else bool(rng.choice(found[1]))


KEPT: dict[str, dict[str, Any]] = {
    "10 % of 30 negatives": {"rate": 0.1, "groups": 30},
    "1 % of 100 negatives": {"rate": 0.01, "groups": 100},
    "5 % of 100 negatives": {"rate": 0.05, "groups": 100},
    "1 % of 1,000 negatives, 20 positives in train": {"rate": 0.01, "groups": 1000, "positives": 20},
    "5 % of 100 negatives, n < d": {"rate": 0.05, "groups": 100, "train": 60, "positives": 30, "d": 200},
}
for groups, size, rate in ((60, 2, 0.01), (20, 20, 0.05), (60, 20, 0.01), (60, 20, 0.05), (60, (2, 20), 0.05)):
    for alike, word in ((0.5, "correlation .5"), (0.9, "correlation .9"), (0.99, "near copies")):
        each = str(size) if isinstance(size, int) else f"{size[0]} to {size[1]}"
        name = f"{100 * rate:g} % of the negatives in {groups} groups of {each}, {word}"
        KEPT[name] = {"rate": rate, "groups": groups, "size": size, "alike": alike}
for name, about in KEPT.items():
    case(f"thresholds/kept probe, {name}", "coverage", runs=1000)(partial(kept, **about))

HARMLESS: dict[str, dict[str, Any]] = {
    "100 texts": {"groups": 100},
    "300 texts": {"groups": 300},
    "60 groups of 1 to 10 texts, correlation .9": {"groups": 60, "size": (1, 10), "alike": 0.9},
}
for rule in ("max", "mean", "ema:0.9", "rolling:10", "cusum:1"):
    for name, about in HARMLESS.items():
        for rate in (0.05, 0.01)[: 1 + (name == "300 texts")]:
            setting = {"rule": rule, "rate": rate, **about}
            name_of = f"{rule}, {100 * rate:g} %, {name}"
            case(f"thresholds/alarm, {name_of}", "coverage", runs=1000)(partial(held, **setting))
            case(f"thresholds/a further text is stopped, {name_of}", "false positives", runs=1000, nominal=rate)(
                partial(stopped, **setting)
            )
