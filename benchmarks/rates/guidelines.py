"""Cases of ``probekit guidelines``: regimes that are equally good, seed by seed better or worse."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from calibration import case

from probekit.analyses.guidelines import CANNOT_TELL, EITHER
from probekit.analyses.guidelines.measure import _judge, difference
from probekit.statistics.predictions import Predictions

POINTS = 0.015
"""What a seed moves the accuracy by, one standard deviation; about .8 are right."""


def right(rng, n, seeds, luck, gap=0.0):
    """Which examples each model gets right, (fits, n): an example's difficulty, that for a regime, a seed's luck."""
    hard, found = rng.normal(size=n), []
    for which, count in enumerate(seeds):
        own = hard + 0.5 * rng.normal(size=n) + 1.0 + gap * (which == 0)
        found += [own + luck * rng.normal() + 0.5 * rng.normal(size=n) > 0 for _ in range(count)]
    return np.array(found).astype(np.int64)


def recommended(rng, *, seeds, n=1000):
    """Whether one of two equally good regimes is preferred; None where nothing can be told of regimes."""
    luck = POINTS / 0.2335  # the slope of the share that is right, at no luck
    said = right(rng, n, seeds, luck)
    table = Predictions(
        pd.DataFrame({"fit": range(len(said))}), np.arange(n).astype(str), np.ones(n, int), said, ("accuracy",)
    )
    first = np.arange(len(said)) < seeds[0]
    found = difference(table, first, "accuracy", resamples=1000, seed=int(rng.integers(1 << 30)))
    row = {"margin": 0.01, "kind": "single sentences", "fine_tune_seeds": seeds[0]}
    _judge([row], [found], [("linear", "linear")])
    if not found.of_regimes:
        assert row["prefer"] == CANNOT_TELL
        return None
    return row["prefer"] not in (CANNOT_TELL, EITHER)


for seeds, before in (
    ((5, 1), "20 %"),
    ((1, 5), "20 %"),
    ((3, 1), ""),
    ((1, 1), "41 %"),
    ((2, 2), ""),
    ((3, 3), ""),
    ((5, 5), ""),
):
    case(f"guidelines/{seeds[0]} and {seeds[1]} seeds", "false positives", before=before, runs=400)(
        partial(recommended, seeds=seeds)
    )
