"""ELMo as an Encoder: reads the characters of each distinct word once, and runs sentences of mixed lengths."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from probekit.models.elmo.characters import BEGIN, END, PADDING, CharacterReader, character_ids, character_reader
from probekit.models.elmo.lstm import ProjectedLSTM
from probekit.models.elmo.model import ElmoModel, ElmoState
from probekit.models.encoder import Batch, Edit, Shown, Sink, Text, Tokens, edited, padded
from probekit.models.options import LoadOptions
from probekit.models.transformers.encoder import prepare_packed
from probekit.models.transformers.stock import load_described
from probekit.models.words import versions
from probekit.runtime import torch_threads
from probekit.sites import residual_stream


class WordTable:
    """A thread-safe cache of word vectors, indexed by the word's characters.

    Attributes
    ----------
    capacity : int, default 65536
        Maximum number of words; beyond it, the cache is cleared.
    """

    def __init__(self, model: ElmoModel, capacity: int = 65_536, chunk: int = 256) -> None:
        self.model, self.capacity, self.chunk = model, capacity, chunk
        self.known: dict[bytes, Tensor] = {}
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[type[WordTable], tuple[ElmoModel, int, int]]:
        return WordTable, (self.model, self.capacity, self.chunk)

    def clear(self) -> None:
        """Forget all words, after the weights have changed."""
        with self.lock:
            self.known.clear()

    def __call__(self, characters: np.ndarray) -> Tensor:
        """Vectors (n, d) of distinct words, by their characters int16 (n, 50)."""
        keys = [row.tobytes() for row in characters]
        with self.lock:
            found = {key: self.known[key] for key in keys if key in self.known}
        new = np.array([i for i, key in enumerate(keys) if key not in found], dtype=np.int64)
        new = new[np.argsort((characters[new] != PADDING).sum(1), kind="stable")]  # words of similar length together
        for start in range(0, len(new), self.chunk):
            some = new[start : start + self.chunk]
            read = torch.from_numpy(characters[some]).to(self.model.device)
            found |= zip((keys[i] for i in some), self.model.embeddings(read), strict=True)
        with self.lock:
            if len(self.known) + len(new) > self.capacity:
                self.known.clear()
            self.known |= {keys[i]: found[keys[i]] for i in new[: self.capacity]}
        return torch.stack([found[key] for key in keys])


class ElmoEncoder(Shown):
    """An Encoder (see :mod:`probekit.models.encoder`) around an :class:`~probekit.models.elmo.model.ElmoModel`.

    Its pieces are words; the markers of sentence ends are added before the LSTMs and removed after them.

    Attributes
    ----------
    stateful : int, default 0
        Sentences per batch, if the next batch begins with their states, row by row, as in the original; 0 begins each
        sentence with an empty state.
    """

    mixed_lengths = True

    def __init__(
        self, model: ElmoModel, tokenizer: CharacterReader, folder: Path, *, name: str, spec: dict[str, Any],
        batch_tokens: int, stateful: int = 0,
    ) -> None:  # fmt: skip
        self.model, self.tokenizer, self.folder = model, tokenizer, folder
        self.name, self.batch_tokens, self.stateful = name, batch_tokens, stateful
        self.max_length, width = tokenizer.max_length, int(model.config.hidden_size)
        self.sites = residual_stream(len(model.layers))
        self.widths = (width,) * len(self.sites)
        self.spec = spec | {"layers": [*map(str, self.sites)], "width": width, "max_length": self.max_length}
        self.versions: dict[str, Any] = {
            "torch": str(torch.__version__), "transformers": transformers.__version__, **versions(tokenizer.splitting)
        }  # fmt: skip
        self.table = WordTable(model)
        self.state: ElmoState | None = None

    def tokenize(self, texts: Sequence[Text]) -> Tokens:
        """Words of each text and their characters; raises UsageError if an item is not a text."""
        return self.tokenizer(texts)

    def encode(self, batch: Batch, sink: Sink, edit: Edit | None = None) -> None:
        """Run the model and call ``sink(i, hidden)`` for each layer, (t, 2 d), rows of words only.

        An edit also gets rows of words only; the sentence markers do not change.
        """
        layers, inner, left = self.read(batch, self.state, edit)
        if self.stateful:
            self.state = left
        for i, layer in enumerate(layers):
            sink(i, layer[inner])

    @torch.inference_mode()
    def read(
        self, batch: Batch, state: ElmoState | None, edit: Edit | None = None
    ) -> tuple[list[Tensor], Tensor, ElmoState]:
        """:meth:`ElmoModel.run <probekit.models.elmo.model.ElmoModel.run>` of a batch, starting from ``state``."""
        assert batch.characters is not None
        distinct, ids = np.unique(batch.token_ids, return_inverse=True)
        words = self.table(np.concatenate([BEGIN[None], END[None], batch.characters[distinct]]))
        numbers = torch.from_numpy(ids).to(words.device)
        if edit is None:
            return self.model.run(words, numbers, batch.length, state)

        def change(layer: int, hidden: Tensor, inner: Tensor) -> Tensor:
            return hidden.index_copy(0, inner, edited(edit, self.sites[layer], hidden[inner]))

        return self.model.run(words, numbers, batch.length, state, change)

    @torch.inference_mode()
    def own_hidden_states(self, batch: Batch, model: ElmoModel | None = None, longest: int = 0) -> Tensor:
        """The ``hidden_states`` of the forward method of ``model`` (default: this encoder's): (layers, t, 2 d).

        On the CPU; the batch is padded on the right to at least ``longest`` words.
        """
        assert batch.characters is not None
        model = model or self.model
        ids, mask = (torch.from_numpy(x).to(model.device) for x in padded(batch, longest))
        characters = torch.from_numpy(batch.characters).to(model.device)
        hidden_states = model(ids, mask, characters=characters, output_hidden_states=True).hidden_states
        return torch.stack([layer[mask].cpu() for layer in hidden_states])


@torch_threads(1)
def load_elmo(model: str | Path, options: LoadOptions) -> ElmoEncoder:
    """ELMo from a model folder or its published files; arguments and errors as in ``load_encoder``."""
    net, folder, spec = load_described(model, options)
    encoder = ElmoEncoder(
        net, character_reader(folder, max_length=options.max_length), folder, name=spec["model"],
        spec=spec | ({"stateful": options.stateful} if options.stateful else {}), stateful=options.stateful,
        batch_tokens=options.batch_tokens or (2048 if spec["device"] == "cpu" else 16384),
    )  # fmt: skip
    for cell in (module for module in net.modules() if isinstance(module, ProjectedLSTM)):
        cell.fused = spec["device"] == "cuda" and cell.cell_clip is None and cell.proj_clip is None
    prepare_packed(encoder, _check_batch(), onednn=options.onednn)
    return encoder


def _check_batch() -> Batch:
    """Three sentences of different lengths with a repeated word."""
    words, length = ["a", "bc", "déf", "ghij", "a" * 60, "a"], np.array([1, 2, 3])
    ids = np.array([0, 1, 0, 2, 3, 4], dtype=np.int32)
    return Batch(ids, np.zeros(6, np.uint8), length, character_ids(words[:5]))
