"""The decoder of an encoder-decoder as a model of a text: encoder and decoder read the same one."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from probekit.errors import UsageError

__all__ = ["TextDecoder"]


class TextDecoder(nn.Module):
    """T5's or BART's decoder, given the text that it is to write.

    The encoder reads the text, and the decoder reads the same text, or another one, one piece later: its start piece,
    then all pieces but the last (teacher forcing). At position i, it has read the pieces before piece i, and predicts
    piece i. This is how BART reads a text to classify it (Lewis et al. 2020, section 3.1).

    Parameters
    ----------
    model : PreTrainedModel
        The encoder-decoder, without a head.

    Raises
    ------
    UsageError
        If it is no encoder-decoder, or its config.json names no start piece.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        config = model.config
        if not config.is_encoder_decoder or getattr(config, "decoder_start_token_id", None) is None:
            raise UsageError(
                f"{type(model).__name__} has no decoder beside an encoder, or config.json names no "
                "decoder_start_token_id; leave out --decoder."
            )
        self.decoder, self.encoder = model.get_decoder(), model.get_encoder()  # in this order: its blocks come first
        self.config = deepcopy(config)
        depth = getattr(config, "num_decoder_layers", None) or getattr(config, "decoder_layers", None)
        self.config.num_hidden_layers = depth
        self.start = int(config.decoder_start_token_id)
        self._can_record_outputs = getattr(self.decoder, "_can_record_outputs", None)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return next(self.parameters()).dtype

    def get_input_embeddings(self) -> nn.Module:
        """The embedding matrix of the decoder."""
        found: nn.Module = self.decoder.get_input_embeddings()
        return found

    def set_attn_implementation(self, name: str) -> None:
        """Choose the attention function of both parts."""
        self.decoder.set_attn_implementation(name)
        self.encoder.set_attn_implementation(name)
        self.config._attn_implementation = name

    def forward(self, input_ids: torch.Tensor, decoder_ids: torch.Tensor | None = None, **wanted: Any) -> Any:
        """The decoder's output for texts (b, t) of one length.

        Parameters
        ----------
        input_ids : torch.Tensor
            int64 (b, t), what the encoder reads.
        decoder_ids : torch.Tensor, optional
            int64 (b, u), what the decoder reads, one piece later; by default the same text.
        **wanted
            ``output_hidden_states``, ``output_attentions``.
        """
        read = self.encoder(input_ids=input_ids).last_hidden_state
        own = self.later(input_ids if decoder_ids is None else decoder_ids)
        return self.decoder(input_ids=own, encoder_hidden_states=read, use_cache=False, **wanted)

    def later(self, input_ids: torch.Tensor) -> torch.Tensor:
        """What the decoder reads of texts (b, t): the start piece, and all pieces but the last."""
        return torch.cat([input_ids.new_full((len(input_ids), 1), self.start), input_ids[:, :-1]], 1)
