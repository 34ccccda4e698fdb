"""Cached layers as training data for feature extraction, without running the encoder again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from probekit.activations import ActivationCache
from probekit.activations.grouping import cached_groups
from probekit.activations.tokens import TokenReader
from probekit.adaptation.data.batches import label_tensor, padded, word_tensors
from probekit.errors import UsageError

__all__ = ["PooledData", "TokenData"]


class _Cached:
    """Some rows of a cache."""

    cache: ActivationCache
    rows: np.ndarray

    @cached_property
    def groups(self) -> np.ndarray | None:
        """The group of each example, (n,)."""
        of = cached_groups(self.cache).of
        return None if of is None else of[self.rows]


class TokenData(_Cached):
    """The examples of a token cache (see :class:`probekit.adaptation.data.batches.Data`), read on demand.

    Batches hold ``hidden`` (layers, pieces, d), the sequences one after another without padding, and their ``length``.
    """

    def __init__(
        self, cache: ActivationCache, layers: Sequence[int | str] | None = None, rows: np.ndarray | None = None
    ) -> None:
        self.cache, self.reader = cache, TokenReader(cache, layers)
        self.layers = self.reader.layers
        n = len(cache)
        self.rows = np.arange(n) if rows is None else rows
        self.start, self.lengths = (x.reshape(n, -1)[self.rows] for x in (self.reader.start, self.reader.length))
        self.length = self.lengths.sum(1)
        if not self.lengths.all():
            empty = cache.ids[self.rows[int(np.argmin(self.lengths.min(1)))]]
            raise UsageError(
                f"{cache.path}: example {empty!r} has no pieces after tokenization; remove it from the data."
            )
        self.order = np.argsort(self.start[:, 0], kind="stable")
        self.nbytes = float(self.length.mean()) * self.reader.row_bytes
        self.ids = cache.ids[self.rows]
        self.unread, self.truncated = 0, int(cache.truncated[self.rows].sum())
        self.words: list[tuple[np.ndarray, np.ndarray]] | None = None
        if cache.spec["kind"] == "sequence-labelling":
            self._find_words()
        else:
            self.labels = cache.labels[self.rows]

    def _find_words(self) -> None:
        sentence, labels = self.cache.word_sentence, self.cache.word_labels
        at = self.cache.word_rows - self.reader.start.reshape(len(self.cache), -1)[sentence, 0]
        cuts = np.searchsorted(sentence, np.arange(1, len(self.cache)))
        words = list(zip(np.split(at, cuts), np.split(labels, cuts), strict=True))
        self.words = [words[i] for i in self.rows]
        self.labels = np.concatenate([of_words for _, of_words in self.words])
        self.unread = int(self.cache.index("word_count")[self.rows].sum()) - len(self.labels)

    def __len__(self) -> int:
        return len(self.length)

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        at = np.asarray(rows)
        first, *second = (self._inputs(self.start[at, s], self.lengths[at, s]) for s in range(self.start.shape[1]))
        if self.words is None:
            labels = label_tensor(self.labels[at])
        else:
            first["words"], labels = word_tensors(*zip(*(self.words[i] for i in rows), strict=True))
        return {"labels": labels, "first": first, **({"second": second[0]} if second else {})}

    def _inputs(self, start: np.ndarray, length: np.ndarray) -> dict[str, torch.Tensor]:
        rows = np.arange(int(length.sum())) + np.repeat(start - (np.cumsum(length) - length), length)
        return {
            "hidden": torch.from_numpy(self.reader.gather(start, length)),
            "length": torch.from_numpy(length),
            "special": padded(self.reader.special[rows], length, fill=False),
        }


class PooledData(_Cached):
    """The examples of a cache as one pooled vector per layer, treated as sequences of one piece.

    This suffices for a linear layer on a pooled vector: the mean (first, last) of a mix is the mix of the means.
    """

    def __init__(
        self,
        cache: ActivationCache,
        pooling: str,
        layers: Sequence[int | str] | None = None,
        rows: np.ndarray | None = None,
    ) -> None:
        self.cache = cache
        self.rows = np.arange(len(cache)) if rows is None else rows
        self.layers = tuple(cache.layer_name(x) for x in (cache.layers if layers is None else layers))
        self.sources = [cache.mapped_layer(layer, pooling) for layer in self.layers]
        n = len(self.rows)
        self.sentences = int(cache.spec["sentences"])
        self.length, self.order = np.full(n, self.sentences, dtype=np.int64), np.arange(n)
        self.nbytes = float(len(self.layers) * self.sources[0].shape[1] * self.sources[0].dtype.itemsize)
        self.ids, self.labels = cache.ids[self.rows], cache.labels[self.rows]
        self.unread, self.truncated = 0, int(cache.truncated[self.rows].sum())
        self.words: list[tuple[np.ndarray, np.ndarray]] | None = None

    def __len__(self) -> int:
        return len(self.length)

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        at = np.asarray(rows)
        self.cache.check_size()
        hidden = torch.from_numpy(np.stack([source[self.rows[at]] for source in self.sources]))
        first, *second = (
            {
                "hidden": part.contiguous(),
                "length": torch.ones(len(at), dtype=torch.int64),
                "special": torch.zeros(len(at), 1, dtype=torch.bool),
            }
            for part in hidden.chunk(self.sentences, dim=-1)
        )
        return {"labels": label_tensor(self.labels[at]), "first": first, **({"second": second[0]} if second else {})}
