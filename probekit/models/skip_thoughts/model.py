"""Skip-thoughts (Kiros et al. 2015): a sentence as the last states of recurrent networks that read its words.

The network of ``skipthoughts.py`` from github.com/ryankiros/skip-thoughts as a transformers model, saved, loaded and
trained like any other; :mod:`probekit.models.skip_thoughts.files` reads its published weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from probekit.models.elmo.lstm import Steps
from probekit.models.transformers.onednn import Repeated


class SkipThoughtsConfig(PretrainedConfig):
    """Sizes and switches; the defaults are the published model's.

    Attributes
    ----------
    uni_word_size, bi_word_size : int, default 620
        Sizes of the word vectors.
    uni_size, bi_size : int
        Sizes of the states; for bi, of each direction.
    use_eos : bool, default False
        Whether an end-of-sentence word follows each sentence.
    normalise : bool, default True
        Whether vectors are scaled to length 1.
    """

    model_type = "skip-thoughts"

    def __init__(
        self,
        vocab_size: int = 930911,
        uni_word_size: int = 620,
        bi_word_size: int = 620,
        uni_size: int = 2400,
        bi_size: int = 1200,
        use_eos: bool = False,
        normalise: bool = True,
        **kwargs: Any,
    ) -> None:
        self.vocab_size, self.use_eos, self.normalise = vocab_size, use_eos, normalise
        self.uni_word_size, self.bi_word_size = uni_word_size, bi_word_size
        self.uni_size, self.bi_size = uni_size, bi_size
        self.hidden_size, self.num_hidden_layers = uni_size + 2 * bi_size, 1
        super().__init__(**{**kwargs, "tie_word_embeddings": False})


class GRU(nn.Module):
    """A gated recurrent unit: h' = u h + (1 - u) tanh(x + r (U h)), where x is the product of the input.

    The same formula as in the original and in torch.nn.GRU, whose numbers depend on the batch. In the paper (section
    2.1), r is multiplied before U, and u and 1 - u are swapped.

    input : (3 size, width) with the bias, gates r, u and the new state; recurrent : (3 size, size)
    """

    is_causal = True  # the last state has seen all words; fine-tuning uses it for the sentence

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.input = nn.Linear(width, 3 * size)
        self.recurrent = nn.Linear(size, 3 * size, bias=False)

    def forward(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """States (t, size) of the steps; x (t, width), ``sizes`` : see :class:`~probekit.models.elmo.lstm.Steps`."""
        h, states, n = x.new_zeros(sizes[0] if sizes else 0, self.size), [x.new_zeros(0, self.size)], self.size
        below = x.new_zeros(1, 1).expand(len(x), 3 * n)
        recurrent: Callable[[Tensor], Tensor] = self.recurrent
        if torch.is_grad_enabled() and self.recurrent.weight.requires_grad:
            recurrent = again = Repeated(self.recurrent)
            below = again.onto(below)
        for given, zero in zip(self.input(x).split(list(sizes)), below.split(list(sizes)), strict=True):
            h = h[: len(given)]
            carried = recurrent(h) + zero
            r, u = _sigmoid(given[:, : 2 * n] + carried[:, : 2 * n]).chunk(2, -1)
            h = u * h + (1 - u) * (given[:, 2 * n :] + r * carried[:, 2 * n :]).tanh()
            states.append(h)
        return torch.cat(states)


def _sigmoid(x: Tensor) -> Tensor:
    """By tanh, since torch.sigmoid rounds the last numbers of a thread's share differently, depending on the batch."""
    return 0.5 + 0.5 * (0.5 * x).tanh()


class Readers(nn.Module):
    """The uni-skip encoder, and both directions of the bi-skip encoder."""

    def __init__(self, config: SkipThoughtsConfig) -> None:
        super().__init__()
        self.normalise = config.normalise
        self.uni = GRU(config.uni_word_size, config.uni_size)
        self.ahead, self.back = (GRU(config.bi_word_size, config.bi_size) for _ in range(2))

    def forward(self, uni: Tensor, bi: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
        """States (t, uni_size) and (t, 2 bi_size) after each word, of word vectors (t, …).

        Row k of a sentence is the state after its first k words, or (backward) after its last k. So the last row is the
        state after the whole sentence in both directions.
        """
        place = torch.empty_like(steps.forward)
        place[steps.forward] = torch.arange(len(place), device=place.device)
        ways = (self.uni, uni, steps.forward), (self.ahead, bi, steps.forward), (self.back, bi, steps.backward)
        uni_states, *bi_states = (gru(words[rows], steps.sizes)[place] for gru, words, rows in ways)
        return self._scaled(uni_states), self._scaled(torch.cat(bi_states, -1))

    def _scaled(self, x: Tensor) -> Tensor:
        if not self.normalise:
            return x
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)


class SkipThoughtsModel(PreTrainedModel):
    """The network; the states after a sentence's last word are its vector (combine-skip, 4800 dimensions).

    Attributes
    ----------
    uni_words, bi_words : Tensor
        (vocab_size, …), the word vectors. They are not trained: most of the published ones come from a regression, and
        the gradients and moments of both tables (4.6 GB) would take 14 GB.
    """

    config_class = SkipThoughtsConfig
    base_model_prefix = "skip_thoughts"
    main_input_name = "input_ids"
    uni_words: Tensor
    bi_words: Tensor

    def __init__(self, config: SkipThoughtsConfig) -> None:
        super().__init__(config)
        self.blocks = nn.ModuleList([Readers(config)])
        self.register_buffer("uni_words", torch.empty(config.vocab_size, config.uni_word_size))
        self.register_buffer("bi_words", torch.empty(config.vocab_size, config.bi_word_size))
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> BaseModelOutput:
        """States after each word, (b, t, uni_size + 2 bi_size), 0 at padding.

        Parameters
        ----------
        input_ids : Tensor
            int64 (b, t), rows of the tables.
        attention_mask : Tensor, optional
            (b, t), 0 at padding.
        """
        mask = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
        states = torch.cat(self.run(input_ids[mask], mask.sum(1).cpu().numpy()), -1)
        padded = states.new_zeros(*mask.shape, states.shape[-1]).index_put((mask,), states)
        return BaseModelOutput(last_hidden_state=padded)

    def run(self, ids: Tensor, length: np.ndarray) -> tuple[Tensor, Tensor]:
        """States (t, uni_size) and (t, 2 bi_size) after each word; see :class:`Readers`.

        Parameters
        ----------
        ids : Tensor
            int64 (t,), the words of all sentences, concatenated.
        length : np.ndarray
            int64 (s,), number of words in each sentence.
        """
        found: tuple[Tensor, Tensor] = self.blocks[0](
            self.uni_words[ids], self.bi_words[ids], Steps.of(length, ids.device)
        )
        return found

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise like the original: word vectors and inputs uniform to 0.1, recurrence orthogonal, biases 0."""
        if isinstance(module, nn.Linear) and module.bias is not None:  # not called for modules without parameters
            nn.init.uniform_(module.weight, -0.1, 0.1)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            for gate in module.weight.chunk(3):
                nn.init.orthogonal_(gate)
        elif isinstance(module, SkipThoughtsModel):
            for table in (module.uni_words, module.bi_words):
                nn.init.uniform_(table, -0.1, 0.1)


AutoConfig.register(SkipThoughtsConfig.model_type, SkipThoughtsConfig)
AutoModel.register(SkipThoughtsConfig, SkipThoughtsModel)
