"""Cases of ``probekit angles``: from vectors and labels to pairs of probes that are shown to be alike."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from calibration import case

from probekit.analyses.angles.cosines import judged
from probekit.probes.angles import refits
from probekit.probes.directions import halves
from probekit.probes.protocol.labels import Labels
from probekit.probes.protocol.options import Estimator

PENALTY = {"logistic": 1.0, "mass-mean": 0.1}


def alike(
    rng: np.random.Generator, *, n: int, d: int, estimators: tuple[str, ...] = ("mass-mean",) * 3, common: float = 3.0,
    strong: float | tuple[float, ...] = 0.0, copies: int = 1, same: bool = False, share: float = 0.5,
) -> bool | None:  # fmt: skip
    """Whether any pair of probes of unrelated labels is shown to be alike or opposite.

    common : the size of a factor that all dimensions have; strong : how far each label moves the vectors, along a
    direction of its own, orthogonal to the others; same : all labels are the same ones
    """
    of = np.repeat(np.arange(-(-n // copies)), copies)[:n]
    count = of[-1] + 1
    labels = [(rng.random(count) < share).astype(np.int64)[of] for _ in estimators]
    labels = labels[:1] * len(labels) if same else labels
    x = rng.normal(size=(count, d))[of] + common * rng.normal(size=(count, 1))[of]
    x += 0.3 * rng.normal(size=(n, d)) if copies > 1 else 0
    axes = np.linalg.qr(rng.normal(size=(d, len(labels))))[0].T
    far = np.broadcast_to(strong, len(labels))
    x += sum(by * (y - 0.5)[:, None] * axis for by, y, axis in zip(far, labels, axes, strict=True))
    x, groups = (x / np.sqrt(1 + np.arange(d) % 7)).astype(np.float32), of if copies > 1 else None
    half = halves(labels[0], groups, int(rng.integers(1 << 30)), classes=True)
    if any(np.unique(y[half != k], return_counts=True)[1].min() < 3 for y in labels for k in (0, 1)):
        return None
    how: dict[str, Any] = {"draws": 99, "seed": int(rng.integers(1 << 30))}
    fits = [
        refits(x, Labels(y, groups=groups), half, 2, Estimator(name), PENALTY[name], **how)
        for y, name in zip(labels, estimators, strict=True)
    ]
    pairs = [(i, j) for i in range(len(fits)) for j in range(i)]
    found = judged([fit.gold for fit in fits], fits, pairs, 0.95, scaled=True)
    return bool((found.p_adjusted <= 0.05).any())


MEAN, TWO = ("mass-mean",) * 3, ("logistic", "mass-mean")
SMALL: dict[str, Any] = {"n": 200, "d": 16}
CASES: dict[str, dict[str, Any]] = {
    "unrelated labels, common factor": {"estimators": MEAN},
    "unrelated labels, common factor, clusters of 4 near copies": {"estimators": MEAN, "copies": 4},
    "each label a direction of its own, common factor": {"estimators": MEAN, "strong": 2.0},
    "unrelated labels, one with a direction, common factor": {"estimators": TWO, "strong": (0.0, 2.0)},
    "two estimators of the same noise, common factor": {"estimators": TWO, "same": True},
}
for _name, _how in CASES.items():
    case(f"angles/{_name}, n 200, 16 dimensions", "false positives", runs=200)(partial(alike, **SMALL, **_how))
