"""Cases of ``probekit places``: the paired difference of two layers, from vectors of places to the interval.

Regressions of degrees are fitted to two layers that hold noisy copies of the coordinates; their difference on 40,000
other places is the truth. Places of a country share part of the noise of each layer.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from calibration import case

from probekit.statistics.clusters import mean_of_differences
from probekit.statistics.distances import great_circle, on_sphere

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
    return bool(low <= truth <= high)


for n, size in ((60, 1), (60, 6), (400, 1), (400, 8)):
    for noise in ((1.0, 1.0), (0.4, 2.0)):
        of = "equal noise" if noise[0] == noise[1] else "unequal noise"
        name = f"places/difference, {of}, n {n}{f', countries of {size}' if size > 1 else ''}"
        run = partial(covered, n=n, size=size, noise=noise)
        case(name, "coverage", before="–", runs=1000, nightly=4000)(run)
