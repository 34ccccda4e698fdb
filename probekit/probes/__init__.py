"""Probes: arrays in, rows out."""

from probekit.probes.caches import probe
from probekit.probes.diagnostic import Labels, Options, layer_rows, pair_features

__all__ = ["Labels", "Options", "layer_rows", "pair_features", "probe"]
