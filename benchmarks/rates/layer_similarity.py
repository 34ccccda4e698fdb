"""Similarity of layers: false positives over all 7 × 7 pairs of layers of unrelated models, and coverage of intervals.

The layers of a model resemble each other, as those of language models do. A false positive is an experiment in which at
least one of the 49 pairs has an adjusted p of .05 or less.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from calibration import case

from probekit.similarity.layer_pairs import layer_pairs
from probekit.similarity.options import SimilarityOptions

LAYERS = 7
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
SETTINGS: dict[str, tuple[int, int, str]] = {  # examples, columns, noise or clusters
    "n 100, 20 columns": (100, 20, "normal"),
    "n 40, 100 columns": (40, 100, "normal"),
    "n 100, heavy tails": (100, 20, "cauchy"),
    "n 100, an outlying column": (100, 20, "column"),
    "n 120, pairs of copies": (120, 20, "pairs"),
    "n 120, clusters of 1 to 5": (120, 20, "clusters"),
    "n 1,300, 20 columns": (1300, 20, "normal"),
    "n 100, ten distinct vectors": (100, 20, "tied"),
    "n 400, 384 columns": (400, 384, "normal"),
}
DECOMPOSED = ("cca", "svcca", "pwcca", "procrustes", "procrustes-angle")
MEASURES = (
    *("cka", "cka-biased", "cka-rbf", "rsa-pearson", "rsa-spearman", "rsa-cosine", "cca-r2", "eigenspace-overlap"),
    *("mutual-knn", "knn-jaccard", "knn-rank", "linear-predictivity", *DECOMPOSED),
)


def clusters(kind: str, n: int, rng: np.random.Generator) -> np.ndarray | None:
    if kind == "pairs":
        return np.repeat(np.arange(n // 2), 2)
    if kind == "clusters":
        return np.repeat(np.arange(n), rng.integers(1, 6, n))[:n]
    return None


def model(n: int, d: int, kind: str, groups: np.ndarray | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Layers of one model: a random walk, with near copies within clusters."""
    draw: Draw = (lambda r, s: r.standard_cauchy(s)) if kind == "cauchy" else (lambda r, s: r.standard_normal(s))

    def noise(scale: float) -> np.ndarray:
        x = draw(rng, (n, d))
        if kind == "tied":
            return scale * x[codes]
        return scale * (x if groups is None else x[groups] + 0.1 * rng.standard_normal((n, d)))

    codes = rng.integers(10, size=n)  # which of a few vectors an example has in all layers

    layers = [noise(1.0)]
    while len(layers) < LAYERS:
        layers.append(layers[-1] @ np.linalg.qr(rng.standard_normal((d, d)))[0] + noise(0.5))
    if kind == "column":
        outlying = 100 * rng.standard_normal(n) + 1000
        for x in layers:
            x[:, 3] += outlying
    return layers


def false_positive(measure: str, setting: str, rng: np.random.Generator) -> bool:
    n, d, kind = SETTINGS[setting]
    groups = clusters(kind, n, rng)
    a, b = (model(n, d, kind, groups, rng) for _ in range(2))
    options = SimilarityOptions(
        measures=(measure,), draws=199 if measure in DECOMPOSED else 1000, resamples=0,
        seed=int(rng.integers(1 << 31)), neighbours=5, threads=1,
    )  # fmt: skip
    found = layer_pairs([lambda x=x: x for x in a], [lambda x=x: x for x in b], options=options, groups=groups)
    return bool(np.nanmin(found[measure].p_adjusted) <= 0.05)


for _setting in SETTINGS:
    for _measure in MEASURES:
        if SETTINGS[_setting][2] == "tied" and _measure not in ("cka", "mutual-knn"):
            continue
        if _measure not in DECOMPOSED or _setting == "n 100, 20 columns":
            case(f"similarity/{_measure}, unrelated models, {_setting}", "false positives", runs=50)(
                lambda rng, m=_measure, s=_setting: false_positive(m, s, rng)
            )

