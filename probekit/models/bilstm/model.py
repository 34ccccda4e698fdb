"""The sentence encoder of Bowman et al. (2018): a stacked BiLSTM with a skip connection from its input to its output.

A transformers model, saved, loaded and trained like any other. Sequences run without padding, step by step, the longest
first; each distinct word goes through the character CNN once, and while the CNN is frozen only in the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import xxhash
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from probekit.errors import ModelError
from probekit.models.bilstm.config import BiLSTMConfig, Directions, Input
from probekit.models.bilstm.lstm import LSTM, Turned, both_ways
from probekit.models.elmo.characters import BEGIN, END
from probekit.models.elmo.encoder import WordTable
from probekit.models.elmo.lstm import Steps
from probekit.models.elmo.model import ElmoConfig, ElmoModel
from probekit.models.folder import weight_files
from probekit.models.scalar_mix import ScalarMix
from probekit.sites import Site, residual_stream

OUTPUT = Site("output")
"""The output with the skip connection: [states of the top layer; input]."""

FROZEN = "elmo."
"""Prefix of the names of the frozen weights."""

Change = Callable[[Site, Tensor], Tensor]


def sites_of(config: BiLSTMConfig) -> tuple[Site, ...]:
    """The sites of a model, in order: ELMo's layers, the input (layer 0), the LSTMs, the output."""
    below = config.elmo["num_hidden_layers"] + 1 if config.input == Input.ELMO else 0
    elmo = (Site("elmo", layer) for layer in range(below))
    return (*elmo, *residual_stream(config.num_hidden_layers), *([OUTPUT] if config.skip else []))


def widths_of(config: BiLSTMConfig) -> tuple[int, ...]:
    """The width of each site."""
    sites, states = sites_of(config), 2 * config.cells
    below = len(sites) - config.num_hidden_layers - bool(config.skip)
    skip = (states + config.embedding_size,) if config.skip else ()
    return (*[config.embedding_size] * below, *[states] * config.num_hidden_layers, *skip)


class BiLSTMLayer(nn.Module):
    """One layer in both directions: (t, d) to (t, 2 cells), the forward states first."""

    def __init__(self, width: int, cells: int, *, separate: bool) -> None:
        super().__init__()
        self.separate = separate
        inputs = width // 2 if separate else width
        self.forward_lstm, self.backward_lstm = LSTM(inputs, cells), LSTM(inputs, cells)

    def forward(self, hidden: Tensor, sizes: tuple[int, ...], turn: Tensor) -> Tensor:
        """States of rows in the order of steps; ``turn`` (t,) is the row to read from the right at each position."""
        ahead, back = hidden.chunk(2, -1) if self.separate else (hidden, hidden)
        rows = ahead, Turned.apply(back, turn)
        ahead, back = both_ways((self.forward_lstm, self.backward_lstm), rows, sizes)
        return torch.cat([ahead, Turned.apply(back, turn)], -1)


