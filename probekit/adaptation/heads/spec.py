"""Which head a training takes, resolved from what was asked for: a value that a card keeps and that builds the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads import HEADS, make_head, pools
from probekit.adaptation.heads.head import Head
from probekit.adaptation.options import HeadOptions, Regime
from probekit.errors import UsageError
from probekit.models import conversion

__all__ = ["HeadSpec", "choose_head", "head_spec", "reads_apart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """All that is needed to build a head, and to build it again: JSON values.

    Attributes
    ----------
    head : str
        Its name.
    width : int
        Of the hidden states.
    pairs_apart : bool
        Whether the sentences of pairs are read apart.
    pooling : str, optional
        Of a head that reads one vector a sequence, None of others.
    hidden_size, dropout : int or float
        The head's own defaults for None.
    scale : tuple[int, int], optional
        The lowest and the highest rating, for the head that wants them.
    layer_norm : bool, default False
        Of the mix before the head.
    """

    head: str
    width: int
    pairs_apart: bool
    pooling: str | None = None
    hidden_size: int | None = None
    dropout: float | None = None
    scale: tuple[int, int] | None = None
    layer_norm: bool = False

    @classmethod
    def of_card(cls, card: Mapping[str, Any]) -> HeadSpec:
        """The head of a run, as its card tells it."""
        return cls(**card["head"])

    def on_card(self) -> dict[str, Any]:
        """What a card keeps."""
        return asdict(self) | {"scale": None if self.scale is None else list(self.scale)}

    def build(self, task: TaskSpec) -> Head:
        """A new head for this task; raises UsageError where the two do not fit."""
        given: dict[str, Any] = {"hidden_size": self.hidden_size, "dropout": self.dropout}
        if pools(self.head):
            given["pooling"] = self.pooling
        if self.scale is not None:
            given |= dict(zip(("low", "high"), self.scale, strict=True))
        return make_head(
            self.head, self.width, task.outputs, kind=task.kind, label_names=task.label_names,
            pairs=("separate" if self.pairs_apart else "joint") if task.paired else None,
            **{name: value for name, value in given.items() if value is not None},
        )  # fmt: skip


def head_spec(
    options: HeadOptions,
    name: str,
    *,
    width: int,
    apart: bool,
    pooling: str,
    scale: tuple[int, int] | None = None,
) -> HeadSpec:
    """The head of this name with the options that are its own.

    Raises
    ------
    UsageError
        For a pooling that a head is asked for which pools nothing.
    """
    if not pools(name) and options.pooling != "auto":
        raise UsageError(f"pooling is for the linear head, pair and rating; the head is {name!r}.")
    return HeadSpec(
        head=name, width=width, pairs_apart=apart, pooling=pooling if pools(name) else None,
        hidden_size=options.hidden_size, dropout=options.dropout, scale=scale if name == "rating" else None,
        layer_norm=options.layer_norm,
    )  # fmt: skip


def choose_head(options: HeadOptions, task: TaskSpec, regime: Regime, model_type: str) -> str:
    """The name of the head: the one asked for, or for "auto" the paper's (Peters, Ruder & Smith 2019, section 3.1).

    Parameters
    ----------
    model_type : str
        Of the encoder, as its config.json has it.
    """
    if options.head != "auto":
        return options.head
    if regime is Regime.FINE_TUNE:
        apart = conversion.reads_apart(model_type)
        if task.tags:
            return "crf" if apart and task.spans else "softmax"
        return "bi-attention" if apart and task.paired else "linear"
    if task.tags:
        return "bilstm-crf" if task.spans else "bilstm"
    return "esim" if task.paired else "bcn"


def reads_apart(
    options: HeadOptions, head: str, task: TaskSpec, model_type: str, *, joins: Callable[[], bool] = lambda: False
) -> bool:
    """Whether the sentences of pairs are read apart; for "auto" as in Peters, Ruder & Smith (2019, section 3.1).

    Parameters
    ----------
    joins : callable
        Of frozen layers, whether the encoder marks where the first of two sentences ends, so that heads for pairs find
        the two in what was read together. While an encoder is trained, these heads read apart what they bring together.

    Raises
    ------
    UsageError
        Where reading apart is asked for and there are no pairs, or the encoder cannot do otherwise than is asked for.
    """
    alone = conversion.reads_apart(model_type)
    if options.pairs == "separate" and not task.paired:
        raise UsageError(f"{task.name} has no pairs of sentences to read apart.")
    if options.pairs == "joint" and alone:
        raise UsageError(f"{model_type} reads one sentence at a time; leave --pairs out, or give --pairs separate.")
    if not task.paired or options.pairs != "auto":
        return options.pairs == "separate"
    fits = HEADS[head].pairs if head in HEADS else frozenset({None})
    return alone or (None not in fits and not ("joint" in fits and joins()))
