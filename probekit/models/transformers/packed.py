"""Many sequences in one row, without padding: an attention function restricted to each sequence.

A batch of sequences is run as one sequence of t pieces, with position ids that restart for each. Everything in a
transformer except attention treats each piece separately; attention takes one call of PyTorch's
``scaled_dot_product_attention`` per distinct length, so results do not depend on the rest of the batch.

They agree to the last bit if the model's widths are multiples of 32, as usual (BERT: 768 and 3072): PyTorch's SiLU and
tanh-GELU round the last few numbers of a tensor, which do not fill a vector, differently.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface

from probekit.errors import ModelError

PACKED = "probekit_packed"
"""Name of the attention function in transformers' attention interface."""

PACKED_TYPES = frozenset(
    {"albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta"}
    | {"gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3"}
)
"""Model types whose code treats each piece separately outside attention. Each load checks this again."""

OFFSET_TYPES = frozenset(
    {
        "altclip_text_model",
        "bridgetower_text_model",
        "camembert",
        "clap_text_model",
        "data2vec-text",
        "ibert",
        "layoutlmv3",
        "lilt",
    }
    | {"longformer", "luke", "markuplm", "mluke", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta"}
    | {"xlm-roberta-xl", "xmod"}
)
"""Model types that number positions from padding id + 1, and skip padding pieces."""

UNPLANNED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Without cuDNN's, which plans each new shape for longer than it runs; here nearly every length is one."""

SWITCHING = ("longrope", "dynamic")
"""Rotary embeddings whose frequencies transformers chooses, in each pass, by the longest text of the batch."""


def switches(config: Any) -> bool:
    """Whether the longest text of a batch changes the positions of the others."""
    return any(kind in str(getattr(config, "rope_parameters", "")) for kind in SWITCHING)


@dataclass(frozen=True, slots=True)
class Groups:
    """Positions of the sequences of each length in a packed row.

    Attributes
    ----------
    parts : tuple[tuple[int, int, int], ...]
        (first row, number of sequences, their length) of each length, ascending.
    """

    parts: tuple[tuple[int, int, int], ...]


_IGNORED = frozenset(
    {"cache_position", "cu_seq_lens_k", "cu_seq_lens_q", "output_attentions", "output_hidden_states"}
    | {"position_embeddings", "position_ids", "return_dict", "use_cache"}
)


def groups_of(length: np.ndarray) -> Groups:
    """Positions of the sequences of each length in a batch; ``length`` int64 (s,), ascending."""
    lengths, counts = np.unique(length, return_counts=True)
    first = np.cumsum(lengths * counts) - lengths * counts
    return Groups(tuple((int(a), int(n), int(k)) for a, n, k in zip(first, counts, lengths, strict=True)))


def positions_of(token_ids: np.ndarray, length: np.ndarray, padding_id: int | None = None) -> np.ndarray:
    """Position of each piece in its sequence, int64 (t,), from 0.

    With a ``padding_id``, as in RoBERTa: from padding_id + 1, while padding pieces stay at padding_id (they occur in
    text that contains the padding token).
    """
    starts = np.cumsum(length) - length
    if padding_id is None:
        return np.arange(len(token_ids)) - np.repeat(starts, length)
    real = (token_ids != padding_id).astype(np.int64)
    seen = np.cumsum(real)
    before = np.repeat(seen[starts] - real[starts], length)
    return (seen - before) * real + padding_id


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    probekit_groups: Groups | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within each sequence of a packed row.

    query (1, heads, t, d), key and value (1, key heads, t, d); returns (1, t, heads, d).

    Raises
    ------
    ModelError
        If the model uses a feature that this function does not support (a sliding window, a soft cap, attention sinks,
        a mask).
    """
    unknown = sorted(k for k, v in kwargs.items() if k not in _IGNORED and v is not None)
    if attention_mask is not None:
        unknown.append("attention_mask")
    if unknown or probekit_groups is None or dropout:
        raise ModelError(f"packed attention does not support {', '.join(unknown) or 'a call without groups'}.")
    causal = module.is_causal if is_causal is None else is_causal
    query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))
    shared = query.shape[1] != key.shape[1]
    out = query.new_empty((query.shape[0], query.shape[1], value.shape[2]))
    with sdpa_kernel(UNPLANNED) if query.is_cuda else nullcontext():
        for first, count, length in probekit_groups.parts:
            rows = slice(first, first + count * length)
            q, k, v = (x[rows].unflatten(0, (count, length)).transpose(1, 2) for x in (query, key, value))
            attended = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=bool(causal) and length > 1, scale=scaling, enable_gqa=shared
            )
            out[rows] = attended.transpose(1, 2).flatten(0, 1)
    return out.unsqueeze(0), None


def uncompiled() -> str:
    """Name of the same attention function, excluded from ``torch.compile``, which would recompile it for each batch."""
    name = f"{PACKED}_uncompiled"
    AttentionInterface.register(name, torch.compiler.disable(packed_attention))
    return name


AttentionInterface.register(PACKED, packed_attention)  # no mask function has this name, so no mask is built
