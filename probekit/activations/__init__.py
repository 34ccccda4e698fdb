"""Hidden states in HDF5: create, read and check activation caches."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probekit.activations.cache import ActivationCache, Ragged, Words
    from probekit.activations.inspection import Verdict, inspect, verify
    from probekit.activations.options import CacheOptions
    from probekit.activations.pooling import Pooling, TokenLevel
    from probekit.activations.writing.job import cache_activations

__all__ = [
    "ActivationCache",
    "CacheOptions",
    "Pooling",
    "Ragged",
    "TokenLevel",
    "Verdict",
    "Words",
    "cache_activations",
    "inspect",
    "verify",
]

_HOME = {
    **dict.fromkeys(("ActivationCache", "Ragged", "Words"), "cache"),
    **dict.fromkeys(("Verdict", "inspect", "verify"), "inspection"),
    **dict.fromkeys(("Pooling", "TokenLevel"), "pooling"),
    "CacheOptions": "options",
    "cache_activations": "writing.job",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the options need neither h5py nor numpy."""
    if name in _HOME:
        return getattr(import_module(f"probekit.activations.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
