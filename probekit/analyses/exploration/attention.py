"""The attention of a model to the tokens of one text, computed on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.addresses import offline
from probekit.analyses.exploration.texts import model_of
from probekit.errors import ModelError, UsageError, first_line

if TYPE_CHECKING:
    from probekit.analyses.exploration.data import SceneData

LONGEST = 128
"""Longer texts are refused: all heads of all layers are held, and the picture would show nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """Attention weights of one text.

    Attributes
    ----------
    tokens : tuple of str
        All tokens, special ones too, as the tokenizer writes them.
    heads : tuple of tuple of int
        (block, head) of each, both counted from 0.
    weights : np.ndarray
        float32 (heads, t, t); each row sums to 1 (the attention of a token to all tokens).
    note : str
        What the weights are not.
    """

    tokens: tuple[str, ...]
    heads: tuple[tuple[int, int], ...]
    weights: np.ndarray
    note: str = "Attention weights show where a head reads, not what the model's output depends on."

    def __repr__(self) -> str:
        return f"<attention of {len(self.heads)} heads between {len(self.tokens)} tokens>"


def attention(
    scene: SceneData,
    i: int | str,
    model: str | Path | None = None,
    *,
    side: int = 0,
    heads: Sequence[tuple[int, int]] | None = None,
) -> Attention:
    """The attention weights of a model for the text of one example, up to 128 tokens.

    Parameters
    ----------
    i : int or str
        Position or id of the point.
    model : path or str, optional
        Folder or hub id; default: the model of the side's cache.
    side : int
        Position of the side.
    heads : sequence of (block, head), optional
        Which heads, both numbered from 0; default: all.
    """
    text = scene.text_of(scene.index(i))
    if text is None:
        raise UsageError("attention needs the text; give the task to scene(…, task=…).")
    cache = None if scene.sources is None else scene.sources.caches[side]
    spec = {} if cache is None else cache.spec
    if spec.get("pairs") == "separate":
        text = text[:1]
    own = model is None
    if cache is not None and own:
        model = model_of(cache)
    if model is None:
        raise UsageError("name the model whose attention is to be computed.")
    tokens, weights = _weights(
        str(model), spec.get("revision") if own else None, spec.get("random_weights") if own else None, text
    )
    every = [(block, head) for block, layer in enumerate(weights) for head in range(len(layer))]
    chosen = every if heads is None else [(int(b), int(h)) for b, h in heads]
    if unknown := [one for one in chosen if one not in every]:
        raise UsageError(
            f"there is no head {unknown[0]}; the model has blocks 0 to {len(weights) - 1} with heads 0 to "
            f"{len(weights[0]) - 1}."
        )
    return Attention(tokens, tuple(chosen), np.array([weights[b][h] for b, h in chosen], dtype=np.float32))


@lru_cache(maxsize=2)
def _loaded(model: str, revision: str | None, random_weights: int | None) -> tuple[Any, Any]:
    """The model, with eager attention, which returns its weights, and its tokenizer."""
    import torch

    from probekit.models.find import resolve_model
    from probekit.models.transformers.encoder import text_reader
    from probekit.models.transformers.stock import load_model
    from probekit.runtime import Dtype

    with offline():  # whoever made the cache chose the model
        folder = resolve_model(model, revision)
    net = load_model(
        folder, dtype=Dtype.FLOAT32, device=torch.device("cpu"), random_weights=random_weights, attention="eager"
    )
    return net, text_reader(folder, net.config)


def _weights(
    model: str, revision: str | None, random_weights: int | None, text: tuple[str, ...]
) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """The tokens of a text, and (heads, t, t) weights of each block."""
    import torch

    net, reader = _loaded(model, revision, random_weights)
    read = reader([text[0] if len(text) == 1 else text])
    length = len(read.token_ids)
    if length > LONGEST:
        raise UsageError(f"the text has {length} tokens; attention is shown for up to {LONGEST}.")
    inputs = {"input_ids": torch.from_numpy(read.token_ids.astype(np.int64))[None]}
    if reader.type_ids:
        inputs["token_type_ids"] = torch.from_numpy(read.type_ids.astype(np.int64))[None]
    try:
        with torch.inference_mode():
            found = net(**inputs, output_attentions=True).attentions
    except Exception as error:  # architectures without this output fail in many ways
        raise ModelError(f"{model} gives no attention weights: {first_line(error):.200}") from error
    if not found or any(layer is None for layer in found):
        raise ModelError(f"{model} gives no attention weights.")
    tokens = tuple(reader.backend.id_to_token(int(t)) or f"#{t}" for t in read.token_ids)
    return tokens, [layer[0].float().numpy() for layer in found]
