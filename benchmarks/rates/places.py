"""Cases of ``probekit places``: differences of layers, from vectors of places to intervals and corrected p.

Regressions of degrees are fitted to layers that hold noisy copies of the coordinates. Of two layers, their difference
on 40,000 other places is the truth. Of several layers of two models that hold equally much, none differs from another;
these regressions are fitted to 15,000 places, after which they are equally good on new ones. Places of a country share
part of the noise of each layer.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from calibration import case

from probekit.analyses.places import PlaceOptions
from probekit.analyses.places.measure import Errors, difference_rows, distance, regressed
from probekit.statistics.clusters import mean_of_differences
from probekit.statistics.distances import centroid, great_circle, on_sphere
from probekit.statistics.folds import folds

D, SHARE = 12, 0.6
"""Width of a layer, and the share of the noise's variance that a country has in common."""


def places(rng, n, size, noise):
    """Coordinates (2, n) on the sphere, and two layers (n, D) that hold them; countries of ``size`` places."""
    country = np.arange(n) // size
    middle = np.stack([np.degrees(np.arcsin(rng.uniform(-0.6, 0.9, n))), rng.uniform(-170, 170, n)])[:, country]
    gold = on_sphere(*(middle + rng.normal(scale=5, size=(2, n))))
    unit = np.stack(gold).T / [40, 100]
    layers = []
    for scale in noise:
        of_country = rng.normal(size=(n, D))[country]
        error = np.sqrt(SHARE) * of_country + np.sqrt(1 - SHARE) * rng.normal(size=(n, D))
        layers.append(unit @ MAP + scale * error)
    return np.stack(gold), layers, country


TRAIN = 15_000
MAP = np.random.default_rng(0).normal(size=(2, D))


def errors(maps, gold, layers):
    """The distance (n,), km, of each place for each layer."""
    return [great_circle(*gold, *on_sphere(*(_one(x) @ w).T)) for w, x in zip(maps, layers, strict=True)]


def _one(x):
    return np.hstack([x, np.ones((len(x), 1))])


@lru_cache
def fitted(noise):
    """Ridge regressions of 500 places for each layer, and the mean difference of their errors on 40,000 places."""
    rng = np.random.default_rng(1)
    gold, layers, _ = places(rng, 500, 1, noise)
    maps = [np.linalg.solve(_one(x).T @ _one(x) + np.eye(D + 1), _one(x).T @ gold.T) for x in layers]
    gold, layers, _ = places(rng, 40_000, 1, noise)
    one, other = errors(maps, gold, layers)
    return maps, float((one - other).mean())


def covered(rng, n, size, noise):
    maps, truth = fitted(noise)
    gold, layers, country = places(rng, n, size, noise)
    one, other = errors(maps, gold, layers)
    _, low, high, _ = mean_of_differences(one - other, country if size > 1 else None)
    return bool(low <= truth <= high) if np.isfinite(low) else None


def told_apart(rng, n, size, layers, noise):
    """Whether any layer of a second model is said to differ from its first, or from that layer of the first model."""
    options, first = PlaceOptions(controls=0, resamples=0), None
    gold, x, _ = places(rng, TRAIN, 1, (noise,) * (2 * layers))
    truth, x_test, country = places(rng, n, size, (noise,) * (2 * layers))
    middle = np.broadcast_to(np.array(centroid(*gold))[:, None], truth.shape)
    fold, p = folds(gold[0], options.folds, stratify=False), list[float]()
    for model in range(2):
        errors = Errors({None: ({}, distance(truth, middle))}, np.arange(n), country if size > 1 else None)
        for layer in range(layers):
            at = model * layers + layer
            said = regressed(x[at], gold, fold, x_test[at], truth, options)
            errors.of[str(layer)] = {"model": f"m{model}"}, distance(truth, said)
        p = [row["p_adjusted"] for row in difference_rows(errors, first, options) if row["against"] != "centroid"]
        first = first or errors
    return min(p) <= 0.05


for n, size in ((60, 1), (60, 6), (40, 8), (64, 8), (400, 1), (400, 8)):
    for noise in ((1.0, 1.0), (0.4, 2.0)):
        of = "equal noise" if noise[0] == noise[1] else "unequal noise"
        name = f"places/difference, {of}, n {n}{f', countries of {size}' if size > 1 else ''}"
        run = partial(covered, n=n, size=size, noise=noise)
        case(name, "coverage", before="–", runs=1000, nightly=4000)(run)

for n, size in ((60, 1), (40, 8), (120, 6), (400, 1), (400, 8)):
    name = f"places/equal layers told apart, n {n}{f', countries of {size}' if size > 1 else ''}"
    case(name, "false positives", runs=400)(partial(told_apart, n=n, size=size, layers=3, noise=1.0))
