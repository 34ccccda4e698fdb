"""How often ``probekit recheck`` is wrong: from features, through a kept probe, to the sentence.

A probe is fitted, and gets a card from a dev set; other examples are then read twice. In the planted settings the right
answer is known, and any other is wrong. At a margin, exactly one of two answers is wrong, and is counted: the change
is computed from the fitted direction, so that the margin is met in the population.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from calibration import case
from scipy import stats
from scipy.optimize import brentq

from probekit import LogisticPath
from probekit.analyses.cards import threshold_of
from probekit.analyses.recheck import RecheckOptions
from probekit.analyses.recheck.changes import Readings
from probekit.analyses.recheck.measure import judged
from probekit.analyses.recheck.sentences import sentences
from probekit.monitors.probe import Probe
from probekit.probes.kept import Weights
from probekit.rows import make_rows
from probekit.statistics.bootstrap import bounds
from probekit.statistics.detection import area, area_interval
from probekit.statistics.predictions import Predictions

FITS = {"task": "t", "split": "dev", "model": "m", "layer": 1, "representation": "mean", "target": "gold"}
FITS |= {"estimator": "logistic", "analysis": "recheck"}
APART = 2.2
"""The distance of the class means, in standard deviations: AUROC .94 in the right direction."""
Vectors = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def examples(
    rng: np.random.Generator, n: int, *, positive: float = 0.5, copies: int = 1, width: int = 12, apart: float = APART
) -> Vectors:
    """Vectors (n, width), labels, and groups of near copies."""
    of = np.repeat(np.arange(n // copies), copies)
    y = (np.arange(n // copies) < round(positive * (n // copies))).astype(np.int64)[of]
    x = noise(rng, of, width)
    x[:, 0] += apart * y
    return x, y, None if copies == 1 else of


def noise(rng: np.random.Generator, of: np.ndarray, width: int) -> np.ndarray:
    """Normal vectors of variance 1, nearly equal within a group."""
    return np.sqrt(0.99) * rng.normal(size=(of[-1] + 1, width))[of] + 0.1 * rng.normal(size=(len(of), width))


def probe_of(rng: np.random.Generator, train: int, dev: int, metric: str, **how: Any) -> Probe:
    """A fitted probe with the parts of its card that a recheck reads."""
    x, y, _ = examples(rng, train, **how)
    fitted = LogisticPath(Cs=(0.1,)).fit(x, y)
    arrays = {"mean": np.zeros(x.shape[1]), "weight": fitted.coef_, "bias": fitted.intercept_}
    weights = Weights("linear", {name: np.asarray(a, dtype=np.float32) for name, a in arrays.items()})
    probe = Probe(weights, {"kind": "classification", "classes": ["no", "yes"], "layer": "1"})
    x, y, groups = examples(rng, dev, **how)
    said, scores = told(probe, [x], y, groups, metric), probe.decision_function(x)
    found, ends = bounds(metric=metric, resamples=300, **said.sample()), area_interval(y, scores[None], groups)
    card = {
        "metrics": [{"metric": metric, "value": found.value[0], "ci_low": found.ci[0, 0], "ci_high": found.ci[0, 1]}],
        "auroc": {"value": area(y, scores[None])[0], "ci_low": ends[0][0], "ci_high": ends[1][0]},
        "thresholds": [threshold_of(0.05, y, scores, groups, RecheckOptions(resamples=300))],
    }
    return Probe(weights, {**probe.card, **card})


def told(probe: Probe, parts: list[np.ndarray], y: np.ndarray, groups: np.ndarray | None, metric: str) -> Predictions:
    """What the probe says of the same examples, read in each of these ways."""
    logits = [probe.weights.logits(x) for x in parts]
    loss = np.stack([-probe.weights.log_proba(one)[np.arange(len(y)), y] for one in logits])
    shares = np.stack([probe.proba(one) for one in logits]).astype(np.float32)
    fits = pd.DataFrame([{**FITS, "source": i} for i in range(len(parts))])
    said = np.stack([probe.predicted(one) for one in logits])
    return Predictions(
        fits, np.arange(len(y)).astype(str), y, said, (metric,), groups, loss, ("no", "yes"), probabilities=shares
    )


def answered(
    rng: np.random.Generator, probe: Probe, parts: list[np.ndarray], y: np.ndarray, groups: np.ndarray | None,
    metric: str, **how: Any,
) -> str:  # fmt: skip
    """The answer that the sentence begins with."""
    options = RecheckOptions(resamples=300, seed=int(rng.integers(1 << 30)), **how)
    scores = np.stack([probe.decision_function(x) for x in parts])
    rows = list(judged(probe, Readings(told(probe, parts, y, groups, metric), scores), options))
    table = pd.DataFrame([{**FITS, "check": "", "finding": "", "changed": "", "unpaired": "", **row} for row in rows])
    return next(iter(sentences(make_rows(table), ()))).partition(":")[0]


def rounded(rng: np.random.Generator, probe: Probe, x: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Twice the rounding of bfloat16."""
    return x * (1 + 2**-8 * rng.uniform(-1, 1, size=x.shape))


