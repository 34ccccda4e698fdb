"""Labels of 2 of 60 and 9 of 600 examples, of which vectors know nothing, and vectors of very unequal length.

From features to what is said: the sentence on probes of every kind, differences from the best layer, code lengths,
information and transferability. The lengths of vectors are lognormal, in train and dev.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from calibration import case
from comparisons import found, noise_layers, probed
from information import estimate
from mdl import ABOUT, HOW
from transferability import better
from verdict import rows_of

from probekit.analyses.transferability import MEASURES
from probekit.analyses.verdict import sentences
from probekit.probes.codes.mdl import mdl_rows
from probekit.probes.codes.options import CodeOptions
from probekit.probes.protocol.labels import Labels
from probekit.probes.protocol.options import Estimator
from probekit.statistics.predictions import Predictions

SIZES = {"2 of 60": (60, 2), "9 of 600": (600, 9)}
TRAIN = 5
"""How many times as many examples, also of the label, train has as dev where dev has 60; it has as many as 600."""
PENALTIES = {
    Estimator.LOGISTIC: (1e-2, 0.1), Estimator.MASS_MEAN: (0.1, 0.5), Estimator.K_SPARSE: (2, 8),
    Estimator.MLP: (1e-2, 1.0),
}  # fmt: skip


def labels(rng: np.random.Generator, n: int, rare: int) -> np.ndarray:
    """So many of class 1 in random places."""
    return rng.permutation((np.arange(n) < rare).astype(np.int64))


def skewed(rng: np.random.Generator, n: int, d: int = 20, layers: int = 3) -> list[np.ndarray]:
    """Layers of noise whose vectors have lognormal lengths."""
    length = np.exp(0.7 * rng.normal(size=(n, 1)))
    return [length * x for x in noise_layers(rng, n, d, layers)]


def fitted(rng: np.random.Generator, n: int, rare: int, estimator: Estimator) -> Predictions:
    """Predictions of probes of three layers."""
    more = TRAIN if n < 100 else 1
    y, y_dev = labels(rng, more * n, more * rare), labels(rng, n, rare)
    how = {"estimator": estimator, "penalties": PENALTIES[estimator]}
    x, x_dev = skewed(rng, more * n), skewed(rng, n)
    return probed(rng, x, x_dev, y, y_dev, ("macro-f1", "accuracy"), controls=0, how=how)


def beats(rng: np.random.Generator, *, n: int, rare: int, estimator: Estimator) -> bool:
    """Whether the sentence says that a layer beats permuted labels."""
    e = fitted(rng, n, rare, estimator)
    return "no layer beats" not in sentences(rows_of(e, int(rng.integers(1 << 30))), [e])[0]


def differ(rng: np.random.Generator, *, n: int, rare: int) -> bool:
    """Whether a layer of noise is said to differ from the best one."""
    e = fitted(rng, n, rare, Estimator.LOGISTIC)
    return found(rng, e.take(e.fits["layer"].notna().to_numpy(dtype=bool)), against="best", metric="macro-f1")


def sent(rng: np.random.Generator, *, n: int, rare: int) -> bool:
    """Whether labels are said to be sent in less than the prior's code."""
    options = CodeOptions(orders=3, seed=int(rng.integers(1 << 30)), **HOW)
    rows = mdl_rows(
        {"0": skewed(rng, n)[0]}, Labels(labels(rng, n, rare), None), about=ABOUT, options=options, classes=2
    )
    its = rows[(rows["target"] == "gold") & (rows["portion"] == -1) & (rows["metric"] == "saved-bits")]
    return bool((its["p_adjusted"] <= 0.05).any())


def informed(rng: np.random.Generator, *, n: int, rare: int) -> bool | None:
    """Whether vectors are said to hold information about the label."""
    one = estimate(rng, skewed(rng, n)[0], labels(rng, n, rare))
    return None if np.isnan(one.p) else bool(one.p <= 0.05)


def transfers(rng: np.random.Generator, *, n: int, rare: int, measure: str) -> bool:
    """Whether the score of a layer is said to be better than that of permuted labels."""
    return better(rng, skewed(rng, n)[0].astype(np.float32), labels(rng, n, rare), None, measure)


for size, (n, rare) in SIZES.items():
    about = {"n": n, "rare": rare}
    for estimator in PENALTIES:
        name = f"rare labels/a layer of noise is named, {estimator}, {size}"
        case(name, "false positives", runs=100)(partial(beats, estimator=estimator, **about))
    for claim, run in (
        ("a layer of noise differs from the best", differ),
        ("noise saves bits, 3 orders", sent),
        ("information of noise", informed),
        *((f"{measure} of noise", partial(transfers, measure=measure)) for measure in MEASURES),
    ):
        case(f"rare labels/{claim}, {size}", "false positives", runs=100)(partial(run, **about))
