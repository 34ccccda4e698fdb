"""Probes, from arrays to rows: models (``solvers``), probing procedure (``protocol``), code lengths (``codes``)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probekit.probes.protocol.baselines import Baselines
    from probekit.probes.protocol.diagnostic import evaluate_layers, layer_rows
    from probekit.probes.protocol.labels import Labels, Question
    from probekit.probes.protocol.options import Estimator, ProbeOptions
    from probekit.probes.solvers.logistic_path import LogisticPath
    from probekit.probes.solvers.ridge import RidgePath

__all__ = [
    "Baselines",
    "Estimator",
    "Labels",
    "LogisticPath",
    "ProbeOptions",
    "Question",
    "RidgePath",
    "evaluate_layers",
    "layer_rows",
]

_HOME = {
    "Baselines": "protocol.baselines",
    **dict.fromkeys(("evaluate_layers", "layer_rows"), "protocol.diagnostic"),
    **dict.fromkeys(("Labels", "Question"), "protocol.labels"),
    **dict.fromkeys(("Estimator", "ProbeOptions"), "protocol.options"),
    "LogisticPath": "solvers.logistic_path",
    "RidgePath": "solvers.ridge",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:  # imports torch only when a probe is fitted, not for the options of a command
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
