"""Probes that read the pieces of texts, monitors and attention probes: how often is noise found better than noise?

Labels have nothing to do with the vectors. Texts are short, long or both, so that the largest of many scores and a
softmax over many pieces are met; classes are equal or very unequal; examples are alone or in clusters that share label
and most of their vectors. From vectors to p: penalties are chosen by cross-validation and probes fitted, pieces are
scored, and the p-value is that of the rows, which is that of the comparison with shuffled labels.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from calibration import case

from probekit.probes.protocol.diagnostic import evaluate_layers
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import Estimator, ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.probes.solvers.attention import Sequences

WIDTH = 12
LENGTHS = {"short texts": (2, 12), "long texts": (80, 160), "short and long texts": (1, 120)}
PENALTIES = {Estimator.MONITOR: (0.01, 1.0), Estimator.ATTENTION: (10.0, 30.0)}
Side = tuple[dict[str, Sequences], Labels]


def side(rng: np.random.Generator, n: int, pieces: tuple[int, int], positive: float, cluster: int) -> Side:
    """Texts of noise; those of a cluster share label, length and four fifths of the variance of each piece."""
    count = n // cluster
    of = np.repeat(np.arange(count), cluster)
    y = np.zeros(count, dtype=np.int64)
    y[: max(2, round(positive * count))] = 1
    length = rng.integers(pieces[0], pieces[1] + 1, size=count)
    start = np.cumsum(length) - length
    at = np.concatenate([np.arange(start[c], start[c] + length[c]) for c in of])
    shared = rng.normal(size=(int(length.sum()), WIDTH))
    text = rng.normal(size=(count, WIDTH)).repeat(length, 0)  # pieces of a text resemble each other
    values = (shared + text)[at]
    if cluster > 1:
        values = np.sqrt(0.8) * values + np.sqrt(0.2) * rng.normal(size=values.shape)
    every = length[of]
    x = Sequences(values.astype(np.float32), np.arange(len(values)), np.cumsum(every) - every, every)
    return {"1": x}, Labels(rng.permutation(y)[of], of if cluster > 1 else None)


def found_better(
    rng: np.random.Generator,
    *,
    estimator: Estimator,
    scores: str | None,
    metric: str,
    n: int,
    pieces: tuple[int, int],
    positive: float,
    cluster: int,
) -> bool:
    """Whether the layer is called better than noise."""
    (x, y), (x_dev, y_dev) = (side(rng, n, pieces, positive, cluster) for _ in range(2))
    seed = int(rng.integers(1 << 31))
    options = ProbeOptions(
        estimator=estimator, scores=scores, penalties=PENALTIES[estimator], folds=2, controls=0, resamples=0, threads=1,
        seed=seed,
    )  # fmt: skip
    question = Question("classification", (metric,), ("no", "yes"), {"task": "noise", "split": "dev", "model": "m"})
    found = evaluate_layers(x, y, x_dev, y_dev, question, options=options)
    rows = probe_rows(found, resamples=999, seed=seed)
    ours = rows[(rows["metric"] == metric) & (rows["target"] == "gold") & (rows["estimator"] != "majority")]
    return bool((ours["p_adjusted"] < 0.05).item())


SETTINGS = [
    *((name, 120, lengths, 0.5, 1, "accuracy") for name, lengths in LENGTHS.items()),
    ("short texts, 5% positive", 200, LENGTHS["short texts"], 0.05, 1, "matthews"),
    ("short texts, clusters of 4", 160, LENGTHS["short texts"], 0.5, 4, "accuracy"),
]
PROBES = {
    "monitor rolling:10": (Estimator.MONITOR, "rolling:10"),
    "monitor max": (Estimator.MONITOR, "max"),
    "attention": (Estimator.ATTENTION, None),
}
for probe, (estimator, scores) in PROBES.items():
    for setting, n, pieces, positive, cluster, metric in SETTINGS:
        run = partial(
            found_better, estimator=estimator, scores=scores, metric=metric, n=n, pieces=pieces, positive=positive,
            cluster=cluster,
        )  # fmt: skip
        case(f"sequences/{probe}, {setting}, n {n}", "false positives", runs=60 if scores is None else 200)(run)
