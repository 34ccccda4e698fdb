"""Cases of ``probekit movement`` and ``geometry``: intervals, and differences between labels."""

from __future__ import annotations

from functools import lru_cache, partial
from types import SimpleNamespace

import numpy as np
from calibration import case

from probekit.analyses.matching import Matched, Side
from probekit.analyses.movement import MovementOptions
from probekit.analyses.movement.measure import _rows
from probekit.probes.protocol.labels import Labels
from probekit.similarity.geometry import intrinsic_dimension, mean_cosine, participation_ratio
from probekit.similarity.movement import movement

ABOUT = {"task": "t", "split": "dev", "model": "m", "checkpoint": "", "step": None, "representation": "mean"}


def moved(rng, n, copies, rare=0, spread=0.7, wider=0.0):
    """Rows of movement of three layers: steps of lognormal length, the same in distribution for both labels.

    rare : number of examples of one label, whole groups; 0 for labels of single examples, half of each
    wider : how many times as much lengths of that label vary, around the same mean; they are then normal
    """
    groups = np.repeat(np.arange(n // copies), copies)
    y = (rng.permutation(n // copies) < rare // copies)[groups].astype(int) if rare else rng.integers(2, size=n)
    labels = Labels(y, groups if copies > 1 else None, ids=np.arange(n).astype(str))
    x = rng.normal(size=(n, 16))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    side = Side(SimpleNamespace(spec={"label_names": ("a", "b")}), {}, ABOUT)
    measured = []
    for layer in range(3):
        step = rng.normal(size=(n, 16))
        length = np.exp(spread * (rng.normal(size=len(np.unique(groups)))[groups] + 0.5 * rng.normal(size=n)))
        if wider:
            length = 1 + 0.1 * np.where(y == 1, wider, 1) * rng.normal(size=n)
        step *= (length / np.linalg.norm(step, axis=1))[:, None]
        measured.append((side, str(layer), movement(x, x + step, groups=labels.groups, align=False)))
    options = MovementOptions(measures=("relative-distance",), top=0, seed=int(rng.integers(1 << 30)))
    return _rows(Matched((side, side), labels, words=False, group_columns={}), measured, None, options)


def distance_covered(rng, n, copies):
    row = moved(rng, n, copies).iloc[0]
    return bool(row["ci_low"] <= np.exp(0.49 * 1.25 / 2) <= row["ci_high"])


def any_label(rng, n, copies, rare=0, spread=0.7, wider=0.0):
    rows = moved(rng, n, copies, rare, spread, wider)
    return bool((rows["p_adjusted"] <= 0.05).any())


def grouped(rng, groups, copies, draw, apart):
    """Vectors of groups of 1 to 2 * copies - 1 (or of exactly -copies), which vary by ``apart`` within a group."""
    size = rng.integers(1, 2 * copies, size=groups) if copies > 0 else np.full(groups, -copies)
    code = np.repeat(np.arange(groups), size)
    one = draw(groups)
    return one[code] + apart * rng.normal(size=(len(code), one.shape[1])), None if copies == 1 else code


def ratio_covered(rng, n, d, copies=1, apart=0.0):
    """Groups share a vector with a decaying spectrum; ``apart``, the deviation of each from it, is the same in all."""
    eigenvalues = 1 / np.arange(1, d + 1)
    x, groups = grouped(rng, n, copies, lambda k: rng.normal(size=(k, d)) * np.sqrt(eigenvalues), apart)
    one, true = participation_ratio(x, groups=groups), eigenvalues + apart**2
    return None if np.isnan(one.low) else bool(one.low <= true.sum() ** 2 / (true**2).sum() <= one.high)


@lru_cache
def true_cosine(d):
    unit = np.random.default_rng(0).normal(size=(400_000, d)) + 0.5
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return float((unit.mean(0) ** 2).sum())


def cosine_covered(rng, n, d, copies):
    x = np.repeat(rng.normal(size=(n // copies, d)) + 0.5, copies, axis=0)
    one = mean_cosine(x, groups=np.repeat(np.arange(n // copies), copies) if copies > 1 else None)
    return bool(one.low <= true_cosine(d) <= one.high)


def dimension_covered(rng, n, d, copies=1, apart=0.0):
    x, groups = grouped(rng, n, copies, lambda k: rng.uniform(size=(k, d)), apart)
    one = intrinsic_dimension(x @ np.linalg.qr(rng.normal(size=(20, 20)))[0][:d], groups=groups)
    return bool(one.low <= d <= one.high)


for n in (60, 400):
    for copies in (1, 2):
        more = ", groups of 2" if copies > 1 else ""
        name = f"movement/relative-distance, n {n}{more}"
        case(name, "coverage", before="–", runs=300, nightly=1000)(partial(distance_covered, n=n, copies=copies))
        name = f"movement/equal labels, 3 layers, n {n}{more}"
        case(name, "false positives", before="–", runs=300, nightly=1000)(partial(any_label, n=n, copies=copies))
for n, copies, rare, spread in (
    (60, 1, 2, 0.1),
    (60, 1, 2, 0.7),
    (60, 1, 5, 0.7),
    (200, 1, 50, 0.7),
    (200, 4, 20, 0.7),
):
    name = f"movement/equal labels, 3 layers, n {n}, label of {rare}, lengths exp({spread} z)"
    run = partial(any_label, n=n, copies=copies, rare=rare, spread=spread)
    case(name + f", groups of {copies}" * (copies > 1), "false positives", before="–", runs=300, nightly=1000)(run)
for n, rare in ((200, 20), (60, 5)):
    name = f"movement/labels of equal mean, 3 layers, n {n}, label of {rare} varies 3 times as much"
    case(name, "false positives", before="–", runs=300)(partial(any_label, n=n, copies=1, rare=rare, wider=3.0))
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
for copies, words in ((-4, "groups of 4"), (4, "groups of 1 to 7")):
    for apart in (0.0, 0.3):
        name = f"geometry/participation-ratio, n 60, {words}, {apart} apart"
        case(name, "coverage", runs=400, nightly=2000)(partial(ratio_covered, n=60, d=40, copies=copies, apart=apart))
    for apart in (0.01, 0.1):
        name = f"geometry/intrinsic-dimension, 2 of 20 dimensions, n 100, {words}, {apart} apart"
        run = partial(dimension_covered, n=100, d=2, copies=copies, apart=apart)
        case(name, "coverage", runs=400, nightly=2000)(run)
