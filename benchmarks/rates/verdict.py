"""How often the words of a verdict claim what is not so, from features to sentences.

A layer is named although none knows anything, of the trained model or of random weights; a layer is called clearly the
best although all are as good; the true best one is not among those that are named as best or not clearly worse.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from calibration import case
from comparisons import DRAWS, classes, noise_layers, probed
from curves import CURVES, said

from probekit.analyses.verdict import sentences
from probekit.probes.protocol.rows import probe_rows
from probekit.rows import make_rows
from probekit.statistics.predictions import Predictions


def rows_of(e: Predictions, seed: int, **more: object) -> pd.DataFrame:
    """Rows of probes, as ``probe`` makes them."""
    return probe_rows(e, resamples=DRAWS, seed=seed).assign(analysis="probe", **more)


def named(rng: np.random.Generator, *, n: int, share: float, metric: str) -> bool:
    """Whether a sentence names a layer of the trained model or of random weights, where no layer knows anything."""
    y, y_dev = classes(rng, n, share), classes(rng, n, share)
    tables = [
        probed(
            rng, noise_layers(rng, n, 20, 3), noise_layers(rng, n, 20, 3), y, y_dev, (metric, "accuracy"), controls=0
        )
        for _ in range(2)
    ]
    seed = int(rng.integers(1 << 30))
    one, other = (rows_of(table, seed, checkpoint=name) for table, name in zip(tables, ("", "random-0"), strict=True))
    both = make_rows(pd.concat([one, other.assign(random_weights=0)], ignore_index=True))
    texts = sentences(both)
    return not ("no layer beats" in texts[0] and "no layer is shown" in texts[1])


def verdict_of(rng: np.random.Generator, shape: str, n: int) -> str:
    """The sentence of probes whose predictions follow a curve."""
    e = said(rng, CURVES[shape], n)
    return sentences(rows_of(e, int(rng.integers(1 << 30))), [e])[0]


def clearly(rng: np.random.Generator, *, n: int) -> bool:
    """Whether a layer is called clearly above all others, where all are as good."""
    return "clearly above all others" in verdict_of(rng, "flat", n)


def register() -> None:
    """Every case under its name."""
    for metric, share in (("accuracy", 0.5), ("accuracy", 0.2), ("matthews", 0.3)):
        for n in (80, 300):
            run = partial(named, n=n, share=share, metric=metric)
            case(f"verdict/a layer of noise is named, {metric}, classes {share:.0%}, n {n}", "false positives")(run)
    case("verdict/flat curve, a layer is clearly best, n 300", "false positives")(partial(clearly, n=300))


register()
