"""Metrics of scores and balanced accuracy: coverage of their intervals, and layers of noise that are named.

Probes are fitted on features. The value of a probe on a population is that on 20,000 examples which it has not met.
Labels are rare, come in near copies of a group, or have fewer examples than features.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from calibration import case
from comparisons import found, noise_layers, probed
from verdict import rows_of

from probekit.analyses.verdict import sentences
from probekit.statistics.bootstrap import bounds, estimates
from probekit.statistics.predictions import Predictions

WIDTH = 8
POPULATION = 20_000
METRICS = ("auroc", "average-precision", "recall-at-fpr-0.05", "balanced-accuracy", "calibration-error-15")


def drawn(
    rng: np.random.Generator, n: int, counts: tuple[int, ...], *, copies: int = 1, strength: float = 1.5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors (n, WIDTH), labels with so many of each class but the first, and groups of near copies."""
    units = n // copies
    y = np.zeros(units, dtype=np.int64)
    at = 0
    for c, count in enumerate(counts, 1):
        y[at : at + count // copies] = c
        at += count // copies
    y = rng.permutation(y)
    x = rng.normal(size=(units, WIDTH))
    x[np.arange(units), y] += strength * (y > 0)
    of = np.repeat(np.arange(units), copies)
    return x[of] + 0.1 * rng.normal(size=(n, WIDTH)) * (copies > 1), y[of], of


def covered(
    rng: np.random.Generator, *, metric: str, n: int, counts: tuple[int, ...], copies: int = 1, strength: float = 1.5
) -> bool | None:
    """Whether the interval of a fitted probe holds its value on the population."""
    often = tuple(count * POPULATION // n for count in counts)
    x, y, _ = drawn(rng, 2 * n, tuple(2 * c for c in counts), strength=strength)
    x_dev, y_dev, of = drawn(rng, n, counts, copies=copies, strength=strength)
    x_all, y_all, _ = drawn(rng, POPULATION, often, strength=strength)
    both, labels = np.concatenate([x_dev, x_all]), np.concatenate([y_dev, y_all])
    names = tuple("abcd"[: 1 + len(counts)])
    how = {"choose_by": "log-loss"}
    e = probed(rng, [x], [both], y, labels, ("accuracy", metric), controls=0, names=names, how=how)
    e = e.take(e.fits["layer"].notna().to_numpy(dtype=bool))
    one = bounds(metric=metric, **part(e, slice(n), of if copies > 1 else None).sample())
    if one.why[0]:
        return None
    truth = estimates(metric=metric, **part(e, slice(n, None), None).sample())[0]
    return bool(one.ci[0, 0] - 1e-9 <= truth <= one.ci[0, 1] + 1e-9)


def grades(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of which one direction holds the grade, and five ordered grades, the extreme ones rare."""
    x = rng.normal(size=(n, WIDTH))
    return x, np.digitize(x[:, 0] + 0.7 * rng.normal(size=n), (-1.8, -0.6, 0.6, 1.8))


def graded(rng: np.random.Generator, *, metric: str, n: int) -> bool | None:
    """Whether the interval of a metric of ordered classes holds its value on the population."""
    (x, y), (x_dev, y_dev), (x_all, y_all) = grades(rng, 2 * n), grades(rng, n), grades(rng, POPULATION)
    both, labels = np.concatenate([x_dev, x_all]), np.concatenate([y_dev, y_all])
    how = {"choose_by": "log-loss"}
    e = probed(rng, [x], [both], y, labels, ("accuracy", metric), controls=0, names=tuple("12345"), how=how)
    e = e.take(e.fits["layer"].notna().to_numpy(dtype=bool))
    one = bounds(metric=metric, **part(e, slice(n), None).sample())
    truth = estimates(metric=metric, **part(e, slice(n, None), None).sample())[0]
    return None if one.why[0] else bool(one.ci[0, 0] <= truth <= one.ci[0, 1])


for metric in ("quadratic-kappa", "spearman"):
    for n in (60, 300):
        case(f"scores/{metric} of five ordered classes, n {n}", "coverage")(partial(graded, metric=metric, n=n))


def part(e: Predictions, rows: slice, groups: np.ndarray | None) -> Predictions:
    """The predictions for some examples."""
    take = {name: getattr(e, name)[..., rows] for name in ("ids", "gold", "predicted", "log_loss", "prior_loss")}
    return replace(e, **take, probabilities=e.probabilities[:, rows], groups=groups)  # type: ignore[index]


SETTINGS = {
    "12 of 200": {"n": 200, "counts": (12,)},
    "40 of 400": {"n": 400, "counts": (40,)},
    "nearly perfect, 40 of 400": {"n": 400, "counts": (40,), "strength": 4.0},
    "100 of 200": {"n": 200, "counts": (100,)},
    "near copies, 80 of 800": {"n": 800, "counts": (80,), "copies": 4},
    "3 classes, 20 and 40 of 400": {"n": 400, "counts": (20, 40)},
}
for setting, about in SETTINGS.items():
    for metric in METRICS:
        if len(about["counts"]) == 1 or "recall" not in metric:
            case(f"scores/{metric} of a fitted probe, {setting}", "coverage")(partial(covered, metric=metric, **about))
case("scores/balanced-accuracy of a fitted probe, 3 of 200", "coverage")(
    partial(covered, metric="balanced-accuracy", n=200, counts=(3,))
)


def noise(
    rng: np.random.Generator, *, metric: str, n: int, rare: int, d: int = 20, copies: int = 1, layers: int = 3
) -> Predictions:
    """Probes of layers that know nothing, of rare labels; rows of a group are near copies with one label."""
    y, y_dev = (np.repeat(rng.permutation(np.arange(n // copies) < rare // copies), copies).astype(int) for _ in "ab")
    x, x_dev = (
        [np.repeat(z, copies, 0) + 0.1 * rng.normal(size=(n, d)) for z in noise_layers(rng, n // copies, d, layers)]
        for _ in "ab"
    )
    of = np.repeat(np.arange(n // copies), copies)
    more = {"groups": (of, of)} if copies > 1 else {}
    how = {"choose_by": "log-loss"}
    return probed(rng, x, x_dev, y, y_dev, (metric, "accuracy"), controls=0, names=("a", "b"), how=how, **more)


def named(rng: np.random.Generator, **setting: object) -> bool:
    """Whether the sentence says that a layer beats permuted labels."""
    e = noise(rng, **setting)  # type: ignore[arg-type]
    return "no layer beats" not in sentences(rows_of(e, int(rng.integers(1 << 30))), [e])[0]


def differ(rng: np.random.Generator, *, metric: str, **setting: object) -> bool:
    """Whether a layer of noise is said to differ from the best one."""
    e = noise(rng, metric=metric, **setting)  # type: ignore[arg-type]
    return found(rng, e.take(e.fits["layer"].notna().to_numpy(dtype=bool)), against="best", metric=metric)


NOISE = {
    "3 of 200": {"n": 200, "rare": 3},
    "near copies, 24 of 240": {"n": 240, "rare": 24, "copies": 4},
    "n < d, 6 of 60": {"n": 60, "rare": 6, "d": 100},
}
for setting, about in NOISE.items():
    for metric in METRICS[:4]:
        case(f"scores/a layer of noise is named, {metric}, {setting}", "false positives")(
            partial(named, metric=metric, **about)
        )
        case(f"scores/a layer of noise differs from the best, {metric}, {setting}", "false positives", runs=100)(
            partial(differ, metric=metric, **about)
        )