POPULATIONS = {  # examples, columns, clusters
    "n 100, 20 columns": (100, 20, False),
    "n 400, 20 columns": (400, 20, False),
    "n 2,000, 20 columns": (2000, 20, False),
    "n 100, 200 columns": (100, 200, False),
    "n 400, clusters of 1 to 5": (400, 20, True),
    "n 60, clusters of 1 to 5": (60, 20, True),
    "n 100, clusters of 1 to 5": (100, 20, True),
}
WHOLE = 60_000  # examples that stand for the population


def two_layers(
    n: int, d: int, grouped: bool, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Layers with eight shared directions and noise of a decaying spectrum."""
    fixed = np.random.default_rng(0)
    maps = fixed.standard_normal((2, 8, d)) * 0.4
    groups = clusters("clusters", n, rng) if grouped else None

    def normal(columns: int) -> np.ndarray:
        x = rng.standard_normal((n, columns))
        return x if groups is None else x[groups] + 0.5 * rng.standard_normal((n, columns))

    shared = normal(8)
    x, y = (shared @ m + 2 * normal(d) * np.arange(1, d + 1) ** -0.5 for m in maps)
    return x, y, groups


@cache
def population(measure: str, d: int, grouped: bool, n: int | None) -> float:
    """The value of very many examples; with ``n``, the mean of samples of that size, for measures that depend on it."""
    options = SimilarityOptions(measures=(measure,), draws=0, resamples=0, max_examples=None, threads=1)
    rng = np.random.default_rng(1)

    def value(size: int) -> float:
        x, y, _ = two_layers(size, d, grouped, rng)
        return float(layer_pairs([lambda: x], [lambda: y], options=options)[measure].value[0, 0])

    return value(WHOLE) if n is None else float(np.mean([value(n) for _ in range(400)]))


def covered(measure: str, setting: str, size: bool, rng: np.random.Generator) -> bool | None:
    n, d, grouped = POPULATIONS[setting]
    x, y, groups = two_layers(n, d, grouped, rng)
    options = SimilarityOptions(measures=(measure,), draws=0, seed=int(rng.integers(1 << 31)), threads=1)
    found = layer_pairs([lambda: x], [lambda: y], options=options, groups=groups)[measure]
    if np.isnan(found.ci_low[0, 0]):
        return None
    truth = population(measure, d, grouped, n if size else None)
    return bool(found.ci_low[0, 0] <= truth <= found.ci_high[0, 0])


TAILS = {"normal": np.inf, "t with 8 degrees of freedom": 8, "t with 3 degrees of freedom": 3}


def nothing_shared(freedom: float, n: int, rng: np.random.Generator) -> bool | None:
    """Whether an interval of RSA holds the 0 of unrelated layers; None without one, as most of 3 degrees have none."""
    x, y = rng.standard_normal((2, n, 20)) if freedom == np.inf else rng.standard_t(freedom, (2, n, 20))
    options = SimilarityOptions(("rsa-pearson",), draws=0, seed=int(rng.integers(1 << 31)), threads=1)
    found = layer_pairs([lambda: x], [lambda: y], options=options)["rsa-pearson"]
    low, high = found.ci_low[0, 0], found.ci_high[0, 0]
    return None if np.isnan(low) else bool(low <= 0 <= high)


for _tails, _freedom in TAILS.items():
    case(f"similarity/rsa-pearson, unrelated layers, {_tails}, n 200", "coverage", runs=300)(
        lambda rng, f=_freedom: nothing_shared(f, 200, rng)
    )

for _setting, (_n, _, _grouped) in POPULATIONS.items():
    for _measure, _size in [
        *(("cka", True) if _grouped else ("cka", False), ("rsa-pearson", _grouped)),
        *((name, True) for name in ("cka-biased", "mutual-knn", "procrustes", "cca-r2", "linear-predictivity")),
    ]:
        if _n < 2000 or _measure == "cka":
            _of = "the mean of samples" if _size else "the population"
            case(f"similarity/{_measure}, {_of}, {_setting}", "coverage", runs=100)(
                lambda rng, m=_measure, s=_setting, z=_size: covered(m, s, z, rng)
            )
