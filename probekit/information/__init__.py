"""Mutual information between the vectors of a layer and labels, in bits: from arrays to numbers and rows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probekit.information.estimate import Information
    from probekit.information.estimators import mutual_information
    from probekit.information.options import InformationEstimator

__all__ = ["Information", "InformationEstimator", "mutual_information"]

_HOME = {"Information": "estimate", "InformationEstimator": "options", "mutual_information": "estimators"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the options need no numpy."""
    if name in _HOME:
        return getattr(import_module(f"probekit.information.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
