"""Cases of ``probekit transferability``: false positives of each score, for labels independent of the vectors."""

from __future__ import annotations

from functools import partial

import numpy as np
from calibration import case

from probekit.analyses.transferability import MEASURES
from probekit.probes.transferability import Vectors, class_counts
from probekit.similarity.chance import judged
from probekit.statistics.relabelling import shuffles

DRAWS = 99


def noise(rng, n, d, share, copies):
    """Vectors with a decaying spectrum and a mean, labels independent of them, and clusters of examples."""
    groups = np.repeat(np.arange(n // copies), copies)
    x = rng.normal(size=(n // copies, d))[groups] + 0.5 * rng.normal(size=(n, d))
    x = x / np.sqrt(np.arange(1, d + 1)) + 1
    own = (rng.random(n // copies) < share)[groups]
    flip = rng.random(n) < (0.1 if copies > 1 else 0)
    return x.astype(np.float32), np.where(flip, rng.random(n) < share, own).astype(int), groups


def false_positive(rng, measure, n, d, share, copies):
    x, y, groups = noise(rng, n, d, share, copies)
    return better(rng, x, y, groups if copies > 1 else None, measure) if 0 < y.sum() < n else None


def better(rng, x, y, groups, measure):
    """Whether the score of a layer is said to be better than that of permuted labels."""
    seed = int(rng.integers(1 << 30))
    orders = shuffles(len(y), groups, draws=DRAWS, seed=seed)
    sets = np.concatenate([y[None], *(y[order] for order in orders)])
    sets = sets[(class_counts(sets, 2) > 0).all(1)]
    null = Vectors(x).scores(sets, 2, (measure,), eps=1e-4)[measure]
    return bool(judged(null[:, None, None]).p[0, 0] <= 0.05)


SETTINGS = {
    "n 200, 20 columns": (200, 20, 0.5, 1),
    "n 200, 20 columns, 5% positive": (200, 20, 0.05, 1),
    "n 200, 20 columns, clusters of 4": (200, 20, 0.5, 4),
    "n 60, 200 columns": (60, 200, 0.5, 1),
    "n 60, 200 columns, 10% positive": (60, 200, 0.1, 1),
}
for setting, (n, d, share, copies) in SETTINGS.items():
    for measure in MEASURES:
        run = partial(false_positive, measure=measure, n=n, d=d, share=share, copies=copies)
        case(f"transferability/{measure}, {setting}", "false positives", before="–", runs=400, nightly=2000)(run)
