"""A decoder that writes: with transformers' key-value cache, one text at a time, its states read as it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from probekit.errors import ModelError, UsageError
from probekit.files import read_json
from probekit.models.encoder import Batch, Sink
from probekit.models.scoring.head import Head
from probekit.models.scoring.load import is_causal, load_language_model
from probekit.runtime import torch_threads

__all__ = ["Writer", "encode_written", "load_writer"]

Draw = Callable[[np.ndarray], int]
"""Chooses a piece: float32 (vocabulary) logits to its number."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A model that continues texts.

    Attributes
    ----------
    encoder : HuggingFaceEncoder
        Its layers, in groups of equal length (not packed).
    head : Head
        Its head; the layers in it are empty.
    ends : frozenset of int
        The pieces that end a text.
    """

    encoder: Any
    head: Head
    ends: frozenset[int]

    @torch_threads(1)
    def write(self, prompt: np.ndarray, most: int, draw: Draw) -> np.ndarray:
        """The pieces that follow a prompt, int32: at most ``most``, and no more than the model can read.

        Ends with the first piece that ends a text, if it comes. The last piece is never read by the model.

        Parameters
        ----------
        prompt : np.ndarray
            int32 (t,), t of 1 or more.
        """
        written: list[int] = []
        given, past = prompt, None
        while len(written) < most and len(prompt) + len(written) <= self.encoder.max_length:
            output = self.encoder.run(_inputs(self.encoder, given, past), lambda _i, _rows: None)
            past = output.past_key_values
            with torch.inference_mode():
                logits = self.head.predict(output.last_hidden_state[:, -1:])[0, -1]
            written.append(draw(logits.cpu().numpy()))
            if written[-1] in self.ends:
                break
            given = np.array(written[-1:])
        return np.array(written, dtype=np.int32)


def _inputs(encoder: Any, given: np.ndarray, past: Any) -> dict[str, Any]:
    ids = torch.from_numpy(given.astype(np.int64))[None].to(encoder.device)
    return {"input_ids": ids, "past_key_values": past, "use_cache": True}


def encode_written(encoder: Any, batch: Batch, sink: Sink) -> None:
    """The states of texts that the model wrote, computed as it wrote them: the prompt at once, then piece by piece.

    Parameters
    ----------
    encoder : HuggingFaceEncoder
        The encoder; not packed.
    batch : Batch
        With ``prompt``.
    sink : Sink
        As of ``encode``.
    """
    assert batch.prompt is not None
    rows: list[list[torch.Tensor]] = [[] for _ in encoder.sites]

    def keep(i: int, hidden: torch.Tensor) -> None:
        rows[i].append(hidden.clone())

    stop = np.cumsum(batch.length)
    for end, length, prompt in zip(stop, batch.length, batch.prompt, strict=True):
        ids, past = batch.token_ids[end - length : end], None
        for given in (ids[:prompt], *ids[prompt:, None]):
            past = encoder.run(_inputs(encoder, given, past), keep).past_key_values
    for i, parts in enumerate(rows):
        sink(i, torch.cat(parts))


def load_writer(model: str | Path, folder: Path, encoder: Any) -> Writer:
    """The writer of a model whose layers are loaded.

    Parameters
    ----------
    model : str or path
        Its name, for messages.
    folder : Path
        Its folder.
    encoder : HuggingFaceEncoder
        Its layers.

    Raises
    ------
    UsageError
        If it is not a causal language model with its head.
    ModelError
        If its weights lack the head.
    """
    purpose = "it cannot write"
    if encoder.mixed_lengths:
        raise UsageError(f"{encoder.name} is packed, so that {purpose}; load it with packing='grouped'.")
    if read_json(folder / "config.json").get("is_encoder_decoder"):
        raise UsageError(f"{model} is an encoder-decoder, of which probekit reads the encoder; {purpose}.")
    if not is_causal(folder, purpose):
        raise UsageError(f"{model} predicts masked pieces, not the next one, so {purpose}; choose a decoder.")
    if encoder.spec.get("random_weights") is not None:
        raise UsageError("--generate writes with the trained head of the model; leave out --random-weights.")
    net = load_language_model(folder, causal=True, random_weights=None)
    net = net.to(device=encoder.device, dtype=encoder.model.dtype)
    head = Head(net, causal=True)
    base = f"{net.base_model_prefix}."
    kept = {id(p) for name, p in net.named_parameters(remove_duplicate=False) if not name.startswith(base)}
    for parameter in net.base_model.parameters():
        if id(parameter) not in kept:
            parameter.data = parameter.data.new_empty(0)  # the encoder has them
    ends = net.generation_config.eos_token_id if net.generation_config is not None else None
    ends = net.config.eos_token_id if ends is None else ends
    if getattr(encoder.model, "prompt_tokens", 0):
        raise ModelError(f"{model} reads trained vectors before each text, with which probekit does not write.")
    return Writer(encoder, head, frozenset([ends] if isinstance(ends, int) else ends or ()))
