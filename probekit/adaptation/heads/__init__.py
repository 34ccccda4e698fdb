"""Task models, one file each."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from probekit.adaptation.heads.bcn import BCN
from probekit.adaptation.heads.bi_attention import BiAttention
from probekit.adaptation.heads.bilstm import BiLSTMCRF, BiLSTMSoftmax
from probekit.adaptation.heads.esim import ESIM
from probekit.adaptation.heads.head import Head
from probekit.adaptation.heads.linear import Linear
from probekit.adaptation.heads.pair import Pair, Rating
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
    "softmax": TagSoftmax,
    "crf": TagCRF,
    "bilstm": BiLSTMSoftmax,
    "bilstm-crf": BiLSTMCRF,
}
"""The task models by name."""

READ = {None: "single sentences", "joint": "pairs in one sequence", "separate": "pairs read apart"}


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
        Of the classes or tags by index.
    pairs : str, optional
        How the sentences of pairs are read: "joint", "separate" (``States.second``), None where there are no pairs.
    **options
        Those of the head's class.

    Raises
    ------
    UsageError
        For a name or an option that there is not, and for a head that does not fit the task.
    """
    fitting = [h for h, made in HEADS.items() if kind in made.kinds and pairs in made.pairs]
    if name not in HEADS:
        raise UsageError(f"there is no head {name!r}; for this task there are {', '.join(fitting)}.")
    made, choose = HEADS[name], f"choose {' or '.join(fitting)}."
    if kind not in made.kinds:
        raise UsageError(f"the head {name!r} is for {' and '.join(sorted(made.kinds))}, not {kind}; {choose}")
    if pairs not in made.pairs:
        wanted = " or ".join(told for way, told in READ.items() if way in made.pairs)
        raise UsageError(f"the head {name!r} reads {wanted}, not {READ[pairs]}; {choose}")
    known = inspect.signature(made).parameters
    settable = [option for option in list(known)[2:] if option not in ("label_names", "apart")]
    if unknown := [option for option in options if option not in settable]:
        raise UsageError(f"the head {name!r} has no option {unknown[0]!r}; it has {', '.join(settable)}.")
    if "label_names" in known:
        options["label_names"] = label_names
    if "apart" in known:
        options["apart"] = pairs == "separate"
    return made(width, outputs, **options)


def pools(name: str) -> bool:
    """Whether the head called ``name`` reads one pooled vector a sequence, and nothing else."""
    return name in HEADS and "pooling" in inspect.signature(HEADS[name]).parameters