class BiLSTMModel(PreTrainedModel):
    """The network. Layer 0 is the input, layer l the states of LSTM l, the output [layer L; layer 0].

    Weights begin as in torch: an LSTM's, with its biases, uniform in ±1/√cells (the forget gate has no special bias);
    embeddings Glorot uniform, as in AllenNLP.
    """

    config_class = BiLSTMConfig
    base_model_prefix = "bilstm"
    main_input_name = "input_ids"

    def __init__(self, config: BiLSTMConfig) -> None:
        super().__init__(config)
        separate = config.directions == Directions.SEPARATE
        widths = [config.embedding_size, *[2 * config.cells] * (config.num_hidden_layers - 1)]
        self.layers = nn.ModuleList(
            [BiLSTMLayer(width, config.cells, separate=separate and i > 0) for i, width in enumerate(widths)]
        )
        self.dropout = nn.Dropout(config.dropout)
        if config.reads_characters:
            self.elmo = ElmoModel(ElmoConfig(**config.elmo))
            self.table = WordTable(self.elmo)
            if config.input == Input.ELMO:
                self.mix = ScalarMix(len(self.elmo.layers) + 1)
        else:
            if not config.vocab_size:
                raise ModelError(f"config.json has no vocab_size, which the input {config.input!r} needs.")
            self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        self.post_init()
        self.requires_grad_(requires_grad=True)

    @property
    def frozen(self) -> bool:
        """Whether the input is computed by weights that never change."""
        return self.config.reads_characters and (self.config.frozen or self.config.input == Input.ELMO)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """As in torch, except that frozen weights stay frozen."""
        super().requires_grad_(requires_grad)
        if self.frozen:
            self.elmo.requires_grad_(requires_grad=False)
        return self

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        characters: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **_: Any,
    ) -> BaseModelOutput:
        """Hidden states of padded sequences, (b, t, width), 0 at padding.

        Parameters
        ----------
        input_ids : Tensor
            int64 (b, t), rows of the vocabulary, or indices of words in ``characters``.
        attention_mask : Tensor, optional
            (b, t), 0 at padding, which is on the right.
        characters : Tensor, optional
            int (v, 50), the characters of the distinct words; required for the inputs "characters" and "elmo".
        """
        mask = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
        length = mask.sum(1).cpu().numpy()
        states, steps = self.run(input_ids[mask], length, characters)
        cells = mask.flatten().nonzero()[:, 0][steps.forward]

        def padded(hidden: Tensor) -> Tensor:
            empty = hidden.new_zeros(mask.numel(), hidden.shape[-1])
            return empty.index_copy(0, cells, hidden).unflatten(0, tuple(mask.shape))

        kept = {site: hidden for site, hidden in states.items() if site.name != "elmo"}
        *below, last = kept.values()
        last = padded(last)
        return BaseModelOutput(
            last_hidden_state=last, hidden_states=(*map(padded, below), last) if output_hidden_states else None
        )

    def run(
        self, ids: Tensor, length: np.ndarray, characters: Tensor | None = None, change: Change | None = None
    ) -> tuple[dict[Site, Tensor], Steps]:
        """Every site of concatenated sequences, (t, width) in the order of the steps, which are returned too.

        Row j of a site belongs to piece ``steps.forward[j]``.

        Parameters
        ----------
        ids : Tensor
            int64 (t,), as in :meth:`forward`.
        length : np.ndarray
            int64 (s,), pieces of each sequence.
        change : callable, optional
            Called with each site and its hidden states in the order of the pieces; returns the hidden states to use.
        """
        steps = Steps.of(length, ids.device)
        place = torch.empty_like(steps.forward)
        place[steps.forward] = torch.arange(len(place), device=place.device)

        def changed(site: Site, hidden: Tensor) -> Tensor:
            return hidden if change is None else change(site, hidden[place])[steps.forward]

        states: dict[Site, Tensor] = {}
        if self.config.input == Input.ELMO:
            *below, first = self._elmo(ids, length, characters, steps, change)
            states |= {Site("elmo", i): hidden for i, hidden in enumerate(below)}
        else:
            first = self._input(ids[steps.forward], characters)
        hidden = first = self.dropout(changed(Site(layer=0), first))
        states[Site(layer=0)] = first
        turn = place[steps.backward]
        for i, layer in enumerate(self.layers, 1):
            hidden = layer(hidden, steps.sizes, turn)
            hidden = changed(Site(layer=i), self.dropout(hidden) if i == len(self.layers) else hidden)
            states[Site(layer=i)] = hidden
        if self.config.skip:
            states[OUTPUT] = changed(OUTPUT, torch.cat([hidden, first], -1))
        return states, steps

    def _input(self, ids: Tensor, characters: Tensor | None) -> Tensor:
        """The vectors of pieces, (t, d)."""
        if not self.config.reads_characters:
            return self.embeddings(ids)
        if characters is None:
            raise ModelError("this model reads the characters of words; pass characters.")
        return self._words(characters).index_select(0, ids)

    def _words(self, characters: Tensor) -> Tensor:
        if not self.frozen:
            return self.elmo.embeddings(characters)
        with torch.no_grad():
            return self.table(characters.cpu().numpy())

    def _elmo(
        self, ids: Tensor, length: np.ndarray, characters: Tensor | None, steps: Steps, change: Change | None
    ) -> list[Tensor]:
        """The layers of ELMo in the order of the steps, and their mix."""
        if characters is None:
            raise ModelError("this model reads the characters of words; pass characters.")
        with torch.no_grad():
            ends = torch.from_numpy(np.stack([BEGIN, END])).to(characters)
            words = self._words(torch.cat([ends, characters]))

            def change_layer(layer: int, hidden: Tensor, inner: Tensor) -> Tensor:
                if change is None:
                    return hidden
                return hidden.index_copy(0, inner, change(Site("elmo", layer), hidden[inner]))

            found, inner, _ = self.elmo.run(words, ids, length, change=change_layer)
            layers = torch.stack([layer[inner][steps.forward] for layer in found])
        return [*layers, self.mix(layers)]

    def read_frozen(self, folder: Path) -> None:
        """Load the frozen weights of a model folder: random weights do not replace them.

        Raises
        ------
        ModelError
            If they differ from those of config.json.
        """
        if not self.frozen or self.config.frozen_digest is None:
            return
        from safetensors.torch import load_file

        stored: dict[str, Tensor] = {}
        for file in weight_files(folder):
            stored |= {name: tensor for name, tensor in load_file(file).items() if name.startswith(FROZEN)}
        if frozen_digest(stored) != self.config.frozen_digest:
            raise ModelError(f"{folder}: the frozen weights differ from the frozen_digest in config.json.")
        self.elmo.load_state_dict({name.removeprefix(FROZEN): tensor for name, tensor in stored.items()})

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        """Move or convert the model; word vectors are then computed again."""
        if "table" in self.__dict__:
            self.table.clear()
        return super()._apply(*args, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):  # all are an LSTM's, with four gates; ELMo initialises its own
            bound = (module.out_features // 4) ** -0.5
            nn.init.uniform_(module.weight, -bound, bound)
            nn.init.uniform_(module.bias, -bound, bound)
        elif isinstance(module, nn.Embedding):
            if self.config.embedding_std is None:
                nn.init.xavier_uniform_(module.weight)
            else:
                nn.init.normal_(module.weight, std=self.config.embedding_std)
        elif isinstance(module, ScalarMix):
            nn.init.zeros_(module.scalar_parameters)
            nn.init.ones_(module.gamma)


def frozen_digest(tensors: Mapping[str, Tensor]) -> str:
    """xxh3 digest (32 hex digits) of named weights."""
    digest = xxhash.xxh3_128()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


AutoModel.register(BiLSTMConfig, BiLSTMModel)
