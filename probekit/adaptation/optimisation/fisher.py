"""The diagonal of the Fisher information of a model's weights on the task that it was fine-tuned on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from probekit.adaptation.data.batches import Data
from probekit.adaptation.data.reading import data_as_in
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.head import Head
from probekit.adaptation.optimisation.options import FisherLabels
from probekit.adaptation.options import Regime
from probekit.adaptation.runs.evaluation import load_learner
from probekit.adaptation.runs.predictions import on_device
from probekit.adaptation.training.learners import FineTuning, Learner
from probekit.adaptation.training.multi_task import card_for
from probekit.adaptation.training.objective import check_labelled
from probekit.errors import UsageError
from probekit.models.identity import CARD
from probekit.models.loading import text_reader
from probekit.models.transformers.onednn import onednn_available, train_with_onednn
from probekit.runtime import Progress, no_progress
from probekit.tasks.context import Context, in_context
from probekit.tasks.task import Task, TaskKind

__all__ = ["diagonal_fisher", "fisher_of_run"]


def diagonal_fisher(weights: Mapping[str, Tensor], losses: Iterable[Tensor]) -> dict[str, Tensor]:
    """The mean of the squared gradients of -log p, one example at a time (Kirkpatrick et al. 2017, section 2.1).

    Parameters
    ----------
    weights : Mapping[str, Tensor]
        Weights by name, with gradients.
    losses : Iterable[Tensor]
        -log p(label) of each example in nats, scalars.

    Returns
    -------
    dict[str, Tensor]
        By the same names, with the shapes of the weights; 0 where a weight has no effect.
    """
    sums, count = {name: torch.zeros_like(weight) for name, weight in weights.items()}, 0
    for loss in losses:
        found = torch.autograd.grad(loss, [*weights.values()], allow_unused=True)
        for total, gradient in zip(sums.values(), found, strict=True):
            if gradient is not None:
                total.addcmul_(gradient, gradient)
        count += 1
    return {name: total.detach().div_(max(count, 1)) for name, total in sums.items()}


def fisher_of_run(
    run: Path, task: Task, split: str = "train", *, examples: int | None = None, seed: int = 0,
    labels: FisherLabels = FisherLabels.GOLD, device: str = "cpu", progress: Progress = no_progress,
) -> dict[str, Tensor]:  # fmt: skip
    """The diagonal Fisher information of the encoder of a fine-tuned run, with the run's own head, without dropout.

    An example's log-probability is that of all its labels: the sum over the words for word tags; a number has a normal
    distribution of variance 1.

    Parameters
    ----------
    run : Path
        The run, or one of its checkpoints.
    task : Task
        The task that it was trained on, or another one with the same labels.
    examples : int, optional
        Number of examples, drawn at random with ``seed`` (default: all).
    labels : FisherLabels
        Gold labels (the empirical Fisher information), or those that the run predicts.

    Returns
    -------
    dict[str, Tensor]
        By the learner's names of the weights, which begin with "encoder.".

    Raises
    ------
    UsageError
        If ``run`` is not a fine-tuned run, the task has other labels, or numbers are to be predicted: at its own
        prediction, the gradient of a squared error is 0.
    """
    if not (run / CARD).is_file():
        raise UsageError(
            f"EWC needs a model that was fine-tuned on the old task, with its head; {run} is not a run of probekit "
            "train. Fine-tune it on the old task first, or use --penalty l2-sp."
        )
    learner, card = load_learner(run)
    card = card_for(card, task.name)
    learned = TaskSpec.of_card(card)
    if card["regime"] != Regime.FINE_TUNE or not isinstance(learner, FineTuning):
        raise UsageError(f"EWC needs a fine-tuned encoder; {run} is a {card['regime']} run.")
    target = TaskSpec.of_task(task, split)
    if (target.kind, target.label_names) != (learned.kind, learned.label_names):
        raise UsageError(
            f"{run} was trained on {learned.name}, whose labels differ from those of {task.name}. Give the old task, "
            f"{learned.name}, or one with its labels."
        )
    if labels is FisherLabels.PREDICTED and learned.kind in (TaskKind.REGRESSION, TaskKind.QUESTION_ANSWERING):
        raise UsageError("predicted labels are for classes and tags; for numbers and texts leave out --fisher-labels.")
    read = in_context(task, card["encoder"].get("context", Context.NONE))
    reader = text_reader(run, learner.encoder.config, card["encoder"]["max_length"])
    data = data_as_in(card, read, read.split(split).sample(examples, seed), reader)
    check_labelled(learned, split, data)
    learner.to(device).requires_grad_(requires_grad=True).eval()
    if device == "cpu" and onednn_available(torch.float32):
        train_with_onednn(learner)
    weights = {name: w for name, w in learner.weights().items() if name.startswith("encoder.")}
    squared = learned.kind is TaskKind.REGRESSION and card["head"]["head"] != "rating"
    losses = _losses(learner, card["module"], data, device, labels is FisherLabels.PREDICTED)
    return diagonal_fisher(weights, _told((0.5 * loss if squared else loss for loss in losses), len(data), progress))


def _losses(learner: Learner, module: str, data: Data, device: str, predicted: bool) -> Iterator[Tensor]:
    """The loss of each example, summed over its words."""
    for i in range(len(data)):
        batch = on_device(device, data.__getitems__([i]))
        if predicted:
            with torch.no_grad():
                batch["labels"] = learner(**batch, module=module)["predictions"]
        head = cast("Head", learner.get_submodule(module))
        yield learner(**batch, module=module)["loss"] * head.weight(batch["labels"])


def _told(losses: Iterable[Tensor], total: int, progress: Progress) -> Iterator[Tensor]:
    for i, loss in enumerate(losses, start=1):
        yield loss
        progress("fisher information", i, total)
