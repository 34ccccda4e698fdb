"""The predictions of a trained model for each example, in the order of the data, and intervals of its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from probekit.adaptation.data.batches import Batches, Data, Decoding
from probekit.adaptation.data.responses import ResponseData
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.head import IGNORED
from probekit.adaptation.training.learners import Learner
from probekit.rows import make_fits
from probekit.runtime import Progress, no_progress
from probekit.statistics.bootstrap import FEWEST, bounds, estimates
from probekit.statistics.over_labels import pairs_of
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    from probekit.adaptation.heads.response import Response

RESAMPLES = 1000
Prediction = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""For an example: the prediction, the label, and the class probabilities, if any."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The predictions of a learner for n examples, or for their words, and the metrics.

    Attributes
    ----------
    predictions, labels : list[np.ndarray]
        One array per example: a class, a number, its labels (1 if one holds) or numbers, the tags of its words, or a
        text; the label of a question is a JSON list of its answers.
    metrics : dict[str, float]
        The task's metrics, then ``loss``.
    probabilities : list[np.ndarray], optional
        One array per example, (1, classes), (words, classes) or (labels, 2); None if the head has none.
    groups : np.ndarray, optional
        (n,), groups of examples that intervals resample as a whole; None if all are independent.
    losses : np.ndarray, optional
        float64 (n, 2), nats and pieces of the given responses; None for other tasks.
    prompts : np.ndarray, optional
        Str (n,), the texts that are responded to; None for other tasks.
    """

    task: TaskSpec
    ids: np.ndarray
    predictions: list[np.ndarray]
    labels: list[np.ndarray]
    metrics: dict[str, float]
    probabilities: list[np.ndarray] | None = None
    groups: np.ndarray | None = None
    losses: np.ndarray | None = None
    prompts: np.ndarray | None = None

    def table(self, about: Mapping[str, Any]) -> Predictions:
        """The predictions as a table of evaluated examples, words one after another; ``about`` are columns of all.

        Several labels or numbers are in the form of probes, a row for each pair of an example and a label.
        """
        ids, groups, sentences = self.ids.astype(str), self.groups, None
        names, of_label = self.task.label_names, None
        if self.task.kind.several:
            pairs = pairs_of(ids, names, groups)
            ids, groups, of_label = pairs["ids"], pairs["groups"], pairs["of_label"]
            names = () if self.task.numbers else ("no", "yes")
        if self.task.tags:
            count = [len(x) for x in self.labels]
            sentences = np.repeat(np.arange(len(ids)), count)
            groups = sentences if groups is None else groups[sentences]
            ids = np.array([f"{ids[i]}:{word}" for i, n in enumerate(count) for word in range(n)])
        gold, more = np.concatenate(self.labels), {}
        if self.probabilities is not None:
            shares = np.concatenate(self.probabilities)
            of_gold = np.maximum(shares[np.arange(len(gold)), gold], 1e-38)
            more = {"log_loss": -np.log(of_gold)[None], "probabilities": shares[None]}
        return Predictions(
            make_fits([{**about, "target": "gold"}]), ids, gold, np.concatenate(self.predictions)[None],
            ("chrf",) if self.task.responses else self.task.metrics, groups,
            label_names=names, sentences=sentences, prompts=self.prompts, of_label=of_label, **more,
        )  # fmt: skip

    def joined(self, what: str) -> np.ndarray:
        """``predictions`` or ``labels`` as heads give them: (n,), (n, k), or tags (n, w), ``IGNORED`` at padding."""
        values: list[np.ndarray] = getattr(self, what)
        if self.task.kind.several:
            return np.stack(values)
        if not self.task.tags:
            return np.concatenate(values)
        out = np.full((len(values), max(map(len, values))), IGNORED)
        for row, tags in zip(out, values, strict=True):
            row[: len(tags)] = tags
        return out

    def subset(self, rows: np.ndarray) -> Evaluation:
        """The evaluation of some examples, without the loss."""
        part = replace(
            self, ids=self.ids[rows], predictions=[self.predictions[i] for i in rows],
            labels=[self.labels[i] for i in rows], groups=None if self.groups is None else self.groups[rows],
            probabilities=None if self.probabilities is None else [self.probabilities[i] for i in rows],
            losses=None if self.losses is None else self.losses[rows],
            prompts=None if self.prompts is None else self.prompts[rows],
        )  # fmt: skip
        return replace(part, metrics=part.measured())

    def of_responses(self) -> dict[str, float]:
        """Perplexity and loss (nats) per piece of the given responses; {} for other tasks."""
        if self.losses is None:
            return {}
        nats, pieces = self.losses.sum(0)
        return {"perplexity": float(np.exp(nats / pieces)), "loss": float(nats / pieces)}

    def of_scores(self) -> dict[str, float]:
        """The task's metrics of scores, such as AUROC, by name."""
        if not self.task.scored:
            return {}
        sample = self.table({"step": 0, "seed": 0}).sample()
        return {name: float(estimates(metric=name, **sample)[0]) for name in self.task.scored}

    def measured(self, loss: float | None = None) -> dict[str, float]:
        """The task's metrics, the main one first, then the loss, if one is given or there are given responses."""
        found = {} if loss is None else {"loss": loss}
        found |= self.of_responses() | self.task.score(self.joined("predictions"), self.joined("labels"))
        found |= self.of_scores()
        first = {name: found.pop(name) for name in self.task.metrics if name in found}
        last = {"loss": found.pop("loss")} if "loss" in found else {}
        return first | found | last

    def merged(self, task: TaskSpec, classes: np.ndarray) -> Evaluation:
        """The same for a task whose classes each include several: ``classes`` has the new class of each one.

        The predicted class is that of the most probable one; its probability is the sum of all.
        """
        new = np.eye(len(task.label_names), dtype=np.float32)[classes]
        shares = None if self.probabilities is None else [one @ new for one in self.probabilities]
        found = replace(self, task=task, predictions=[classes[one] for one in self.predictions], probabilities=shares)
        loss = np.nan
        if shares is not None:
            gold = np.concatenate(self.labels)
            loss = float(-np.log(np.maximum(np.concatenate(shares)[np.arange(len(gold)), gold], 1e-38)).mean())
        return replace(found, metrics=found.measured(loss))

    def interval(self, name: str, seed: int = 0) -> dict[str, Any]:
        """The columns ci_low, ci_high of a metric's 95 % interval over examples, and ``why`` if there is none.

        Whole groups are resampled, and whole sentences if words are tagged.
        """
        if self.losses is not None and name != "chrf":
            return _of_perplexity(self.losses, self.groups, seed) if name == "perplexity" else dict(NONE)
        table = self.table({"step": 0, "seed": 0})
        found = bounds(**table.sample(), metric=name, resamples=RESAMPLES, seed=seed)
        ends = {"ci_low": float(found.ci[0, 0]), "ci_high": float(found.ci[0, 1])}
        return ends | ({"why": found.why[0]} if found.why[0] else {})


