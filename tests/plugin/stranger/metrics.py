"""Metrics: one that rows of the analysis hold, and one that tasks can use."""

import numpy as np

from probekit.metrics import Metric

MEAN_NORM = Metric("mean-norm", "Mean length of vectors", (0.0, float("inf")), better="")
HITS = Metric(
    "hits", "Hits", (0.0, 1.0), needs="classes", function=lambda gold, guess: float(np.mean(np.equal(gold, guess)))
)
