"""Cases of ``probekit.mutual_information``: p where labels are noise, and the lower bound where the truth is known."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from calibration import case
from mi_cases import CASES as KNOWN

from probekit import mutual_information

FALSE, COVERAGE, SHUFFLES = "false positives", "coverage", 199


def estimate(rng, x, y, groups=None, estimator="edge"):
    """One estimate with a seed of its own."""
    seed = int(rng.integers(1 << 30))
    return mutual_information(x, y, estimator, groups=groups, draws=SHUFFLES, seed=seed)


def positive(rng, make, estimator="edge"):
    """Whether p is 5 % or less; None where nothing is said."""
    found = estimate(rng, *make(rng), estimator)
    return None if np.isnan(found.p) else bool(found.p <= 0.05)


def doubled(rng, n=200, d=30):
    """Every row twice."""
    return np.repeat(rng.standard_normal((n, d)), 2, 0), np.repeat(rng.integers(0, 2, n), 2), None


def pairs(rng, n=500, d=50):
    """A fifth of the rows in pairs of copies."""
    x, y = rng.standard_normal((n, d)), rng.integers(0, 2, n)
    one, other = rng.permutation(n)[: n // 5].reshape(2, -1)
    x[one], y[one] = x[other], y[other]
    return x, y, None


def sentences(rng, count=60, d=40):
    """Words of sentences of 5 to 24, alike within a sentence; a label for each sentence."""
    own = np.repeat(np.arange(count), rng.integers(5, 25, count))
    x = rng.standard_normal((count, d))[own] + rng.standard_normal((len(own), d))
    return x, rng.integers(0, 2, count)[own], own


def halves(rng, count=150, d=20):
    """Pairs [u; v; |u - v|; u v] that share u with up to three others, whose labels are alike."""
    own = np.repeat(np.arange(count), rng.integers(1, 5, count))
    u, v = rng.standard_normal((count, d))[own], rng.standard_normal((len(own), d))
    y = rng.integers(0, 2, count)[own] ^ (rng.random(len(own)) < 0.2)
    return np.hstack([u, v, np.abs(u - v), u * v]), y, own


def constructions(rng, count=40, copies=10, d=60):
    """Ten near copies of each construction."""
    own = np.repeat(np.arange(count), copies)
    x = rng.standard_normal((count, d))[own] + 0.05 * rng.standard_normal((len(own), d))
    return x, rng.integers(0, 2, count)[own], own


def alone(rng, n=200, d=30, classes=2):
    """Examples that stand for themselves."""
    return rng.standard_normal((n, d)), rng.integers(0, classes, n), None


def scores(rng, n=200, d=10):
    """The same, about numbers, each row twice."""
    return np.repeat(rng.standard_normal((n, d)), 2, 0), np.repeat(rng.standard_normal(n), 2), None


for name, make, before in (
    ("every row twice", doubled, "100 % (150)"),
    ("a fifth of the rows in pairs", pairs, "78 %"),
    ("words, labels of sentences", sentences, "30–100 %"),
    ("pairs that share a sentence", halves, "55 %"),
    ("ten near copies a construction", constructions, ""),
    ("numbers, every row twice", scores, ""),
    ("examples alone", alone, "2.5 %"),
    ("examples alone, 5 classes", partial(alone, classes=5), "2.5 %"),
):
    case(f"information/{name}", FALSE, before=before)(partial(positive, make=make))
for name, make in (("every row twice", doubled), ("words, labels of sentences", sentences)):
    for estimator in ("knn", "logistic"):
        case(f"information/{estimator}, {name}", FALSE, runs=60, nightly=400)(
            partial(positive, make=make, estimator=estimator)
        )


def below(rng, make, truth, n):
    """Whether the lower bound is no more than the information."""
    return bool(estimate(rng, *make(rng, n)).ci_low <= truth)


def bits(distance):
    """Of two equally frequent unit Gaussians so far apart, by Gauss-Hermite quadrature."""
    points, weights = np.polynomial.hermite_e.hermegauss(200)
    return float(1 - weights @ np.logaddexp2(0, -(distance**2 / 2 + distance * points) / np.log(2)) / weights.sum())


def shifted(rng, n, d=100, distance=2.0, deviations=None):
    """Two Gaussian classes, apart along the first column; columns of these deviations."""
    y = rng.integers(0, 2, n)
    x = rng.standard_normal((n, d))
    x[:, 0] += distance * y
    return (x if deviations is None else x * deviations[:d]).astype(np.float32), y


def exclusive(rng, n, d=100):
    """An exclusive or of the first two of many columns."""
    x = rng.standard_normal((n, d))
    return x, (x[:, 0] * x[:, 1] > 0).astype(int)


@lru_cache
def built(name):
    """A case whose truth is worked out once."""
    return KNOWN[name](name)


FAINT = np.r_[0.02, np.ones(767)]
FALLING = 20.0 * np.arange(1, 769) ** -1.0
OWN = {
    "n below 2 d": (partial(shifted, d=300), bits(2.0), 300, "0 of 30 held"),
    "exclusive or in 2 of 100 columns": (exclusive, 1.0, 1000, "[0, .02] of 1"),
    "signal of low variance": (partial(shifted, d=200, deviations=FAINT), bits(2.0), 1000, "0 of 30 held"),
    "signal on the column of most variance, 150 × 768": (
        partial(shifted, d=768, distance=2.8, deviations=FALLING), bits(2.8), 150, ".036 of .76",
    ),
    "20 × 768": (partial(shifted, d=768), bits(2.0), 20, "[0, .23]"),
    "one column": (partial(shifted, d=1, distance=1.0), bits(1.0), 300, ""),
}  # fmt: skip
for name, (make, truth, n, before) in OWN.items():
    registered = case(f"information/lower bound, {name}", COVERAGE, before=before, nominal=0.975)
    registered(partial(below, make=make, truth=truth, n=n))
for name in (
    "isotropic 10, 2 classes, 0.05", "isotropic 10, 2 classes, 0.5", "isotropic 10, 2 classes, 0.9",
    "bert 768, 2 classes, 0.15",
    "latent 10, 5 classes general, 0.75", "latent 10, 20 classes line, 2.0", "bert 768, 20 classes general, 2.0",
    "isotropic 10, 10:90, 0.15", "score isotropic 10, 0.5", "correlated 2, 0.5", "xor 10, 0.5", "absolute 10, 0.5",
    "clusters 10", "heavy 10, 0.5", "absolute number 10, noise 0.3", "symbols 20, noise 0.2",
):  # fmt: skip

    def known(rng, name=name, n=400):
        """A case of benchmarks/mi_cases.py."""
        one = built(name)
        return below(rng, one.make, one.truth + 2 * one.error, n)

    case(f"information/lower bound, {name}", COVERAGE, runs=100, nominal=0.975)(known)
