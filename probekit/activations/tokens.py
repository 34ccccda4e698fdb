"""Token vectors of a few examples at a time, from a cache that may be larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from probekit.activations.cache import ActivationCache
from probekit.activations.hdf5 import decode
from probekit.errors import UsageError


class TokenReader:
    """Reads the token vectors of some examples, all layers at once; nothing else is loaded into memory.

    Attributes
    ----------
    start, length : np.ndarray
        int64 (n,), or (n, 2) for pairs read separately: the rows of each example.
    special : np.ndarray
        Bool (t,), pieces that the tokenizer added; none if vectors are of words.
    cache : ActivationCache
        A cache with token vectors.
    layers : Sequence[int | str], optional
        Names or numbers of layers of the same width, in the order of the result; None for all.
    """

    def __init__(self, cache: ActivationCache, layers: Sequence[int | str] | None = None) -> None:
        if not cache.spec["tokens"]:
            raise UsageError(f"{cache.path} has no token vectors; create a cache with --tokens.")
        self.cache = cache
        self.layers = tuple(cache.layer_name(x) for x in (cache.layers if layers is None else layers))
        self._sources = [cache.rows(f"/tokens/{layer}") for layer in self.layers]
        self.start, self.length = cache.places(len(self._sources[0]))
        self.width = int(self._sources[0].shape[1])
        if other := next((k for k, source in enumerate(self._sources) if source.shape[1] != self.width), 0):
            raise UsageError(
                f"{cache.path}: {self.layers[0]} has width {self.width}, and {self.layers[other]} "
                f"{self._sources[other].shape[1]}; choose layers of one width."
            )
        self._encoded = cache.spec["store"] == "bfloat16"

    @cached_property
    def special(self) -> np.ndarray:
        return self.cache.special_rows()

    @property
    def row_bytes(self) -> int:
        """Bytes of one piece, all layers."""
        return len(self.layers) * self.width * self._sources[0].dtype.itemsize

    def gather(self, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Vectors of the token rows start[i] … start[i] + length[i], (layers, t, d), float32 or float16."""
        source = self._sources[0]
        out = np.empty((len(self.layers), int(length.sum()), self.width), source.dtype)
        stop = np.cumsum(length)
        spans = list(
            zip(start.tolist(), (start + length).tolist(), (stop - length).tolist(), stop.tolist(), strict=True)
        )
        for source, into in zip(self._sources, out, strict=True):
            for a, b, to, end in spans:
                source.read(a, b, into[to:end])
        return decode(out) if self._encoded else out
