"""The metrics of objectives on dev, and their chance level: a prediction from the labels of train, without the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
import torch

from probekit.adaptation.data.batches import Batched, Batches, Data
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.data.text import TextData
from probekit.adaptation.pretraining.sequences import SequenceData
from probekit.adaptation.runs.constant import constant_answer
from probekit.adaptation.runs.predictions import on_device, predict
from probekit.adaptation.training.learners import Learner

MOST = 700.0
"""Nats whose exponential is a number."""


def task_metrics(
    learner: Learner, batch_size: int, device: str, *, data: TextData, task: TaskSpec, module: str
) -> dict[str, float]:
    """The metrics of a labelled task."""
    return predict(learner, data, task, module=module, batch_size=batch_size, device=device).metrics


@torch.inference_mode()
def perplexity(learner: Learner, batch_size: int, device: str, *, data: SequenceData, module: str) -> dict[str, float]:
    """The perplexity of the predicted words, and their mean loss in nats."""
    head: Any = learner.get_submodule(module)
    nats, count = 0.0, 0
    for batch in _batches(learner, data, batch_size, device):
        states, labels = learner.read(batch["first"]), batch["labels"]
        predicted = head.count(labels, states)
        nats += float(head.loss(head(states), labels, states)) * predicted
        count += predicted
    loss = nats / max(count, 1)
    return {"perplexity": exp(min(loss, MOST)), "loss": loss}


@torch.inference_mode()
def accuracy(
    learner: Learner, batch_size: int, device: str, *, data: SequenceData, module: str, in_batch: bool = False
) -> dict[str, float]:
    """The share of correct classes, and the mean loss in nats; heads over a batch predict what is correct."""
    right, nats = 0.0, 0.0
    for batch in _batches(learner, data, batch_size, device):
        out = learner(**batch, module=module)
        correct = out["predictions"] if in_batch else out["predictions"] == batch["labels"]
        right += float(correct.sum())
        nats += float(out["loss"]) * len(batch["labels"])
    return {"accuracy": right / len(data), "loss": nats / len(data)}


def _batches(learner: Learner, data: SequenceData, batch_size: int, device: str) -> Iterator[dict[str, Any]]:
    learner.eval()
    for rows in Batches(data, batch_size, shuffle=False):
        yield on_device(device, data.__getitems__(rows))


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
    return Chance("mean" if task.numbers else "most frequent class", float(value))
