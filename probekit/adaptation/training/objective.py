"""What is learned: objectives, each with its examples, its head and its metrics, and the training that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probekit.adaptation.data.batches import Data
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.library import BARE, Layout
from probekit.adaptation.heads.spec import HeadSpec
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.training.learners import Learner
from probekit.errors import DataError
from probekit.metrics import Metric, metric
from probekit.tasks.task import TaskKind

__all__ = ["Objective", "Save", "Training", "Watcher", "check_labelled", "rating_scale"]

Save = Callable[[Path, int, Mapping[str, float]], None]
"""Writes the weights as they are into a folder: ``save(folder, step, metrics)``."""

Watcher = Callable[[int, Mapping[str, float]], None]
"""Told the metrics of each epoch, ``watcher(epoch, metrics)``; what it raises ends the training."""


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """Something to learn from one data set.

    It never owns the model: ``module`` names the head of the learner that gives logits, loss and predictions, so that
    several objectives can train one encoder.

    Attributes
    ----------
    task : TaskSpec
        What is predicted, and by which metrics that is judged.
    head : HeadSpec
        How the head was built.
    train, dev, test : Data
        Examples to learn from, to choose the epoch by, and to evaluate on once.
    """

    task: TaskSpec
    head: HeadSpec
    train: Data
    dev: Data
    test: Data | None = None
    module: str = "head"

    @property
    def metric(self) -> Metric:
        """The main one: it chooses the epoch."""
        return metric(self.task.metrics[0])

    def check_labels(self) -> None:
        """Raise DataError if no head could learn: no label, labels on dev that train lacks, all the same.

        With two classes at least, a head gives one number only where it predicts a number.
        """
        for name, data in (("train", self.train), ("dev", self.dev), ("test", self.test)):
            if data is not None:
                check_labelled(self.task, name, data)
        if self.task.kind is TaskKind.REGRESSION:
            return
        found = _classes(self.train)
        strange = sorted(set(_classes(self.dev)) - set(found))
        if strange:
            names = ", ".join(self.task.label_names[i] for i in strange)
            raise DataError(
                f"{self.task.name}: dev has labels that the training examples lack ({names}), which no head could "
                "learn. Train on more examples, or take these out of dev."
            )
        if len(found) < 2:
            raise DataError(
                f"{self.task.name}: all training examples have one class, {self.task.label_names[found[0]]}; there is "
                "nothing to learn. Train on more or other examples."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """A training that is ready to begin: the one value that all its stages read.

    Attributes
    ----------
    learner : Learner
        The model with a head for each objective.
    objectives : tuple[Objective, ...]
        What is learned, the one that chooses the epoch first.
    options : TrainOptions
        how, with the defaults of regime and head filled in.
    encoder : dict[str, Any]
        What identifies the pretrained model, as a card keeps it.
    source : Path, optional
        Folder of the pretrained model whose encoder is trained, and written; None where it is frozen.
    layout : Layout, default BARE
        How the weights lie in the model folder that is written.
    """

    learner: Learner
    objectives: tuple[Objective, ...]
    options: TrainOptions
    encoder: dict[str, Any]
    source: Path | None = None
    layout: Layout = BARE


def rating_scale(task: TaskSpec, *labels: np.ndarray) -> tuple[int, int] | None:
    """The whole numbers between which all labels lie, such as 1 and 5 of SICK; None where labels are no numbers."""
    if task.kind is not TaskKind.REGRESSION:
        return None
    known = np.concatenate(labels)
    known = known[np.isfinite(known)]
    low, high = (int(np.floor(known.min())), int(np.ceil(known.max()))) if len(known) else (0, 1)
    return low, max(high, low + 1)


def check_labelled(task: TaskSpec, split: str, data: Data) -> None:
    """Raise DataError if examples have no label, or no word of any has one."""
    labels = np.asarray(data.labels)
    missing = np.isnan(labels) if labels.dtype.kind == "f" else labels < 0
    if missing.any() and (not task.tags or missing.all()):
        raise DataError(f"{int(missing.sum())} of {len(labels)} examples of {task.name}, {split}, have no label.")


def _classes(data: Data) -> list[int]:
    if data.words is None:
        return [int(c) for c in np.unique(data.labels)]
    found = np.unique(np.concatenate([labels for _, labels in data.words]))
    return [int(c) for c in found if c >= 0]
