"""Cases of ``probekit explain``: from vectors and a fitted direction to the shares of the score's variance.

The direction is the difference of two class means of train. The score goes with length, frequency and label of texts
that it has not met; the true shares are those of 20,000 further texts.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from calibration import case

from probekit.statistics.regression import partial_effects

WIDTH, POPULATION = 12, 20_000


def texts(
    rng: np.random.Generator, n: int, *, effect: float, tails: bool = False, of: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Vectors, labels, predictors (length, frequency) and groups of n texts.

    effect : how much length and frequency move the vectors; tails : lengths are lognormal; of : texts of a group, which
    share half of the variance of vectors and predictors
    """
    group = np.repeat(np.arange(-(-n // of)), of)[:n]

    def drawn(k: int) -> np.ndarray:
        shared = rng.normal(size=(group[-1] + 1, k))[group]
        return shared if of == 1 else (shared + rng.normal(size=(n, k))) / 2**0.5

    y, x = drawn(1)[:, 0] > 0, drawn(2)
    predictors = np.column_stack([np.exp(x[:, 0]) if tails else x[:, 0], x[:, 1]])
    vectors = drawn(WIDTH)
    vectors[:, 0] += y + effect * (predictors - predictors.mean(0)) @ [1, 0.5]
    return vectors, y, predictors, group


def measured(
    rng: np.random.Generator, *, n: int, effect: float, more: int = 0, **setting: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Predictors with the label, scores of a direction that other texts gave, groups, and the true shares."""
    x, y, _, _ = texts(rng, 400, effect=effect, **setting)
    direction = x[y].mean(0) - x[~y].mean(0)
    parts = [texts(rng, size, effect=effect, **setting) for size in ((n, more) if more else (n,))]
    both = [(np.column_stack([z, label]), v @ direction, group) for v, label, z, group in parts]
    truth = partial_effects(*both[1][:2], flips=0, resamples=0).value if more else np.empty(0)
    return (*both[0], truth)


def shown(rng: np.random.Generator, **setting: int) -> bool:
    """Whether length or frequency, which the vectors do not hold, is shown to go with the score."""
    x, score, group, _ = measured(rng, effect=0.0, **setting)
    found = partial_effects(x, score, group, flips=199, resamples=0, seed=int(rng.integers(1 << 30)))
    return bool((found.p_adjusted[:2] <= 0.05).any())


def covered(rng: np.random.Generator, **setting: int) -> bool:
    """Whether the interval of length's share holds it."""
    x, score, group, truth = measured(rng, effect=0.7, more=POPULATION, **setting)
    found = partial_effects(x, score, group, flips=199, resamples=400, seed=int(rng.integers(1 << 30)))
    return bool(found.low[0] <= truth[0] <= found.high[0])


for name, setting in {
    "60 texts": {"n": 60}, "200 texts": {"n": 200}, "60 texts, lognormal lengths": {"n": 60, "tails": True},
    "200 texts, lognormal lengths": {"n": 200, "tails": True}, "15 groups of 4": {"n": 60, "of": 4},
    "50 groups of 4": {"n": 200, "of": 4},
}.items():  # fmt: skip
    case(f"explain/length or frequency is shown where neither is held, {name}", "false positives")(
        partial(shown, **setting)
    )
    case(f"explain/share of length, {name}", "coverage")(partial(covered, **setting))
