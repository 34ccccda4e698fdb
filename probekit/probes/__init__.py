"""Probes: arrays in, rows out."""

from probekit.probes.caches import probe
from probekit.probes.compare import compare
from probekit.probes.curve import curve_summary
from probekit.probes.diagnostic import evaluate_layers, layer_rows, pair_features
from probekit.probes.evaluated import Evaluated
from probekit.probes.logistic import LogisticPath
from probekit.probes.options import Labels, Options
from probekit.probes.ridge import RidgePath
from probekit.probes.selection import Estimator

__all__ = [
    "Estimator",
    "Evaluated",
    "Labels",
    "LogisticPath",
    "Options",
    "RidgePath",
    "compare",
    "curve_summary",
    "evaluate_layers",
    "layer_rows",
    "pair_features",
    "probe",
]
