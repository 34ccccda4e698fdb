"""Word vectors as an Encoder with one layer: each word's vector, whatever stands around it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from probekit.errors import ModelError
from probekit.files import read_json
from probekit.models.encoder import Batch, Edit, Shown, Sink, Text, Tokens, edited
from probekit.models.find import resolve_model
from probekit.models.identity import identify
from probekit.models.options import LoadOptions
from probekit.models.vectors.fasttext import bucket, ngrams
from probekit.models.vectors.files import mapped_table
from probekit.models.vectors.words import VectorReader, word_reader
from probekit.models.words import versions
from probekit.runtime import Dtype, resolve_device
from probekit.sites import residual_stream


class VectorEncoder(Shown):
    """An Encoder (see :mod:`probekit.models.encoder`) around a table of vectors, which stays on the disk.

    Attributes
    ----------
    table : np.ndarray
        float32 (rows, width), mapped; the rows of n-grams follow those of the words.
    subwords : dict
        "least", "most" and "buckets" of the n-grams; {} without.
    """

    mixed_lengths = True

    def __init__(
        self, table: np.ndarray, subwords: dict[str, int], tokenizer: VectorReader, folder: Path, *,
        spec: dict[str, Any], batch_tokens: int,
    ) -> None:  # fmt: skip
        self.table, self.subwords, self.tokenizer, self.folder = table, subwords, tokenizer, folder
        self.name, self.batch_tokens, self.max_length = spec["model"], batch_tokens, tokenizer.max_length
        self.device, self.sites = torch.device(spec["device"]), residual_stream(0)
        self.widths = (int(table.shape[1]),)
        self.spec = spec | {"layers": ["0"], "width": self.widths[0], "max_length": self.max_length}
        self.versions: dict[str, Any] = {"torch": str(torch.__version__), **versions(tokenizer.splitting)}
        self.known: dict[bytes, np.ndarray] = {}
        self.lock = threading.Lock()

    def tokenize(self, texts: Sequence[Text]) -> Tokens:
        """Words of each text; raises UsageError if an item is not a text."""
        return self.tokenizer(texts)

    def encode(self, batch: Batch, sink: Sink, edit: Edit | None = None) -> None:
        """Call ``sink(0, vectors)`` with the vector of each word, (t, width); zeros for unknown words."""
        distinct, place = np.unique(batch.token_ids, return_inverse=True)
        if batch.characters is None:
            vectors = self._rows(distinct)
        else:
            vectors = np.stack([self._spelled(batch.characters[i]) for i in distinct])
        rows = torch.from_numpy(vectors)[torch.from_numpy(place)]
        rows = rows.to(self.device, getattr(torch, self.spec["dtype"]))
        sink(0, edited(edit, self.sites[0], rows))

    def _rows(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of words, float32 (k, width)."""
        out = np.zeros((len(rows), self.widths[0]), np.float32)
        known = rows < self.tokenizer.count
        if (seed := self.spec["random_weights"]) is None:
            out[known] = self.table[rows[known]]
        else:
            for i in np.flatnonzero(known):
                out[i] = np.random.default_rng([seed, int(rows[i])]).standard_normal(self.widths[0])
        return out

    def _spelled(self, characters: np.ndarray) -> np.ndarray:
        """The vector of a word by its bytes: the mean of its own and those of its n-grams (Bojanowski et al. 2017)."""
        word = (characters[characters > 0] - 1).astype(np.uint8).tobytes()
        with self.lock:
            if (found := self.known.get(word)) is not None:
                return found
        rows = self._parts(word)
        if not rows:
            vector = np.zeros(self.widths[0], np.float32)
        elif (seed := self.spec["random_weights"]) is None:
            vector = self.table[np.array(rows)].mean(0, dtype=np.float32)
        else:
            drawn = [np.random.default_rng([seed, row]).standard_normal(self.widths[0]) for row in rows]
            vector = np.mean(drawn, 0).astype(np.float32)
        with self.lock:
            if len(self.known) > 1 << 16:
                self.known.clear()
            self.known[word] = vector
        return vector

    def _parts(self, word: bytes) -> list[int]:
        """The rows of a word and of its n-grams."""
        row, count, how = (
            self.tokenizer.rows.get(text := word.decode("utf-8", "ignore")),
            self.tokenizer.count,
            self.subwords,
        )
        own = [] if row is None else [row]
        if text == "</s>" and own:
            return own
        return own + [count + bucket(gram, how["buckets"]) for gram in ngrams(word, how["least"], how["most"])]


def load_vectors(model: str | Path, options: LoadOptions) -> VectorEncoder:
    """The encoder of a converted file of vectors; arguments and errors as in ``load_encoder``."""
    folder = resolve_model(model, options.revision)
    tokenizer = word_reader(folder, None, options.max_length)
    table, subwords = mapped_table(folder), dict(read_json(folder / "config.json").get("subwords") or {})
    if len(table) != tokenizer.count + int(subwords.get("buckets", 0)):
        raise ModelError(f"{folder} has {tokenizer.count} words, but {len(table)} vectors; convert the file again.")
    on = torch.device(resolve_device(options.device)).type
    spec = {
        **identify(model, revision=options.revision, random_weights=options.random_weights),
        "model_type": "vectors",
        "class": "VectorEncoder",
        "dtype": str(Dtype(options.dtype)),
        "device": on,
        "cut_at": options.max_length,
    }
    return VectorEncoder(table, subwords, tokenizer, folder, spec=spec, batch_tokens=options.batch_tokens or 4096)
