"""Cases of ``probekit movement`` and ``geometry``: intervals, and differences between labels."""

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
from probekit.similarity.movement import movement

ABOUT = {"task": "t", "split": "dev", "model": "m", "checkpoint": "", "step": None, "representation": "mean"}


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
    return _rows(Matched((side, side), labels, words=False, group_columns={}), measured, None, options)


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
