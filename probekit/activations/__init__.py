"""Hidden states in HDF5: making, reading and checking activation caches."""

from probekit.activations.cache import ActivationCache, Ragged
from probekit.activations.integrity import Verdict, verify
from probekit.activations.job import cache_activations
from probekit.activations.pooling import Pooling, TokenLevel

__all__ = ["ActivationCache", "Pooling", "Ragged", "TokenLevel", "Verdict", "cache_activations", "verify"]
