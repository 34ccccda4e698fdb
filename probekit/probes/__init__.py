"""Probes: arrays in, rows out."""

from probekit.probes.caches import probe
from probekit.probes.diagnostic import Labels, Options, evaluate_layers, layer_rows, pair_features
from probekit.probes.evaluated import Evaluated
from probekit.probes.logistic import LogisticPath
from probekit.probes.ridge import RidgePath

__all__ = [
    "Evaluated",
    "Labels",
    "LogisticPath",
    "Options",
    "RidgePath",
    "evaluate_layers",
    "layer_rows",
    "pair_features",
    "probe",
]
