"""How often the words of a verdict claim what is not so, from features to sentences.

A layer is named although none knows anything, of the trained model or of random weights; a layer is called clearly the
best although all are as good; the true best one is not among those that are named as best or not clearly worse; a layer
is said to beat random weights that know as much.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from calibration import case
from comparisons import DRAWS, classes, noise_layers, probed
from curves import CURVES, said

from probekit.analyses.verdict import sentences
from probekit.probes.protocol.rows import probe_rows
from probekit.rows import make_rows
from probekit.rows.families import corrected_for, families
from probekit.statistics.predictions import Predictions, join


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


def beats_random(rng: np.random.Generator, *, n: int, metric: str, share: float) -> bool:
    """Whether a sentence says that a layer beats random weights, where both models know equally much."""
    tables, train = [], 15_000
    y, y_dev = classes(rng, train, share), classes(rng, n, share)
    for _ in range(2):
        x, x_dev = (
            [s * labels[:, None] * (np.arange(10) == 0) + rng.normal(size=(len(labels), 10)) for s in (0.6, 1.0, 1.2)]
            for labels in (y, y_dev)
        )
        tables.append(probed(rng, x, x_dev, y, y_dev, (metric, "accuracy"), controls=0))
    random = tables[1].fits.assign(checkpoint="random-0", random_weights=0)
    tables[1] = replace(tables[1], fits=random)
    seed = int(rng.integers(1 << 30))
    rows = make_rows(pd.concat([rows_of(table, seed) for table in tables], ignore_index=True))
    [text] = [text for text in sentences(rows, [join(*tables)]) if "with random weights (one" in text]
    return "no layer is shown" not in text


def claims(rng: np.random.Generator, *, n: int, share: float, metric: str, together: bool) -> bool:
    """Whether any sentence claims something, where layers, random weights and word pieces know nothing.

    Three families of p-values; ``together``: corrected for all of them, as in ``probekit report --family report``.
    """
    y, y_dev = classes(rng, n, share), classes(rng, n, share)
    tables = [
        probed(rng, *(noise_layers(rng, n, 20, 4) for _ in range(2)), y, y_dev, (metric, "accuracy"), controls=0)
        for _ in range(2)
    ]
    bag = (tables[0].fits["layer"] == 3).fillna(value=False)  # one more input, without a layer
    fits = tables[0].fits.copy()
    fits.loc[bag, ["site", "representation"]] = "", "bag-of-pieces"
    fits.loc[bag, "layer"] = pd.NA
    tables = [replace(tables[0], fits=fits), tables[1].take(np.flatnonzero(~bag.to_numpy(dtype=bool)))]
    tables[1] = replace(tables[1], fits=tables[1].fits.assign(checkpoint="random-0", random_weights=0))
    seed = int(rng.integers(1 << 30))
    rows = make_rows(pd.concat([rows_of(table, seed) for table in tables], ignore_index=True))
    count = families(rows)
    with corrected_for(count if together else 1):
        texts = sentences(rows, [join(*tables)])
    found = [text for text in texts if "no layer" not in text]
    if count < 3 or len(texts) < 4:
        raise ValueError(f"{count} families and {len(texts)} sentences: {texts}")
    return bool(found)


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
    for metric, share in (("accuracy", 0.5), ("matthews", 0.3)):
        run = partial(beats_random, n=300, metric=metric, share=share)
        case(f"verdict/a layer beats random weights, equal models, {metric}, n 300", "false positives", runs=100)(run)
    for together, name in ((False, "each corrected for itself"), (True, "corrected together")):
        for metric, share, n in (("accuracy", 0.5, 300), ("matthews", 0.3, 80)):
            run = partial(claims, n=n, share=share, metric=metric, together=together)
            nominal = 0.05 if together else 1 - 0.95**3
            about = f"three families, {name}, {metric}, n {n}"
            case(f"verdict/some sentence claims something, {about}", "false positives", nominal=nominal, runs=300)(run)
    case("verdict/flat curve, a layer is clearly best, n 300", "false positives")(partial(clearly, n=300))


register()
