"""Cases of ``probekit mdl``: the interval of a code over new examples and orders, and what is said to hold nothing."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from calibration import case

from probekit.probes.codes.mdl import mdl_rows
from probekit.probes.codes.options import CodeOptions
from probekit.probes.protocol.labels import Labels

ABOUT = {"task": "t", "split": "train", "model": "m", "representation": "mean"}
HOW = {"penalties": (0.01, 0.3), "fractions": (0.02, 0.0625, 0.125, 0.25, 0.5, 1.0), "controls": 0}


def sample(rng, n, d, shift, copies=1):
    """Three in ten labels of one class, which moves the first column; with ``copies`` each row is there as often."""
    y = (rng.random(n) < 0.3).astype(int)
    y[:2] = 0, 1
    x = rng.normal(size=(n, d)).astype(np.float32)
    x[:, 0] += shift * y
    return np.repeat(x, copies, 0), np.repeat(y, copies), np.repeat(np.arange(n), copies)


def sent(rng, n, d, shift, copies=1, orders=3):
    """Rows of gold, by metric."""
    x, y, own = sample(rng, n, d, shift, copies)
    options = CodeOptions(orders=orders, seed=int(rng.integers(1 << 30)), **HOW)
    labels = Labels(y, own if copies > 1 else None)
    rows = mdl_rows({"0": x}, labels, about=ABOUT, options=options, classes=2)
    return rows[(rows["target"] == "gold") & (rows["portion"] == -1)].set_index("metric")


@lru_cache
def truth(n, d, shift, metric, runs=300):
    """The mean over new examples and orders."""
    many = (np.random.default_rng([n, d, int(10 * shift), i]) for i in range(runs))
    return float(np.mean([sent(rng, n, d, shift, orders=1).loc[metric, "value"] for rng in many]))


def covered(rng, n, d, shift, metric):
    """Whether the interval holds the mean over new examples and orders."""
    low, high = sent(rng, n, d, shift).loc[metric, ["ci_low", "ci_high"]]
    return bool(low <= truth(n, d, shift, metric) <= high)


def found(rng, n, d, copies):
    """Whether labels that are noise are said to be sent in less than the prior's code."""
    return bool(sent(rng, n, d, 0.0, copies).loc["saved-bits", "p_adjusted"] <= 0.05)


for n, d, shift in ((300, 8, 0.0), (300, 8, 1.0), (300, 8, 3.0), (600, 40, 2.0)):
    for metric in ("codelength-bits", "saved-bits"):
        run = partial(covered, n=n, d=d, shift=shift, metric=metric)
        name = f"mdl/{metric}, {n} × {d}, {shift:g} deviations apart"
        case(name, "coverage", before="no interval", runs=100, nightly=500)(run)
for copies in (1, 2):
    name = "mdl/noise, each row twice" if copies > 1 else "mdl/noise"
    case(name, "false positives", runs=100, nightly=500)(partial(found, n=300, d=8, copies=copies))