def moved(rng: np.random.Generator, probe: Probe, x: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Scaled, shifted along the probe's direction, and rounded."""
    return rounded(rng, probe, 1.2 * x + along(probe), of)


def lost(rng: np.random.Generator, probe: Probe, x: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Turned: most of what each dimension held is elsewhere."""
    return 0.3 * x + noise(rng, of, x.shape[1])


def along(probe: Probe) -> np.ndarray:
    """The unit vector in the probe's direction."""
    direction = np.asarray(probe.direction, dtype=np.float64)
    return direction / np.linalg.norm(direction)


def planted(
    rng: np.random.Generator, *, change: Callable[..., np.ndarray], right: str, n: int, metric: str, train: int = 600,
    **how: Any,
) -> bool:  # fmt: skip
    """Whether the answer is another than the planted one.

    A threshold of the card that lets more or less of the population through than its margin is rightly called stale.
    """
    probe = probe_of(rng, train, n if right != "inconclusive" else 1000, metric, **how)
    x, y, groups = examples(rng, n, **how)
    new = change(rng, probe, x, np.arange(n) if groups is None else groups)
    said = answered(rng, probe, [x, new], y, groups, metric)
    bias, size = of_population(probe)
    rate = stats.norm.sf((probe.card["thresholds"][0]["threshold"] - bias) / size)
    return said != right and not (said == "threshold stale" and abs(rate - 0.05) > 0.025)


def of_population(probe: Probe) -> tuple[float, float]:
    """The mean and the standard deviation of the scores of all negatives."""
    direction = np.asarray(probe.direction, dtype=np.float64)
    return float(probe.decision_function(np.zeros((1, len(direction))))[0]), float(np.linalg.norm(direction))


def at_margin(
    rng: np.random.Generator, *, what: str, wrong: str, n: int, beside: bool = False, **how: Any
) -> bool:  # fmt: skip
    """Whether the answer is the one that is wrong, where a change is as large as its margin."""
    probe = probe_of(rng, 600, n, "auroc", **how)
    bias, size = of_population(probe)
    probe.card["thresholds"][0]["threshold"] = bias + size * stats.norm.ppf(0.95)  # 5 % of the population's negatives
    x, y, groups = examples(rng, n, **how)
    new = x
    if what == "rate":
        new = x + along(probe) * (stats.norm.ppf(0.95) - stats.norm.ppf(1 - 0.075))
    else:
        d = APART * float(probe.direction[0]) / size / 2**0.5
        tau = brentq(lambda t: stats.norm.cdf(d) - stats.norm.cdf(d / np.sqrt(1 + t**2)) - 0.02, 0, 5)
        of = np.arange(n) if groups is None else groups
        new = (x + tau * noise(rng, of, x.shape[1])) / np.sqrt(1 + tau**2)
    margins = {"recall_margin": 0.9} | ({"rate_margin": 0.99} if what == "ranking" and not beside else {})
    return answered(rng, probe, [new] if beside else [x, new], y, groups, "auroc", **margins) == wrong


def rare_falls(rng: np.random.Generator, *, positives: int, negatives: int, copies: int = 1) -> bool:
    """Whether a probe passes though a few positives fall below all negatives, so that AUROC loses its margin."""
    probe = probe_of(rng, 600, 1000, "auroc")
    n = copies * (positives + negatives)
    x, y, groups = examples(rng, n, positive=positives / (positives + negatives), copies=copies)
    direction = np.asarray(probe.direction, dtype=np.float64)
    falls = 0.02 / stats.norm.cdf(APART * direction[0] / np.linalg.norm(direction) / 2**0.5)
    fallen = (rng.random(n // copies) < falls)[np.arange(n) if groups is None else groups] & (y == 1)
    new = rounded(rng, probe, x, y) - 50 * fallen[:, None] * along(probe)
    return answered(rng, probe, [x, new], y, groups, "auroc", recall_margin=0.9) == "pass"


KINDS = (
    ("nothing changed", rounded, "pass"), ("scores moved", moved, "threshold stale"),
    ("direction lost", lost, "degraded"),
)  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "n 1000": {"n": 1000, "metric": "accuracy"},
    "n 5000, 5% positive": {"n": 5000, "metric": "matthews", "positive": 0.05, "apart": 3.0},
    "n 2000, near copies in fours": {"n": 2000, "metric": "accuracy", "copies": 4},
    "n 1000, 1500 dimensions, 400 of train": {
        "n": 1000, "metric": "accuracy", "width": 1500, "apart": 6.0, "train": 400
    },
}  # fmt: skip
FEW: dict[str, dict[str, Any]] = {
    "n 60": {"n": 60, "metric": "accuracy"},
    "n 300, 5% positive": {"n": 300, "metric": "matthews", "positive": 0.05, "apart": 3.0},
    "n 200, near copies in fours": {"n": 200, "metric": "accuracy", "copies": 4},
    "n 60, 1500 dimensions, 400 of train": {"n": 60, "metric": "accuracy", "width": 1500, "apart": 6.0, "train": 400},
}
for _name, _change, _right in KINDS:
    for _setting, _how in SETTINGS.items():
        case(f"recheck/{_name}: not {_right}, {_setting}", "false positives", runs=400)(
            partial(planted, change=_change, right=_right, **_how)
        )
for _setting, _how in FEW.items():
    case(f"recheck/too few examples: not inconclusive, {_setting}", "false positives", runs=400)(
        partial(planted, change=rounded, right="inconclusive", **_how)
    )
for _what, _wrong in (("ranking", "pass"), ("ranking", "degraded"), ("rate", "pass"), ("rate", "threshold stale")):
    for _setting, _how in (
        ("n 800", {"n": 800}), ("n 1600, near copies in fours", {"n": 1600, "copies": 4}),
        ("n 1000, 5% positive", {"n": 1000, "positive": 0.05}),
    ):  # fmt: skip
        _changed = "AUROC lost" if _what == "ranking" else "false positives rose by"
        case(f"recheck/{_changed} its margin: {_wrong}, {_setting}", "false positives", runs=400)(
            partial(at_margin, what=_what, wrong=_wrong, **_how)
        )
for _wrong in ("pass", "degraded"):
    case(f"recheck/AUROC lost its margin, beside the card: {_wrong}, n 5000", "false positives", runs=400)(
        partial(at_margin, what="ranking", wrong=_wrong, n=5000, beside=True)
    )
for _positives, _negatives, _copies in ((60, 600, 1), (100, 1000, 1), (400, 400, 1), (200, 800, 4), (600, 60, 1)):
    _in = f"{_positives} positives, {_negatives} negatives" + (", in fours" if _copies > 1 else "")
    case(f"recheck/a few positives fell, AUROC lost its margin: pass, {_in}", "false positives", runs=400)(
        partial(rare_falls, positives=_positives, negatives=_negatives, copies=_copies)
    )
