"""ELMo (Peters et al. 2018): characters, then bidirectional LSTM language models, one per layer.

The network of bilm-tf and AllenNLP 0.9 as a transformers model, saved, loaded and trained like any other;
:mod:`probekit.models.elmo.files` reads its published weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from probekit.models.elmo.characters import BEGIN, END, PADDING
from probekit.models.elmo.lstm import ProjectedLSTM, Steps

ElmoState = tuple[Tensor, Tensor]
"""State of the LSTMs: h (layers, sequences, 2 · projection), c (layers, sequences, 2 · cells); forward first."""

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class ElmoConfig(PretrainedConfig):
    """Sizes and switches, named as in the published ``options.json`` where possible; defaults are the largest model's.

    Attributes
    ----------
    filters : Sequence[Sequence[int]], optional
        Width and number of the character filters.
    projection_dim, cells : int
        Sizes of each direction of each LSTM.
    cell_clip, proj_clip : float | None, default 3.0
        See :class:`~probekit.models.elmo.lstm.ProjectedLSTM`.
    use_skip_connections : bool, default True
        Whether to add its input to the output of each LSTM except the first.
    """

    model_type = "elmo"

    def __init__(
        self,
        char_dim: int = 16,
        filters: Sequence[Sequence[int]] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
        n_highway: int = 2,
        n_characters: int = 262,
        activation: str = "relu",
        projection_dim: int = 512,
        cells: int = 4096,
        num_hidden_layers: int = 2,
        cell_clip: float | None = 3.0,
        proj_clip: float | None = 3.0,
        use_skip_connections: bool = True,
        **kwargs: Any,
    ) -> None:
        self.char_dim, self.n_highway, self.n_characters, self.activation = (
            char_dim,
            n_highway,
            n_characters,
            activation,
        )
        self.filters = [list(f) for f in filters]
        self.projection_dim, self.cells, self.num_hidden_layers = projection_dim, cells, num_hidden_layers
        self.hidden_size = 2 * projection_dim
        self.cell_clip, self.proj_clip, self.use_skip_connections = cell_clip, proj_clip, use_skip_connections
        super().__init__(**{**kwargs, "tie_word_embeddings": False})


class CharacterEncoder(nn.Module):
    """A vector for each word from its characters: convolutions, their maxima, highways, a projection.

    The filters are linear layers on windows of their width; the maximum is taken before the activation, as in both
    originals.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        total = sum(n for _, n in config.filters)
        self.widths = [width for width, _ in config.filters]
        self.activation = ACTIVATIONS[config.activation]
        self.characters = nn.Embedding(config.n_characters, config.char_dim)
        self.filters = nn.ModuleDict(
            {str(i): nn.Linear(width * config.char_dim, n) for i, (width, n) in enumerate(config.filters)}
        )
        self.highways = nn.Sequential(*(Highway(total) for _ in range(config.n_highway)))
        self.projection = nn.Linear(total, config.projection_dim)

    def forward(self, characters: Tensor) -> Tensor:
        """Vectors (n, projection) of the words' characters (n, 50), from :func:`character_ids`."""
        longest = int((characters != PADDING).sum(1).max()) if len(characters) else 0
        embedded, size = self.characters(characters.long()), self.characters.embedding_dim
        found = []
        for width, linear in zip(self.widths, self.filters.values(), strict=True):
            seen = embedded[:, : longest + width]  # later windows contain only padding and are all alike
            windows = seen.flatten(1).unfold(1, width * size, size)
            found.append(linear(windows).amax(1))
        return self.projection(self.highways(self.activation(torch.cat(found, -1))))


class Highway(nn.Module):
    """g · relu(W x) + (1 - g) · x with g = sigmoid(V x) (Srivastava et al. 2015); W and V in one linear layer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, 2 * size)

    def forward(self, x: Tensor) -> Tensor:
        new, gate = self.linear(x).chunk(2, -1)
        gate = gate.sigmoid()
        return gate * new.relu() + (1 - gate) * x


class BiLSTM(nn.Module):
    """One layer of both language models; each reads one half of the layer below."""

    def __init__(self, config: ElmoConfig, *, skip: bool) -> None:
        super().__init__()
        size, self.skip = config.projection_dim, skip
        clips = {"cell_clip": config.cell_clip, "proj_clip": config.proj_clip}
        self.forward_lstm = ProjectedLSTM(size, size, config.cells, **clips)
        self.backward_lstm = ProjectedLSTM(size, size, config.cells, **clips)

    def forward(self, hidden: Tensor, steps: Steps, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The layer (t, 2 d) above ``hidden`` (t, 2 d), and its final states h, c; c (s, 2 cells)."""
        ways = []
        lstms, rows = (self.forward_lstm, self.backward_lstm), (steps.forward, steps.backward)
        halves = (x.chunk(2, -1) for x in (hidden, h[steps.order], c[steps.order]))
        for lstm, at, x, *state in zip(lstms, rows, *halves, strict=True):
            out, *state = lstm(x[at], steps.sizes, *state)
            back = torch.empty_like(at)
            back[at] = torch.arange(len(at), device=at.device)
            ways.append((out[back], *(after[steps.order.argsort()] for after in state)))
        above, h, c = (torch.cat(pair, -1) for pair in zip(*ways, strict=True))
        return (above + hidden if self.skip else above), h, c


