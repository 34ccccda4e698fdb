"""Vectors of words without context: word2vec, GloVe and fastText."""

from probekit.models.kinds import Kind

__all__ = ["KIND"]

KIND = Kind(load="probekit.models.vectors.encoder:load_vectors", reader="probekit.models.vectors.words:word_reader")
"""Static vectors as an encoder with one layer."""
