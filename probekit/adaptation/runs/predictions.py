"""What a trained model predicts of each example, in the order of the data, and intervals of its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from probekit.adaptation.data.batches import Batches, Data
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.head import IGNORED
from probekit.adaptation.training.learners import Learner
from probekit.rows import make_fits
from probekit.statistics.bootstrap import bounds
from probekit.statistics.predictions import Predictions

__all__ = ["Evaluation", "gathered", "predict", "say"]

RESAMPLES = 1000
Said = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Of an example: the prediction, the label, and the probabilities of the classes where there are any."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a learner predicts of n examples, or of their words, and how well.

    Attributes
    ----------
    predictions, labels : list[np.ndarray]
        One array an example: a class, a number, or the tags of its words.
    metrics : dict[str, float]
        The task's, then ``loss``.
    probabilities : list[np.ndarray], optional
        One array an example, (classes,), or (words, classes); None where the head has none.
    groups : np.ndarray, optional
        (n,), examples that intervals draw as wholes; None where each stands for itself.
    """

    task: TaskSpec
    ids: np.ndarray
    predictions: list[np.ndarray]
    labels: list[np.ndarray]
    metrics: dict[str, float]
    probabilities: list[np.ndarray] | None = None
    groups: np.ndarray | None = None

    def table(self, about: Mapping[str, Any]) -> Predictions:
        """The predictions as a table of evaluated examples, words one after another; ``about`` are columns of all."""
        ids, groups, sentences = self.ids.astype(str), self.groups, None
        if self.task.tags:
            count = [len(x) for x in self.labels]
            sentences = np.repeat(np.arange(len(ids)), count)
            groups = sentences if groups is None else groups[sentences]
            ids = np.array([f"{ids[i]}:{word}" for i, n in enumerate(count) for word in range(n)])
        gold, more = np.concatenate(self.labels), {}
        if self.probabilities is not None:
            shares = np.concatenate(self.probabilities)
            told = np.maximum(shares[np.arange(len(gold)), gold], 1e-38)
            more = {"log_loss": -np.log(told)[None], "probabilities": shares[None]}
        return Predictions(
            make_fits([{**about, "target": "gold"}]), ids, gold, np.concatenate(self.predictions)[None],
            self.task.metrics, groups, label_names=self.task.label_names, sentences=sentences, **more,
        )  # fmt: skip

    def joined(self, what: str) -> np.ndarray:
        """``predictions`` or ``labels`` as heads give them: (n,), or tags (n, w) with ``IGNORED`` at padding."""
        values: list[np.ndarray] = getattr(self, what)
        if not self.task.tags:
            return np.concatenate(values)
        out = np.full((len(values), max(map(len, values))), IGNORED)
        for row, tags in zip(out, values, strict=True):
            row[: len(tags)] = tags
        return out

    def interval(self, name: str, seed: int = 0) -> dict[str, Any]:
        """The columns ci_low, ci_high of a metric's 95 % interval over the examples, and ``why`` where there is none.

        Whole groups are drawn, and whole sentences where words are tagged.
        """
        table = self.table({"step": 0, "seed": 0})
        found = bounds(**table.sample(), metric=name, resamples=RESAMPLES, seed=seed)
        ends = {"ci_low": float(found.ci[0, 0]), "ci_high": float(found.ci[0, 1])}
        return ends | ({"why": found.why[0]} if found.why[0] else {})


def predict(
    learner: Learner, data: Data, task: TaskSpec, *, module: str = "head", batch_size: int = 32, device: str = "cpu"
) -> Evaluation:
    """What a learner predicts of some data, and its metrics; module : the head that is asked."""
    said, losses = say(learner.to(device), data, Batches(data, batch_size, shuffle=False), module=module, device=device)
    found = gathered(task, data, said)
    metrics = task.score(found.joined("predictions"), found.joined("labels"))
    return replace(found, metrics={**metrics, "loss": losses / len(data)})


def gathered(task: TaskSpec, data: Data, said: Mapping[int, Said]) -> Evaluation:
    """What :func:`say` told of each example, in the order of the data; without metrics."""
    predictions, labels = [said[i][0] for i in range(len(data))], [said[i][1] for i in range(len(data))]
    shares = [own for i in range(len(data)) if (own := said[i][2]) is not None]
    return Evaluation(task, data.ids, predictions, labels, {}, shares or None, data.groups)


def say(
    learner: Learner, data: Data, batches: Iterable[list[int]], *, module: str = "head", device: str | torch.device
) -> tuple[dict[int, Said], float]:
    """Prediction, label and probabilities of each example of some batches, by number, and the sum of their losses."""
    learner.eval()
    said: dict[int, Said] = {}
    losses = 0.0
    with torch.inference_mode():
        for rows in batches:
            batch = _on(device, data.__getitems__(rows))
            out = learner(**batch, module=module, probabilities=True)
            losses += float(out["loss"]) * len(rows)
            found, gold = out["predictions"].cpu().numpy(), batch["labels"].cpu().numpy()
            shares = out["probabilities"].cpu().numpy() if "probabilities" in out else None
            for k, (i, label) in enumerate(zip(rows, gold, strict=True)):
                kept = np.atleast_1d(label != IGNORED)
                own = None if shares is None else np.atleast_2d(shares[k])[kept]
                said[i] = np.atleast_1d(found[k])[kept], np.atleast_1d(label)[kept], own
    return said, losses


def _on(device: str | torch.device, batch: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _on(device, v) if isinstance(v, Mapping) else v.to(device) for k, v in batch.items()}
