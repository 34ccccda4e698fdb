"""The BiLSTM as an Encoder: sequences of mixed lengths without padding, each distinct word through the CNN once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn import functional

from probekit.models.bilstm.model import BiLSTMModel, sites_of, widths_of
from probekit.models.bilstm.reader import bilstm_reader
from probekit.models.elmo.characters import character_ids
from probekit.models.encoder import Batch, Edit, Shown, Sink, Text, Tokens, edited, padded
from probekit.models.loading import TextReader
from probekit.models.options import LoadOptions
from probekit.models.transformers.encoder import prepare_packed
from probekit.models.transformers.stock import load_described
from probekit.models.words import versions
from probekit.runtime import torch_threads
from probekit.sites import Site


class BiLSTMEncoder(Shown):
    """An Encoder (see :mod:`probekit.models.encoder`) around a :class:`BiLSTMModel`.

    Layer 0 is the input, layer l the states of LSTM l, forward first. With a skip connection the site ``output``,
    [layer L; layer 0], is the last hidden state, which heads read. A model whose input is ELMo also has ELMo's layers,
    ``elmo.0`` … ``elmo.2``.
    """

    mixed_lengths = True

    def __init__(
        self, model: BiLSTMModel, tokenizer: TextReader, folder: Path, *, name: str, spec: dict[str, Any],
        batch_tokens: int,
    ) -> None:  # fmt: skip
        self.model, self.tokenizer, self.folder = model, tokenizer, folder
        self.name, self.batch_tokens, self.max_length = name, batch_tokens, tokenizer.max_length
        config = model.config
        self.sites = sites_of(config)
        self.widths: tuple[int, ...] = widths_of(config)
        width = int(config.hidden_size)
        self.spec = spec | {"layers": [*map(str, self.sites)], "width": width, "max_length": self.max_length}
        self.versions: dict[str, Any] = {
            "torch": str(torch.__version__), "transformers": transformers.__version__, **_reader_versions(tokenizer)
        }  # fmt: skip

    def tokenize(self, texts: Sequence[Text]) -> Tokens:
        """Pieces of each text, as this model reads them; raises UsageError if an item is not a text."""
        return self.tokenizer(texts)

    def encode(self, batch: Batch, sink: Sink, edit: Edit | None = None) -> None:
        """Run the model and call ``sink(i, hidden)`` for each site, (t, widths[i])."""
        with torch.inference_mode():
            ids, characters = self._inputs(batch)

            def change(site: Site, hidden: Tensor) -> Tensor:
                return edited(edit, site, hidden)

            states, steps = self.model.run(ids, batch.length, characters, None if edit is None else change)
            place = torch.empty_like(steps.forward)
            place[steps.forward] = torch.arange(len(place), device=place.device)
            for i, site in enumerate(self.sites):
                sink(i, states[site].index_select(0, place))

    @torch.inference_mode()
    def own_hidden_states(self, batch: Batch, model: BiLSTMModel | None = None, longest: int = 0) -> Tensor:
        """The sites from the forward method of ``model`` (default: this encoder's), padded with 0 to one width.

        On the CPU; ELMo's layers, which it does not return, are taken from a packed run.
        """
        model = model or self.model
        packed, characters = self._inputs(batch)
        mask = torch.from_numpy(padded(batch, longest)[1]).to(model.device)
        ids = packed.new_zeros(mask.shape).masked_scatter(mask, packed)
        if characters is not None:
            model.table.clear()
        found = model(ids, mask, characters=characters, output_hidden_states=True).hidden_states
        states, steps = model.run(packed, batch.length, characters)
        if characters is not None:  # oneDNN's vectors have other last bits
            model.table.clear()
        below = [hidden.new_empty(hidden.shape) for site, hidden in states.items() if site.name == "elmo"]
        for into, site in zip(below, self.sites, strict=False):
            into[steps.forward] = states[site]
        layers = [*below, *(hidden[mask] for hidden in found)]
        return torch.stack([functional.pad(x.cpu(), (0, max(self.widths) - x.shape[-1])) for x in layers])

    def _inputs(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The ids of a batch and the characters of its distinct words."""
        device, ids, characters = self.model.device, batch.token_ids.astype(np.int64), None
        if batch.characters is not None:
            distinct, ids = np.unique(ids, return_inverse=True)
            characters = torch.from_numpy(batch.characters[distinct]).to(device)
        return torch.from_numpy(ids).to(device), characters


def _reader_versions(tokenizer: Any) -> dict[str, str]:
    if hasattr(tokenizer, "splitting"):
        return versions(tokenizer.splitting)
    import tokenizers

    return {"tokenizers": tokenizers.__version__}


@torch_threads(1)
def load_bilstm(model: str | Path, options: LoadOptions) -> BiLSTMEncoder:
    """Load a model folder; arguments and errors are those of :func:`probekit.models.loading.load_encoder`."""
    net, folder, spec = load_described(model, options)
    encoder = BiLSTMEncoder(
        net, bilstm_reader(folder, net.config, options.max_length), folder, name=spec["model"], spec=spec,
        batch_tokens=options.batch_tokens or (1024 if spec["device"] == "cpu" else 16384),
    )  # fmt: skip
    prepare_packed(encoder, _check_batch(net.config), onednn=options.onednn)
    return encoder


def _check_batch(config: Any) -> Batch:
    """Three sequences of different lengths with a repeated piece."""
    types, length = np.zeros(6, np.uint8), np.array([1, 2, 3])
    if config.reads_characters:
        ids = np.array([0, 1, 0, 2, 3, 4], dtype=np.int32)
        return Batch(ids, types, length, character_ids(["a", "bc", "déf", "ghij", "a" * 60]))
    ids = np.random.default_rng(0).integers(config.vocab_size, size=6).astype(np.int32)
    return Batch(ids, types, length)
