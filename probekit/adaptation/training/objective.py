"""What both regimes need before they train: what is predicted, by which head, and how well it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.adaptation.data.batches import Data
from probekit.adaptation.heads import HEADS, make_head, pools
from probekit.adaptation.heads.head import IGNORED, Head
from probekit.adaptation.options import HeadOptions, Regime
from probekit.errors import DataError, UsageError
from probekit.metrics import metric
from probekit.models import conversion as published
from probekit.tasks.task import Kind, Task

__all__ = [
    "Score",
    "Target",
    "build_head",
    "check_labelled",
    "check_labels",
    "choose_head",
    "describe",
    "reads_apart",
    "scale_of",
    "scorer",
]

Score = Callable[[np.ndarray, np.ndarray], dict[str, float]]
"""Metrics by name of predictions and labels, as heads give and take them; the task's own first."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is predicted: the part of a Task that a cache knows, too."""

    task: str
    kind: Kind
    label_names: tuple[str, ...]
    metrics: tuple[str, ...]
    paired: bool

    @classmethod
    def of_task(cls, task: Task, split: str) -> Target:
        """The target of a task; whether it is of pairs is told from ``split``."""
        return cls(task.name, task.kind, task.label_names, task.metrics, task.split(split).paired)

    @classmethod
    def of_spec(cls, spec: Mapping[str, Any]) -> Target:
        """The target of an activation cache."""
        names, metrics = tuple(spec["label_names"]), tuple(spec["metrics"])
        return cls(spec["task"], Kind(spec["kind"]), names, metrics, spec["pairs"] is not None)

    @property
    def outputs(self) -> int:
        """How many numbers a head gives: one a class, or one."""
        return 1 if self.kind is Kind.REGRESSION else len(self.label_names)

    @property
    def spans(self) -> bool:
        """Whether the tags mark spans (B-…, I-…)."""
        return self.kind is Kind.SEQUENCE_LABELLING and any(name.startswith("B-") for name in self.label_names)


def choose_head(options: HeadOptions, target: Target, regime: Regime, model_type: str) -> str:
    """The name of the head: the one asked for, or for "auto" the paper's (Peters, Ruder & Smith 2019, section 3.1).

    model_type : of the encoder, as its config.json has it
    """
    if options.head != "auto":
        return options.head
    words = target.kind is Kind.SEQUENCE_LABELLING
    if regime is Regime.FINE_TUNE:
        apart = published.reads_apart(model_type)
        if words:
            return "crf" if apart and target.spans else "softmax"
        return "bi-attention" if apart and target.paired else "linear"
    if words:
        return "bilstm-crf" if target.spans else "bilstm"
    return "esim" if target.paired else "bcn"


def reads_apart(options: HeadOptions, head: str, target: Target, model_type: str) -> bool:
    """Whether the sentences of pairs are read apart; UsageError where that is asked for and there are none, or the
    encoder cannot do otherwise than is asked for."""
    if options.pairs == "separate" and not target.paired:
        raise UsageError(f"{target.task} has no pairs of sentences to read apart.")
    if options.pairs == "joint" and published.reads_apart(model_type):
        raise UsageError(f"{model_type} reads one sentence at a time; leave --pairs out, or give --pairs separate.")
    wanted = published.reads_apart(model_type) or (head in HEADS and None not in HEADS[head].pairs)
    return target.paired and (wanted if options.pairs == "auto" else options.pairs == "separate")


def build_head(
    options: HeadOptions,
    name: str,
    target: Target,
    width: int,
    *,
    apart: bool,
    pooling: str,
    scale: Sequence[int] | None = None,
) -> Head:
    """The head of this name for this target; raises UsageError where the two do not fit.

    scale : the lowest and highest rating, for the head that wants them
    """
    given: dict[str, Any] = {"hidden_size": options.hidden_size, "dropout": options.dropout}
    pairs = ("separate" if apart else "joint") if target.paired else None
    if name == "rating" and scale is not None:
        given |= {"low": scale[0], "high": scale[1]}
    if pools(name):
        given["pooling"] = pooling
    elif options.pooling != "auto":
        raise UsageError(f"pooling is for the linear head, pair and rating; the head is {name!r}.")
    return make_head(
        name, width, target.outputs, kind=target.kind, label_names=target.label_names, pairs=pairs,
        **{k: v for k, v in given.items() if v is not None},
    )  # fmt: skip


def scale_of(target: Target, *labels: np.ndarray) -> tuple[int, int] | None:
    """The whole numbers between which all labels lie, such as 1 and 5 of SICK; None where labels are no numbers."""
    if target.kind is not Kind.REGRESSION:
        return None
    known = np.concatenate(labels)
    known = known[np.isfinite(known)]
    low, high = (int(np.floor(known.min())), int(np.ceil(known.max()))) if len(known) else (0, 1)
    return low, max(high, low + 1)


def describe(
    options: HeadOptions, name: str, *, width: int, apart: bool, pooling: str, scale: Sequence[int] | None = None
) -> dict[str, Any]:
    """All that is needed to build a head again, JSON values."""
    return {
        "head": name,
        "width": width,
        "pairs_apart": apart,
        "pooling": pooling if pools(name) else None,
        "hidden_size": options.hidden_size,
        "dropout": options.dropout,
        "scale": list(scale) if name == "rating" and scale is not None else None,
        "layer_norm": options.layer_norm,
    }


def scorer(target: Target) -> Score:
    """The task's metrics of predictions and labels, arrays as heads give and take them."""

    def score(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        gold: Any = labels
        guess: Any = predictions
        if target.kind is Kind.SEQUENCE_LABELLING:
            names, kept = np.array(target.label_names, dtype=object), labels != IGNORED
            gold = [names[row[k]].tolist() for row, k in zip(labels, kept, strict=True)]
            guess = [names[row[k]].tolist() for row, k in zip(predictions, kept, strict=True)]
        return {name: metric(name)(gold, guess) for name in target.metrics}

    return score


def check_labels(target: Target, train: Data, dev: Data, test: Data | None = None) -> None:
    """Raise DataError where no head could learn: examples have no label, dev has others than train, all have the same.

    With two classes at least, a head gives one number only where it predicts a number.
    """
    for name, data in (("train", train), ("dev", dev), ("test", test)):
        if data is not None:
            check_labelled(target, name, data)
    if target.kind is Kind.REGRESSION:
        return
    strange = sorted(set(_classes(dev)) - set(_classes(train)))
    if strange:
        names = ", ".join(target.label_names[i] for i in strange)
        raise DataError(
            f"{target.task}: dev has labels that the training examples lack ({names}), which no head could learn. "
            "Train on more examples, or take these out of dev."
        )
    if len(found := _classes(train)) < 2:
        raise DataError(
            f"{target.task}: all training examples have one class, {target.label_names[found[0]]}; there is nothing to "
            "learn. Train on more or other examples."
        )


def check_labelled(target: Target, split: str, data: Data) -> None:
    """Raise DataError where examples have no label, or no word of any has one."""
    labels = np.asarray(data.labels)
    missing = np.isnan(labels) if labels.dtype.kind == "f" else labels < 0
    if missing.any() and (target.kind is not Kind.SEQUENCE_LABELLING or missing.all()):
        raise DataError(f"{int(missing.sum())} of {len(labels)} examples of {target.task}, {split}, have no label.")


def _classes(data: Data) -> list[int]:
    if data.words is None:
        return [int(c) for c in np.unique(data.labels)]
    found = np.unique(np.concatenate([labels for _, labels in data.words]))
    return [int(c) for c in found if c >= 0]
