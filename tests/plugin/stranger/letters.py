"""An encoder that reads letters: layer 0 is a letter's vector, layer 1 the mean of it and the one before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from probekit.errors import UsageError
from probekit.models.encoder import Batch, Edit, Shown, Sink, Text, Tokens, edited
from probekit.models.find import resolve_model
from probekit.models.identity import identify
from probekit.models.kinds import Kind
from probekit.models.options import LoadOptions
from probekit.sites import residual_stream

KIND = Kind(load="stranger.letters:load", reader="stranger.letters:reader")


class Reader:
    """Letters by their code point, up to ``max_length``."""

    type_ids, padding_id = False, 0

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """The letters of each text."""
        if not all(isinstance(text, str) for text in texts):
            raise UsageError("letters reads plain texts.")
        cut = [str(text)[: self.max_length] for text in texts]
        ids = np.array([ord(c) % 128 for text in cut for c in text], dtype=np.int32)
        length = np.array([len(text) for text in cut], dtype=np.int64)
        at = np.concatenate([np.arange(n) for n in length]).astype(np.int32) if len(cut) else ids
        word = [text[:i].count(" ") for text in cut for i in range(len(text))]
        truncated = np.array([len(str(text)) > self.max_length for text in texts])
        return Tokens(
            ids, length, np.zeros(len(ids), bool), np.zeros(len(ids), np.uint8), np.array(word, np.int32), at, at + 1,
            truncated,
        )  # fmt: skip


class Letters(Shown):
    """The encoder: text in, two layers out."""

    mixed_lengths, batch_tokens = True, 1024

    def __init__(self, folder: Path, table: torch.Tensor, spec: dict[str, Any], max_length: int | None) -> None:
        self.tokenize, self.table = reader(folder, None, max_length), table
        self.max_length = self.tokenize.max_length
        self.sites = residual_stream(1)
        self.widths = (table.shape[1],) * len(self.sites)
        self.name = spec["model"]
        self.spec = spec | {"layers": [*map(str, self.sites)], "width": table.shape[1], "max_length": self.max_length}
        self.versions = {"torch": str(torch.__version__)}

    def encode(self, batch: Batch, sink: Sink, edit: Edit | None = None) -> None:
        """Both layers of a batch."""
        x = edited(edit, self.sites[0], self.table[torch.from_numpy(batch.token_ids.astype(np.int64))])
        sink(0, x)
        first = np.r_[0, np.cumsum(batch.length)[:-1]]
        before = torch.cat([x[:1], x[:-1]])
        before[torch.from_numpy(first)] = x[torch.from_numpy(first)]
        sink(1, edited(edit, self.sites[1], (x + before) / 2))


def reader(folder: Path, config: Any, max_length: int | None = None) -> Reader:
    """The reader of a model folder."""
    return Reader(max_length or 512)


def load(model: str | Path, options: LoadOptions) -> Letters:
    """The encoder in a folder with ``letters.safetensors``."""
    folder = resolve_model(model, options.revision)
    spec = identify(model, revision=options.revision, random_weights=options.random_weights)
    spec |= {"model_type": "letters", "dtype": "float32", "device": "cpu", "cut_at": options.max_length}
    return Letters(folder, load_file(folder / "model.safetensors")["table"], spec, options.max_length)
