"""Probes: arrays in, rows out."""

from probekit.probes.protocol.diagnostic import evaluate_layers, layer_rows, pair_features
from probekit.probes.protocol.options import Labels, Options
from probekit.probes.protocol.selection import Estimator
from probekit.probes.solvers.logistic import LogisticPath
from probekit.probes.solvers.ridge import RidgePath

__all__ = [
    "Estimator",
    "Labels",
    "LogisticPath",
    "Options",
    "RidgePath",
    "evaluate_layers",
    "layer_rows",
    "pair_features",
]