NONE = {"ci_low": np.nan, "ci_high": np.nan, "why": "a resample repeats texts, which lowers it"}


def _of_perplexity(losses: np.ndarray, groups: np.ndarray | None, seed: int) -> dict[str, Any]:
    """The percentile interval of perplexity over resampled groups (Efron & Tibshirani 1993, chapter 13)."""
    of = np.arange(len(losses)) if groups is None else np.unique(groups, return_inverse=True)[1]
    sums = np.stack([np.bincount(of, column) for column in losses.T])
    n = sums.shape[1]
    if n < FEWEST:
        return {"ci_low": np.nan, "ci_high": np.nan, "why": f"{n} groups; intervals need at least {FEWEST}"}
    nats, pieces = sums @ np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), RESAMPLES).T
    low, high = np.exp(np.quantile(nats / pieces, [0.025, 0.975]))
    return {"ci_low": float(low), "ci_high": float(high)}


def predict(
    learner: Learner, data: Data, task: TaskSpec, *, module: str = "head", batch_size: int = 32, device: str = "cpu",
    progress: Progress = no_progress,
) -> Evaluation:  # fmt: skip
    """The predictions of a learner for some data, and its metrics; module : name of the head."""
    batches = Batches(data, batch_size, shuffle=False)
    predicted, losses = predict_batches(
        learner.to(device), data, batches, module=module, device=device, progress=progress
    )
    found = gathered(task, data, predicted)
    return replace(found, metrics=found.measured(losses / len(data)))


def gathered(task: TaskSpec, data: Data, predicted: Mapping[int, Prediction]) -> Evaluation:
    """The results of :func:`predict_batches` in the order of the data, without metrics."""
    predictions, labels = [predicted[i][0] for i in range(len(data))], [predicted[i][1] for i in range(len(data))]
    shares = [share for i in range(len(data)) if (share := predicted[i][2]) is not None]
    if task.responses:
        prompts = np.array([example.text for example in cast("ResponseData", data).examples], dtype=object)
        losses = np.concatenate(shares)
        return Evaluation(task, data.ids, predictions, labels, {}, None, data.groups, losses, prompts)
    return Evaluation(task, data.ids, predictions, labels, {}, shares or None, data.groups)


def predict_batches(
    learner: Learner, data: Data, batches: Iterable[list[int]], *, module: str = "head", device: str | torch.device,
    progress: Progress = no_progress,
) -> tuple[dict[int, Prediction], float]:  # fmt: skip
    """Prediction, label and probabilities of each example of some batches, by index, and the sum of their losses."""
    learner.eval()
    predicted: dict[int, Prediction] = {}
    losses = 0.0
    with torch.inference_mode():
        for rows in batches:
            progress("evaluating", len(predicted), len(data), examples=len(predicted))
            batch = on_device(device, data.__getitems__(rows))
            if isinstance(data, ResponseData):
                head = cast("Response", learner.get_submodule(module))
                predicted |= zip(rows, data.evaluated(learner, rows, batch, head), strict=True)
                continue
            out = learner(**batch, module=module, probabilities=True)
            losses += float(out["loss"]) * len(rows)
            if isinstance(data, Decoding):
                predicted |= zip(rows, data.decoded(rows, out["predictions"].cpu().numpy()), strict=True)
                continue
            found, gold = out["predictions"].cpu().numpy(), batch["labels"].cpu().numpy()
            shares = out["probabilities"].cpu().numpy() if "probabilities" in out else None
            for k, (i, label) in enumerate(zip(rows, gold, strict=True)):
                labelled = np.atleast_1d(label != IGNORED)
                share = None if shares is None else np.atleast_2d(shares[k])[labelled]
                predicted[i] = np.atleast_1d(found[k])[labelled], np.atleast_1d(label)[labelled], share
    progress("evaluating", len(predicted), len(data), examples=len(predicted))
    return predicted, losses


def on_device(device: str | torch.device, batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch on a device."""
    return {k: on_device(device, v) if isinstance(v, Mapping) else v.to(device) for k, v in batch.items()}
