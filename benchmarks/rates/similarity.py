"""Cases of ``probekit similarity``, ``movement`` and ``geometry``: chance, intervals, and differences between labels."""

from __future__ import annotations

from functools import lru_cache, partial
from types import SimpleNamespace

import numpy as np
from calibration import case

from probekit.analyses.matching import Matched, Side
from probekit.analyses.movement import _rows
from probekit.analyses.options import MovementOptions
from probekit.probes.protocol.labels import Labels
from probekit.similarity.geometry import intrinsic_dimension, mean_cosine, participation_ratio
from probekit.similarity.layer_pairs import layer_pairs
from probekit.similarity.movement import movement
from probekit.similarity.options import SimilarityOptions

ABOUT = {"task": "t", "split": "dev", "model": "m", "checkpoint": "", "step": None, "representation": "mean"}


def layers(rng, n, copies, shared=0.0, count=7, d=32):
    """Layers of two models with columns in common (or none), and groups of rows, which share half of their noise."""
    groups = np.repeat(np.arange(n // copies), copies)
    sides = []
    common = rng.normal(size=(n, d))
    for _ in range(2):
        noise = rng.normal(size=(count, len(np.unique(groups)), d))[:, groups] if copies > 1 else 0
        own = noise + rng.normal(size=(count, n, d))
        sides.append([lambda x=x: x for x in own + shared * common])
    return sides, groups if copies > 1 else None


def any_pair(rng, measure, n, copies):
    """Whether any of 7 × 7 pairs of unrelated layers is said to be more alike than chance."""
    (a, b), groups = layers(rng, n, copies)
    options = SimilarityOptions(measures=(measure,), permutations=199, resamples=0, seed=int(rng.integers(1 << 30)))
    return bool((layer_pairs(a, b, options=options, groups=groups)[measure].p_adjusted <= 0.05).any())


@lru_cache
def true_similarity(measure, shared):
    """Of 3,000 rows of independent normals with columns in common: the mean of 20 samples."""
    found = []
    for i in range(20):
        (a, b), _ = layers(np.random.default_rng(i), 3000, 1, shared, count=1)
        options = SimilarityOptions(measures=(measure,), permutations=0, resamples=0)
        found.append(layer_pairs(a, b, options=options)[measure].value[0, 0])
    return float(np.mean(found))


def similarity_covered(rng, measure, n, shared):
    (a, b), _ = layers(rng, n, 1, shared, count=1)
    options = SimilarityOptions(measures=(measure,), permutations=0, seed=int(rng.integers(1 << 30)))
    one = layer_pairs(a, b, options=options)[measure]
    if not np.isfinite(one.ci_low[0, 0]):
        return None
    return bool(one.ci_low[0, 0] <= true_similarity(measure, shared) <= one.ci_high[0, 0])


def moved(rng, n, copies):
    """Rows of movement of three layers: steps of lognormal length, the same in distribution for both labels."""
    groups = np.repeat(np.arange(n // copies), copies)
    y = rng.integers(2, size=n)
    labels = Labels(y, groups if copies > 1 else None, ids=np.arange(n).astype(str))
    x = rng.normal(size=(n, 16))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    side = Side(SimpleNamespace(spec={"label_names": ("a", "b")}), {}, ABOUT)
    measured = []
    for layer in range(3):
        step = rng.normal(size=(n, 16))
        length = np.exp(0.7 * (rng.normal(size=len(np.unique(groups)))[groups] + 0.5 * rng.normal(size=n)))
        step *= (length / np.linalg.norm(step, axis=1))[:, None]
        measured.append((side, str(layer), movement(x, x + step, groups=labels.groups, align=False)))
    options = MovementOptions(measures=("relative-distance",), top=0, seed=int(rng.integers(1 << 30)))
    return _rows(Matched((side, side), labels, False, {}), measured, None, options)


def distance_covered(rng, n, copies):
    row = moved(rng, n, copies).iloc[0]
    return bool(row["ci_low"] <= np.exp(0.49 * 1.25 / 2) <= row["ci_high"])


def any_label(rng, n, copies):
    rows = moved(rng, n, copies)
    return bool((rows["p_adjusted"] <= 0.05).any())


def spectrum(rng, n, d, copies=1):
    return np.repeat(rng.normal(size=(n // copies, d)) / np.sqrt(np.arange(1, d + 1)), copies, axis=0)


def ratio_covered(rng, n, d):
    eigenvalues = 1 / np.arange(1, d + 1)
    one = participation_ratio(spectrum(rng, n, d))
    return None if np.isnan(one.low) else bool(one.low <= eigenvalues.sum() ** 2 / (eigenvalues**2).sum() <= one.high)


@lru_cache
def true_cosine(d):
    unit = np.random.default_rng(0).normal(size=(400_000, d)) + 0.5
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return float((unit.mean(0) ** 2).sum())


def cosine_covered(rng, n, d, copies):
    x = np.repeat(rng.normal(size=(n // copies, d)) + 0.5, copies, axis=0)
    one = mean_cosine(x, groups=np.repeat(np.arange(n // copies), copies) if copies > 1 else None)
    return bool(one.low <= true_cosine(d) <= one.high)


def dimension_covered(rng, n, d):
    one = intrinsic_dimension(rng.uniform(size=(n, d)) @ np.linalg.qr(rng.normal(size=(20, 20)))[0][:d])
    return bool(one.low <= d <= one.high)


for measure, n in (("cka", 100), ("mutual-knn", 100), ("cca", 100), ("rsa-spearman", 60)):
    for copies in (1, 2):
        name = f"similarity/{measure}, 7 × 7 unrelated layers{', groups of 2' if copies > 1 else ''}"
        runs = {"runs": 200, "nightly": 1000}
        case(name, "false positives", before="–", **runs)(partial(any_pair, measure=measure, n=n, copies=copies))
for measure in ("cka", "procrustes", "mutual-knn"):
    for n in (100, 400):
        run = partial(similarity_covered, measure=measure, n=n, shared=1.0)
        case(f"similarity/{measure}, interval, n {n}", "coverage", before="–", runs=200, nightly=1000)(run)
for n in (60, 400):
    for copies in (1, 2):
        more = ", groups of 2" if copies > 1 else ""
        name = f"movement/relative-distance, n {n}{more}"
        case(name, "coverage", before="–", runs=300, nightly=1000)(partial(distance_covered, n=n, copies=copies))
        name = f"movement/equal labels, 3 layers, n {n}{more}"
        case(name, "false positives", before="–", runs=300, nightly=1000)(partial(any_label, n=n, copies=copies))
for n in (50, 200, 1000):
    name = f"geometry/participation-ratio, n {n}"
    case(name, "coverage", before="–", runs=400, nightly=2000)(partial(ratio_covered, n=n, d=40))
for n in (50, 400):
    for copies in (1, 2):
        name = f"geometry/mean-cosine, n {n}{', each row twice' if copies > 1 else ''}"
        run = partial(cosine_covered, n=n, d=40, copies=copies)
        case(name, "coverage", before="–", runs=400, nightly=2000)(run)
for d in (1, 2):
    name = f"geometry/intrinsic-dimension, {d} of 20 dimensions, n 400"
    case(name, "coverage", before="–", runs=400, nightly=2000)(partial(dimension_covered, n=400, d=d))