class ElmoModel(PreTrainedModel):
    """The network. Layer 0 is each word's vector twice, layer l the output of LSTM l in both directions."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        skips = [config.use_skip_connections and i > 0 for i in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList([BiLSTM(config, skip=skip) for skip in skips])
        self.embeddings = CharacterEncoder(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        characters: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **_: Any,
    ) -> BaseModelOutput:
        """Hidden states of padded sentences, (b, t, 2 d), 0 at padding; each sentence begins with an empty state.

        Parameters
        ----------
        input_ids : Tensor
            int64 (b, t), indices of words in ``characters``, int (v, 50); or, without ``characters``, the characters of
            each word, (b, t, 50), 0 at padding.
        attention_mask : Tensor, optional
            (b, t), 0 at padding, which is on the right.
        """
        if characters is None:
            mask = (input_ids > 0).any(-1)
            characters, ids = input_ids[mask], torch.arange(int(mask.sum()), device=input_ids.device)
        else:
            mask = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
            ids = input_ids[mask]
        length = mask.sum(1).cpu().numpy()
        layers, inner, _left = self.run(self.words(characters), ids, length)
        empty = layers[0].new_zeros(*mask.shape, layers[0].shape[-1])
        padded = tuple(empty.index_put((mask,), layer[inner]) for layer in layers)
        return BaseModelOutput(last_hidden_state=padded[-1], hidden_states=padded if output_hidden_states else None)

    def words(self, characters: Tensor) -> Tensor:
        """Vectors of the two sentence markers and of v words: (2 + v, d); characters int (v, 50)."""
        ends = torch.from_numpy(np.stack([BEGIN, END])).to(characters)
        return self.embeddings(torch.cat([ends, characters]))

    def run(
        self,
        words: Tensor,
        ids: Tensor,
        length: np.ndarray,
        state: ElmoState | None = None,
        change: Callable[[int, Tensor, Tensor], Tensor] = lambda layer, hidden, inner: hidden,
    ) -> tuple[list[Tensor], Tensor, ElmoState]:
        """Every layer (t + 2 s, 2 d) of s sentences with their markers; the rows of words (t,); the state.

        Parameters
        ----------
        words : Tensor
            From :meth:`words`.
        ids : Tensor
            int64 (t,), indices of the words of all sentences, concatenated.
        length : np.ndarray
            int64 (s,), words of each sentence, which may be 0.
        state : ElmoState, optional
            State after the sentences before; None for an empty state. If it has more sentences than this batch, the
            first ones are used and replaced; if fewer, the others begin empty (AllenNLP 0.9, encoder_base.py).
        change : Callable[[int, Tensor, Tensor], Tensor], optional
            Called with the index of each layer, its hidden states, and the rows of words; returns the hidden states to
            use.
        """
        s, longer = len(length), length + 2
        start = np.cumsum(longer) - longer
        inner = torch.from_numpy(np.arange(int(length.sum())) + np.repeat(2 * np.arange(s) + 1, length)).to(ids.device)
        numbers = ids.new_empty(int(longer.sum()))
        numbers[torch.from_numpy(start).to(ids.device)] = 0
        numbers[torch.from_numpy(start + longer - 1).to(ids.device)] = 1
        numbers[inner] = ids + 2
        steps = Steps.of(longer, ids.device)
        state = self.no_state(s, words) if state is None else state
        if (lacking := s - state[0].shape[1]) > 0:
            more = self.no_state(lacking, words)
            state = torch.cat([state[0], more[0]], 1), torch.cat([state[1], more[1]], 1)
        hidden = change(0, words[numbers].repeat(1, 2), inner)
        layers, after = [hidden], []
        for i, (layer, h, c) in enumerate(zip(self.layers, *(x[:, :s] for x in state), strict=True), 1):
            above, *left = layer(hidden, steps, h, c)
            hidden = change(i, above, inner)
            layers.append(hidden)
            after.append(left)
        new_states = (torch.stack(parts) for parts in zip(*after, strict=True))
        h, c = (torch.cat([new, old[:, s:]], 1) for new, old in zip(new_states, state, strict=True))
        return layers, inner, (h, c)

    def no_state(self, sentences: int, like: Tensor) -> ElmoState:
        """The initial state: zeros."""
        depth, config = len(self.layers), self.config
        return (
            like.new_zeros(depth, sentences, 2 * config.projection_dim),
            like.new_zeros(depth, sentences, 2 * config.cells),
        )

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise as bilm-tf does (training.py); a parameter's name determines its distribution."""
        config, name = self.config, next((n for n, m in self.named_modules() if m is module), "")
        if isinstance(module, nn.Embedding):
            nn.init.uniform_(module.weight, -1.0, 1.0)
        if not isinstance(module, nn.Linear):
            return
        if module.bias is not None:
            nn.init.zeros_(module.bias)
        spread = module.in_features**-0.5
        if name.startswith(
            "layers."
        ):  # TensorFlow's cells: Glorot uniform, with input and recurrent weights as one matrix
            reads = 2 * config.projection_dim if "projection" not in name else module.in_features
            bound = (6 / (reads + module.out_features)) ** 0.5
            nn.init.uniform_(module.weight, -bound, bound)
            if name.endswith("input"):
                module.bias[config.cells : 2 * config.cells] = 1.0  # the forget gate's
        elif ".filters." in name and config.activation == "relu":
            nn.init.uniform_(module.weight, -0.05, 0.05)
        else:
            nn.init.normal_(module.weight, 0.0, spread)
            if ".highways." in name:
                module.bias[module.out_features // 2 :] = -2.0  # at first, words pass unchanged


AutoConfig.register(ElmoConfig.model_type, ElmoConfig)
AutoModel.register(ElmoConfig, ElmoModel)
