"""Probes: arrays in, rows out. What is fitted stands in ``solvers``, how a layer is probed in ``protocol``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probekit.probes.protocol.diagnostic import evaluate_layers, layer_rows, pair_features
    from probekit.probes.protocol.labels import Labels
    from probekit.probes.protocol.options import Estimator, ProbeOptions
    from probekit.probes.solvers.logistic import LogisticPath
    from probekit.probes.solvers.ridge import RidgePath

__all__ = [
    "Estimator",
    "Labels",
    "LogisticPath",
    "ProbeOptions",
    "RidgePath",
    "evaluate_layers",
    "layer_rows",
    "pair_features",
]

_HOME = {
    **dict.fromkeys(("evaluate_layers", "layer_rows", "pair_features"), "protocol.diagnostic"),
    "Labels": "protocol.labels",
    **dict.fromkeys(("Estimator", "ProbeOptions"), "protocol.options"),
    "LogisticPath": "solvers.logistic",
    "RidgePath": "solvers.ridge",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:  # torch is imported when something is fitted, not for the options of a command
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
