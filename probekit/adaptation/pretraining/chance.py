"""The chance level of objectives: the metric on dev of a prediction from the labels of train, without the text."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from probekit.adaptation.data.batches import Batched, Batches, Data
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.runs.constant import constant_answer

__all__ = ["Chance", "guess", "most_frequent", "of_task", "unigrams"]


@dataclass(frozen=True, slots=True)
class Chance:
    """A prediction that does not read the text.

    Attributes
    ----------
    prediction : str
        What is predicted: "most frequent class", "mean", "unigrams" or "guess".
    value : float
        The main metric on dev.
    """

    prediction: str
    value: float


def unigrams(train: np.ndarray, dev: np.ndarray) -> Chance:
    """Each output word with its frequency in train, plus one.

    Parameters
    ----------
    train, dev : np.ndarray
        (v,), how often each output word is predicted.

    Examples
    --------
    >>> round(unigrams(np.array([3, 0]), np.array([1, 1])).value, 6)  # 1 / sqrt(4/5 * 1/5)
    2.5
    """
    shares = (train + 1) / (train.sum() + len(train))
    return Chance("unigrams", exp(-float(dev @ np.log(shares)) / max(1, int(dev.sum()))))


def most_frequent(train: np.ndarray, dev: np.ndarray) -> Chance:
    """The accuracy of the most frequent class of train."""
    return Chance("most frequent class", float((dev == np.bincount(train).argmax()).mean()))


def guess(dev: Batched, batch_size: int, candidates: int | None) -> Chance:
    """The accuracy of a random choice: among ``candidates``, or among the second texts of a batch."""
    batches = len(Batches(dev, batch_size, shuffle=False))
    return Chance("guess", 1 / candidates if candidates else batches / len(dev))


def of_task(task: TaskSpec, train: Data, dev: Data) -> Chance:
    """The constant prediction for a labelled task: its most frequent class or tag, or the mean."""
    labels = np.asarray(dev.labels)
    if task.tags:
        labels = labels[None]
    constant = np.full_like(labels, constant_answer(task, train)["answer"])
    value = task.score(constant, labels)[task.metrics[0]]
    return Chance("most frequent class" if task.label_names else "mean", float(value))
