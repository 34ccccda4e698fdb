"""A decoder that writes: many texts in step, with transformers' key-value cache."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from probekit.errors import ModelError, UsageError
from probekit.files import read_json
from probekit.models.scoring.head import Head, changes_width
from probekit.models.scoring.load import is_causal, load_language_model
from probekit.models.transformers.encoder import TOLERANCE, relative_error
from probekit.models.transformers.onednn import PrepackedLinear
from probekit.models.transformers.packed import switches
from probekit.models.transformers.past import change
from probekit.models.transformers.stock import placed
from probekit.runtime import Dtype, torch_threads

log = logging.getLogger(__name__)

Draw = Callable[[np.ndarray, torch.Tensor], np.ndarray]
"""Chooses pieces: the numbers of the texts (b,) and float32 (b, vocabulary) logits to int64 (b,)."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A model that continues texts.

    Attributes
    ----------
    encoder : HuggingFaceEncoder
        Its layers.
    head : Head
        Its head; the layers in it are empty.
    ends : frozenset of int
        The pieces that end a text.
    attention : str
        The attention function that reads the key-value cache.
    pads : bool
        Whether prompts of different lengths are written together, padded on the left; otherwise only those of one
        length.
    """

    encoder: Any
    head: Head
    ends: frozenset[int]
    attention: str
    pads: bool = False

    @contextmanager
    def ready(self) -> Iterator[None]:
        """The encoder's layers attend through a key-value cache, and read no packed texts meanwhile."""
        model = self.encoder.model
        before = model.config._attn_implementation
        model.set_attn_implementation(self.attention)
        try:
            yield
        finally:
            model.set_attn_implementation(before)

    def write(self, prompts: Sequence[np.ndarray], most: int, draw: Draw) -> list[np.ndarray]:
        """The pieces that follow each prompt, int32: at most ``most``, and no more than the model can read.

        A text ends with the first piece that ends a text, if it comes, and leaves the batch. The model never reads the
        last piece of a text.

        Parameters
        ----------
        prompts : sequence of np.ndarray
            s prompts, int32 (t,), t of 1 or more.
        most : int
            The most pieces.
        draw : callable
            Chooses the next piece of each text.
        """
        length = np.array([len(prompt) for prompt in prompts])
        room = np.minimum(most, self.encoder.max_length - length + 1)
        mask = np.arange(length.max()) >= (length.max() - length)[:, None]
        ids = np.zeros(mask.shape, dtype=np.int64)
        ids[mask] = np.concatenate(prompts)
        written: list[list[int]] = [[] for _ in prompts]
        rows, past, step = np.arange(len(prompts)), None, 0
        while len(rows):
            last, past = self.read(ids, mask, past)
            if not step:
                self.change(past, room=int(room.max()))
            with torch.inference_mode():
                chosen = draw(rows, self.head.predict(last)[:, -1])
            step += 1
            for row, piece in zip(rows.tolist(), chosen.tolist(), strict=True):
                written[row].append(piece)
            on = (step < room[rows]) & ~np.isin(chosen, [*self.ends])
            if on.any() and not on.all():
                self.change(past, rows=np.flatnonzero(on).tolist())
            rows, ids = rows[on], chosen[on, None]
            mask = np.pad(mask[on], ((0, 0), (0, 1)), constant_values=True)
        return [np.array(pieces, dtype=np.int32) for pieces in written]

    def read(self, ids: np.ndarray, mask: np.ndarray, past: Any) -> tuple[torch.Tensor, Any]:
        """The last hidden state (b, 1, width) after further pieces ``ids`` int64 (b, t), and the key-value cache.

        ``mask`` bool (b, all pieces up to now) says which are no padding.
        """
        model, device = self.encoder.model, self.encoder.device
        inputs = {"input_ids": torch.from_numpy(ids).to(device), "past_key_values": past, "use_cache": True}
        if not mask.all():
            inputs["attention_mask"] = torch.from_numpy(mask.astype(np.int64)).to(device)
            if "position_ids" in inspect.signature(model.forward).parameters:
                places = np.maximum(mask.cumsum(1) - 1, 0)[:, -ids.shape[1] :]
                inputs["position_ids"] = torch.from_numpy(places).to(device)
        with torch.inference_mode():
            output = model(**inputs)
        if getattr(output, "past_key_values", None) is None:
            raise ModelError(f"{self.encoder.name} keeps no keys and values of what it has read, so it cannot write.")
        return output.last_hidden_state[:, -1:], output.past_key_values

    def change(self, past: Any, **how: Any) -> None:
        """:func:`change` the key-value cache, and those of the other processes that hold the model."""
        if (ranks := self.encoder.ranks) is not None and ranks.leads:
            ranks.tell("change", **how)
        change(past, self.encoder.device, **how)


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
    if read_json(folder / "config.json").get("is_encoder_decoder"):
        raise UsageError(f"{model} is an encoder-decoder, of which probekit reads the encoder; {purpose}.")
    if not is_causal(folder, purpose):
        raise UsageError(f"{model} predicts masked pieces, not the next one, so {purpose}; choose a decoder.")
    if encoder.spec.get("random_weights") is not None:
        raise UsageError("--generate writes with the trained head of the model; leave out --random-weights.")
    if getattr(encoder.model, "prompt_tokens", 0):
        raise ModelError(f"{model} reads trained vectors before each text, with which probekit does not write.")
    net = load_language_model(folder, causal=True, random_weights=None, head_only=True)
    net = placed(net, encoder.device, Dtype(encoder.spec["dtype"]))
    head = Head(net, causal=True)
    base = next(f"{name}." for name, part in net.named_modules() if part is head.base)
    kept = {id(p) for name, p in net.named_parameters(remove_duplicate=False) if not name.startswith(base)}
    kept |= {id(p) for part in head.after if changes_width(part) for p in part.parameters()}
    for parameter in head.base.parameters():
        if id(parameter) not in kept:
            parameter.data = parameter.data.new_empty(0)  # the encoder has them
    if "onednn" in encoder.spec["path"]:
        for name, child in [*net.named_children()]:
            if type(child) is nn.Linear:
                setattr(net, name, PrepackedLinear(child.weight, child.bias))
    ends = net.generation_config.eos_token_id if net.generation_config is not None else None
    ends = getattr(head.config, "eos_token_id", None) if ends is None else ends
    found = frozenset([ends] if isinstance(ends, int) else ends or ())
    writer = Writer(encoder, head, found, net.config._attn_implementation)
    _check_steps(writer)
    return replace(writer, pads=_pads(writer))


