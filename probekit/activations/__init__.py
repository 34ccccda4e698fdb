"""Hidden states in HDF5: making, reading and checking activation caches."""

from probekit.activations.cache import ActivationCache, Ragged
from probekit.activations.job import cache_activations
from probekit.activations.pooling import Pooling, TokenLevel
from probekit.activations.verify import Verdict, verify

__all__ = ["ActivationCache", "Pooling", "Ragged", "TokenLevel", "Verdict", "cache_activations", "verify"]
