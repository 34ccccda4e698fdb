"""Task models, one per file."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from probekit.adaptation.heads.bcn import BCN
from probekit.adaptation.heads.bi_attention import BiAttention
from probekit.adaptation.heads.bilstm import BiLSTMCRF, BiLSTMSoftmax
from probekit.adaptation.heads.choice import Choice
from probekit.adaptation.heads.esim import ESIM
from probekit.adaptation.heads.head import Head
from probekit.adaptation.heads.linear import Linear
from probekit.adaptation.heads.marked import Marked
from probekit.adaptation.heads.max_mlp import AttentionMaxMLP, MaxMLP
from probekit.adaptation.heads.pair import Pair, Rating
from probekit.adaptation.heads.response import Response
from probekit.adaptation.heads.span import Span
from probekit.adaptation.heads.tagger import TagCRF, TagSoftmax
from probekit.errors import UsageError
from probekit.tasks.task import TaskKind

__all__ = ["HEADS", "make_head", "pools"]

HEADS: dict[str, type[Head]] = {
    "linear": Linear,
    "bcn": BCN,
    "esim": ESIM,
    "bi-attention": BiAttention,
    "pair": Pair,
    "rating": Rating,
    "max-mlp": MaxMLP,
    "attention-max-mlp": AttentionMaxMLP,
    "softmax": TagSoftmax,
    "crf": TagCRF,
    "bilstm": BiLSTMSoftmax,
    "bilstm-crf": BiLSTMCRF,
    "marked": Marked,
    "span": Span,
    "choice": Choice,
    "response": Response,
}
"""The task models by name."""

READ = {None: "single sentences", "joint": "pairs in one sequence", "separate": "separately encoded pairs"}


def make_head(
    name: str,
    width: int,
    outputs: int,
    *,
    kind: TaskKind,
    label_names: Sequence[str] = (),
    pairs: str | None = None,
    **options: Any,
) -> Head:
    """The head called ``name`` on hidden states of this width.

    Parameters
    ----------
    outputs : int
        Number of classes or tags; 1 for a number.
    label_names : Sequence[str], default ()
        Names of the classes or tags by index.
    pairs : str, optional
        How the sentences of pairs are encoded: "joint", "separate" (``States.second``), or None for single sentences.
    **options
        Options of the head's class.

    Raises
    ------
    UsageError
        For an unknown name or option, and for a head that does not fit the task.
    """
    fitting = [h for h, head in HEADS.items() if kind in head.kinds and pairs in head.pairs]
    if name not in HEADS:
        raise UsageError(f"unknown head {name!r}; the heads for this task are {', '.join(fitting)}.")
    head, choose = HEADS[name], f"choose {' or '.join(fitting)}."
    if kind not in head.kinds:
        raise UsageError(f"the head {name!r} is for {' and '.join(sorted(head.kinds))}, not {kind}; {choose}")
    if pairs not in head.pairs:
        readable = " or ".join(description for way, description in READ.items() if way in head.pairs)
        raise UsageError(f"the head {name!r} reads {readable}, not {READ[pairs]}; {choose}")
    known = inspect.signature(head).parameters
    settable = [option for option in list(known)[2:] if option not in ("label_names", "apart")]
    if unknown := [option for option in options if option not in settable]:
        raise UsageError(f"the head {name!r} has no option {unknown[0]!r}; it has {', '.join(settable)}.")
    if "label_names" in known:
        options["label_names"] = label_names
    if "apart" in known:
        options["apart"] = pairs == "separate"
    return head(width, outputs, **options)


def pools(name: str) -> bool:
    """Whether the head called ``name`` reads only one pooled vector per sequence."""
    return name in HEADS and "pooling" in inspect.signature(HEADS[name]).parameters
