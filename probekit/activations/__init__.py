"""Hidden states in HDF5: making, reading and checking activation caches."""

from probekit.activations.cache import ActivationCache, Ragged
from probekit.activations.integrity import Verdict, verify
from probekit.activations.pooling import Pooling, TokenLevel
from probekit.activations.writing.job import cache_activations

__all__ = ["ActivationCache", "Pooling", "Ragged", "TokenLevel", "Verdict", "cache_activations", "verify"]