@torch_threads(1)
def _check_steps(writer: Writer) -> None:
    """Raise ModelError if a piece has another state after the keys and values of those before it than in the whole."""
    encoder = writer.encoder
    size = min(9, encoder.max_length)
    ids = np.random.default_rng(0).integers(encoder.model.config.vocab_size, size=(1, size))
    mask = np.ones((1, size), dtype=bool)
    with writer.ready():
        whole, _ = writer.read(ids, mask, None)
        past = writer.read(ids[:, :-1], mask[:, :-1], None)[1] if size > 1 else None
        step, _ = writer.read(ids[:, -1:], mask, past)
    if (error := relative_error(step, whole)) > TOLERANCE[Dtype(encoder.spec["dtype"])]:
        raise ModelError(
            f"{encoder.name} reads a piece after its stored keys and values otherwise than in the whole text (by "
            f"{error:.1e}), so what it writes would be wrong."
        )


@torch_threads(1)
def _pads(writer: Writer) -> bool:
    """Whether padding on the left leaves the states of two random prompts, and of a step after them, as they are."""
    encoder = writer.encoder
    name, config = encoder.name, encoder.model.config
    if switches(config):
        log.info("%s writes prompts of one length at a time: its position embeddings depend on the batch", name)
        return False
    rng, sizes = np.random.default_rng(0), [min(k, encoder.max_length - 1) for k in (4, 9)]
    ids = rng.integers(config.vocab_size, size=(2, sizes[1] + 1))
    mask = np.arange(sizes[1] + 1) >= np.subtract(sizes[1], sizes)[:, None]

    def states(rows: slice, begin: int) -> torch.Tensor:
        first, past = writer.read(ids[rows, begin:-1], mask[rows, begin:-1], None)
        return torch.cat([first, writer.read(ids[rows, -1:], mask[rows, begin:], past)[0]], 1)

    with writer.ready():
        together = states(slice(0, 2), 0)
        alone = torch.cat([states(slice(k, k + 1), sizes[1] - sizes[k]) for k in range(2)])
    error = relative_error(together, alone)
    if error > TOLERANCE[Dtype(encoder.spec["dtype"])]:
        log.info("%s writes prompts of one length at a time: padding changes its states by %.1e", name, error)
        return False
    return True
