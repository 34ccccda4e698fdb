"""Objectives, each with its examples, head and metrics, and the training that combines them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from probekit.adaptation.data.batches import Data
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.library import BARE, Layout
from probekit.adaptation.heads.spec import HeadSpec
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.training.groups import order_of
from probekit.adaptation.training.learners import Learner
from probekit.errors import DataError, UsageError
from probekit.metrics import Metric, metric
from probekit.runtime import processes
from probekit.tasks.task import TaskKind

log = logging.getLogger(__name__)

Save = Callable[[Path, int, Mapping[str, float]], None]
"""Writes the current weights to a folder: ``save(folder, step, metrics)``."""

Watcher = Callable[[int, Mapping[str, float]], None]
"""Called with the number and the metrics of each evaluation, ``watcher(number, metrics)``; an exception ends the
training."""


Batch = Mapping[str, Any]
Outputs = Mapping[str, Tensor]
"""What a learner returns for a batch."""


class Term(Protocol):
    """What is added to the loss of a batch in training: a penalty on the weights, or another signal.

    It has no state: what it draws depends on its seed, ``step`` and ``part``, so that an interrupted run resumes to the
    same bytes.

    Attributes
    ----------
    name : str
        Its name in the log and in rows, such as "l2-sp".
    """

    name: str

    def __call__(self, learner: Learner, batch: Batch, out: Outputs, step: int, total: int, part: int = 0) -> Tensor:
        """The weighted value, a scalar with a gradient.

        Parameters
        ----------
        learner : Learner
            The trained model, without the wrapper of several processes.
        batch : Mapping[str, Any]
            The batch that the learner has read; ``first["example"]``, int64 (b,), are the numbers of its examples in
            the training data.
        out : Mapping[str, Tensor]
            What it returned: ``loss`` and ``logits``.
        step, total : int
            Updates done, and updates of the whole training.
        part : int, default 0
            Number of the batch among those of the update, over all accumulated batches and processes.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """A prediction problem on one data set.

    It does not hold the model: ``module`` is the name of the learner's head for it, so that several objectives can
    train one encoder.

    Attributes
    ----------
    task : TaskSpec
        The prediction target and the metrics.
    head : HeadSpec
        The specification of the head.
    train, dev, test : Data
        Examples to train on, to choose the epoch on, and to evaluate on once.
    """

    task: TaskSpec
    head: HeadSpec
    train: Data
    dev: Data
    test: Data | None = None
    module: str = "head"

    @property
    def metric(self) -> Metric:
        """The main metric, which chooses the epoch."""
        return metric(self.task.metrics[0])

    def check_labels(self) -> None:
        """Raise DataError for labels that no head can learn: missing ones, labels only on dev, or a single class.

        With at least two classes, a head has a single output only if it predicts a number. Of several labels, one that
        holds for no training example is only warned of, since the others can be learned.
        """
        for name, data in (("train", self.train), ("dev", self.dev), ("test", self.test)):
            if data is not None:
                check_labelled(self.task, name, data)
        if self.task.kind is TaskKind.MULTI_LABEL:
            _check_several(self)
        if self.task.kind not in (TaskKind.CLASSIFICATION, TaskKind.SEQUENCE_LABELLING):
            return
        found = _classes(self.train)
        strange = sorted(set(_classes(self.dev)) - set(found))
        if strange:
            names = ", ".join(self.task.label_names[i] for i in strange)
            raise DataError(
                f"{self.task.name}: dev has labels that the training examples lack ({names}), which no head can "
                "learn. Train on more examples, or remove these labels from dev."
            )
        if len(found) < 2:
            raise DataError(
                f"{self.task.name}: all training examples have the same class, {self.task.label_names[found[0]]}. "
                "Train on more or other examples."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """A training that is ready to start, with everything that its stages need.

    Attributes
    ----------
    learner : Learner
        The model with a head for each objective.
    objectives : tuple[Objective, ...]
        The objectives; the first one chooses the epoch.
    options : TrainOptions
        The options, with the defaults of regime and head.
    encoder : dict[str, Any]
        The identity of the pretrained model, as in the card.
    source : Path, optional
        Folder of the pretrained model whose encoder is trained and written; None if it is frozen.
    layout : Layout, default BARE
        The layout of the weights in the written model folder.
    terms : tuple[Term, ...], default ()
        What is added to the loss of each batch.
    facts : Mapping[str, Any]
        What the card says besides.
    slices : Mapping[str, Mapping[str, Set[str]]]
        The ids of the examples of each slice on "dev" and "test".
    """

    learner: Learner
    objectives: tuple[Objective, ...]
    options: TrainOptions
    encoder: dict[str, Any]
    source: Path | None = None
    layout: Layout = BARE
    terms: tuple[Term, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    slices: Mapping[str, Mapping[str, Set[str]]] = field(default_factory=dict)


def check_shard(training: Training) -> None:
    """Raise UsageError for a training whose weights cannot be spread over processes."""
    options = training.options
    if processes()[1] == 1:
        raise UsageError("--shard spreads the weights over processes, but there is one; start several with torchrun.")
    for what, given in (("--compile", options.compile), ("--mixout", options.mixout), ("--mix", options.mix)):
        if given:
            raise UsageError(f"{what} needs whole weights in each process; leave it out, or --shard.")
    if training.terms:
        names = ", ".join(term.name for term in training.terms)
        raise UsageError(f"what is added to the loss ({names}) needs whole weights in each process; leave out --shard.")
    if order_of(options) != "all":
        raise UsageError(
            f"--shard trains all layers from the start; the order is {order_of(options)!r}; leave out one."
        )
    if len(training.objectives) > 1:
        raise UsageError("--shard trains on one task; leave out --also, or --shard.")
    if options.gradient_checkpointing:
        raise UsageError("--gradient-checkpointing with --shard is not supported; leave out one.")


def rating_scale(task: TaskSpec, *labels: np.ndarray) -> tuple[int, int] | None:
    """The whole numbers between which all labels lie, such as 1 and 5 for SICK; None if labels are not numbers."""
    if task.kind is not TaskKind.REGRESSION:
        return None
    known = np.concatenate(labels)
    known = known[np.isfinite(known)]
    low, high = (int(np.floor(known.min())), int(np.ceil(known.max()))) if len(known) else (0, 1)
    return low, max(high, low + 1)


def check_labelled(task: TaskSpec, split: str, data: Data) -> None:
    """Raise DataError if examples lack labels, or no word has one."""
    labels = np.asarray(data.labels)
    missing = np.isnan(labels) if labels.dtype.kind == "f" else labels < 0
    missing = missing.any(-1) if task.kind.several else missing
    if missing.any() and (not task.tags or missing.all()):
        raise DataError(f"{int(missing.sum())} of {len(labels)} examples of {task.name}, {split}, have no label.")


def _check_several(objective: Objective) -> None:
    """Raise DataError if all training examples have the same labels; warn of labels of dev that none of them has."""
    task, labels = objective.task, np.asarray(objective.train.labels)
    if (labels == labels[:1]).all():
        raise DataError(f"{task.name}: all training examples have the same labels. Train on more or other examples.")
    never = (np.asarray(objective.dev.labels) == 1).any(0) & ~(labels == 1).any(0)
    if never.any():
        names = ", ".join(task.label_names[i] for i in np.flatnonzero(never))
        log.warning("%s: no training example has labels of dev (%s), so the head cannot learn them.", task.name, names)


def _classes(data: Data) -> list[int]:
    if data.words is None:
        return [int(c) for c in np.unique(data.labels)]
    found = np.unique(np.concatenate([labels for _, labels in data.words]))
    return [int(c) for c in found if c >= 0]
