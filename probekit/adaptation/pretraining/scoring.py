"""The metrics of objectives on dev."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp
from typing import Any

import torch

from probekit.adaptation.data.batches import Batches
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.data.text import TextData
from probekit.adaptation.pretraining.sequences import SequenceData
from probekit.adaptation.runs.predictions import on_device, predict
from probekit.adaptation.training.learners import Learner

__all__ = ["accuracy", "perplexity", "task_metrics"]

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
