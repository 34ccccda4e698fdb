"""The head of a training, resolved from the options: a value that is stored in the card and builds the head."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from probekit.adaptation.data.options import Long
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.bcn import BCN
from probekit.adaptation.heads.bilstm import BiLSTMCRF, BiLSTMSoftmax, TagCRF, TagSoftmax
from probekit.adaptation.heads.head import Head
from probekit.adaptation.heads.linear import Choice, Linear, Marked
from probekit.adaptation.heads.max_mlp import AttentionMaxMLP, MaxMLP
from probekit.adaptation.heads.pair import ESIM, BiAttention, Pair, Rating
from probekit.adaptation.heads.response import Response
from probekit.adaptation.heads.span import Span
from probekit.adaptation.options import HeadOptions, Hyperparameters, Regime
from probekit.errors import UsageError
from probekit.models import conversion
from probekit.tasks.task import TaskKind

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
        Number of classes, tags, labels or numbers.
    label_names : Sequence[str], default ()
        Names of these by index.
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
        raise UsageError(f"the head {name!r} is for {', '.join(sorted(head.kinds))}, not {kind}; {choose}")
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
    made = head(width, outputs, **options)
    made.kind = kind
    return made


def pools(name: str) -> bool:
    """Whether the head called ``name`` reads only one pooled vector per sequence."""
    return name in HEADS and "pooling" in inspect.signature(HEADS[name]).parameters


ONLY = {
    TaskKind.QUESTION_ANSWERING: "span",
    TaskKind.MULTIPLE_CHOICE: "choice",
    TaskKind.RESPONSE_GENERATION: "response",
}
"""Kinds of tasks for which there is one head."""
LATER = ("windows", "longest", "vocabulary", "end", "tied", "bias")
"""Values that cards of older runs lack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """The JSON values that are needed to build a head, and to build it again.

    Attributes
    ----------
    head : str
        Name of the head.
    width : int
        Width of the hidden states.
    pairs_apart : bool
        Whether the sentences of pairs are encoded separately.
    pooling : str, optional
        Pooling, for heads that read one vector per sequence.
    hidden_size, dropout : int or float
        Options of the head; None for its defaults.
    scale : tuple[int, int], optional
        The lowest and the highest rating, for the head rating.
    layer_norm : bool, default False
        Layer norm of the mix before the head.
    windows : str, optional
        How the head linear joins the vectors of a document's windows: "mean" or "max".
    longest : int, optional
        Most pieces of an answer, for the head span.
    vocabulary, end : int, optional
        Number of pieces and the end of text, for the head response.
    tied, bias : bool, optional
        Whether its weights are the input embeddings, and whether it has a bias.
    """

    head: str
    width: int
    pairs_apart: bool
    pooling: str | None = None
    hidden_size: int | None = None
    dropout: float | None = None
    scale: tuple[int, int] | None = None
    layer_norm: bool = False
    windows: str | None = None
    longest: int | None = None
    vocabulary: int | None = None
    end: int | None = None
    tied: bool | None = None
    bias: bool | None = None

    @classmethod
    def of_card(cls, card: Mapping[str, Any]) -> HeadSpec:
        """The head of a run, from its card."""
        return cls(**card["head"])

    def on_card(self) -> dict[str, Any]:
        """The JSON values for a card."""
        values = asdict(self) | {"scale": None if self.scale is None else list(self.scale)}
        return {k: v for k, v in values.items() if v is not None or k not in LATER}

    def build(self, task: TaskSpec) -> Head:
        """A new head for this task; raises UsageError if the two do not match."""
        if task.scored and self.head.endswith("crf"):
            raise UsageError(
                f"{task.scored[0]} needs probabilities, which the head {self.head} does not give; choose another "
                "metric, or another head, such as softmax."
            )
        given: dict[str, Any] = {"hidden_size": self.hidden_size, "dropout": self.dropout}
        given |= {"windows": self.windows, "longest": self.longest, "tied": self.tied, "bias": self.bias}
        given["marked"] = task.marked if self.head == "marked" else None
        if pools(self.head):
            given["pooling"] = self.pooling
        if self.scale is not None:
            given |= dict(zip(("low", "high"), self.scale, strict=True))
        return make_head(
            self.head, self.width, self.vocabulary or task.outputs, kind=task.kind, label_names=task.label_names,
            pairs=("separate" if self.pairs_apart else "joint") if task.paired else None,
            **{name: value for name, value in given.items() if value is not None},
        )  # fmt: skip


def head_spec(
    options: Hyperparameters, name: str, *, width: int, apart: bool, pooling: str, scale: tuple[int, int] | None = None
) -> HeadSpec:
    """The head of this name with the options that apply to it.

    Raises
    ------
    UsageError
        For a pooling if the head does not pool.
    """
    if not pools(name) and options.pooling != "auto":
        raise UsageError(f"pooling applies only to the heads linear, pair, rating and choice; the head is {name!r}.")
    if options.answer_length is not None and name != "span":
        raise UsageError(f"answer_length is for questions, which the head span answers; the head is {name!r}.")
    if options.long is Long.HIERARCHICAL and name != "linear":
        raise UsageError(f"--long hierarchical is for the head linear; the head is {name!r}. Try --long windows.")
    return HeadSpec(
        head=name, width=width, pairs_apart=apart, pooling=pooling if pools(name) else None,
        hidden_size=options.hidden_size, dropout=options.dropout, scale=scale if name == "rating" else None,
        layer_norm=options.layer_norm, longest=options.answer_length,
        windows=options.window_pooling if options.long is Long.HIERARCHICAL else None,
    )  # fmt: skip


def choose_head(options: HeadOptions, task: TaskSpec, regime: Regime, model_type: str) -> str:
    """The name of the head: the requested one, or for "auto" that of Peters, Ruder & Smith (2019, section 3.1).

    Parameters
    ----------
    model_type : str
        The encoder's model type in config.json.
    """
    if options.head != "auto":
        return options.head
    if task.kind in ONLY:
        return ONLY[task.kind]
    if regime is Regime.FINE_TUNE:
        apart = conversion.reads_apart(model_type)
        if task.marked:
            return "marked"
        if task.tags:
            return "crf" if apart and task.spans else "softmax"
        return "bi-attention" if apart and task.paired else "linear"
    if task.tags:
        return "bilstm-crf" if task.spans else "bilstm"
    return "esim" if task.paired else "bcn"


def reads_apart(
    options: HeadOptions, head: str, task: TaskSpec, model_type: str, *, joins: Callable[[], bool] = lambda: False
) -> bool:
    """Whether the sentences of pairs are encoded separately; "auto" follows Peters, Ruder & Smith (2019, section 3.1).

    Parameters
    ----------
    joins : callable
        For frozen layers, whether the encoder marks the end of the first sentence, so that heads for pairs can split a
        joint sequence. When the encoder is trained, these heads read separately encoded sentences.

    Raises
    ------
    UsageError
        If "separate" is requested for a task without pairs, or "joint" for an encoder of single sentences.
    """
    separate = conversion.reads_apart(model_type)
    if options.pairs == "separate" and not task.paired:
        raise UsageError(f"{task.name} has no sentence pairs; leave out --pairs.")
    if options.pairs == "joint" and separate:
        raise UsageError(f"{model_type} reads one sentence at a time; leave out --pairs, or give --pairs separate.")
    if not task.paired or options.pairs != "auto":
        return options.pairs == "separate"
    fits = HEADS[head].pairs if head in HEADS else frozenset({None})
    return separate or (None not in fits and not ("joint" in fits and joins()))
