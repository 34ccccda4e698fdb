"""Sparse dictionaries (sparse autoencoders): vectors as sums of few of many features."""

from probekit.dictionaries.dictionary import Dictionary
from probekit.dictionaries.features import Features, Reconstruction, encode, pooled
from probekit.dictionaries.folder import read_dictionary

__all__ = ["Dictionary", "Features", "Reconstruction", "encode", "pooled", "read_dictionary"]
