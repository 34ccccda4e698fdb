"""What a teacher says of each training example, computed once."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from probekit.adaptation.data.batches import Batches
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.head import Head
from probekit.adaptation.options import Regime, TrainOptions
from probekit.adaptation.runs.evaluation import load_learner, readable
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.runs.predictions import on_device
from probekit.adaptation.signals.block_states import BlockStates
from probekit.adaptation.signals.options import SignalOptions
from probekit.adaptation.training.learners import Learner
from probekit.adaptation.training.multi_task import card_for
from probekit.errors import UsageError
from probekit.runtime import Progress, no_progress, resolve_device
from probekit.tasks.context import Context
from probekit.tasks.task import Split, Task, TaskKind

__all__ = ["Lesson", "ask", "check_teacher"]


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """The outputs of a teacher for n training examples, in their order.

    Attributes
    ----------
    logits : list[Tensor]
        float32, n tensors (k,), or (words, k) for word tags.
    hidden : Tensor, optional
        float32 (n, blocks, d), the mean of each block's output over the pieces of a text, without special pieces.
    """

    logits: list[Tensor]
    hidden: Tensor | None = None


def check_teacher(folder: str, options: TrainOptions, task: TaskSpec) -> dict[str, Any]:
    """The card of the teacher of a training.

    Parameters
    ----------
    folder : str
        Its run.

    Raises
    ------
    ModelError
        If there is no run.
    UsageError
        If its labels or its context differ, or if its head has no distribution over the classes of one text or word.
    """
    card = card_for(read_card(folder), task.name)
    if "target" not in card:
        raise UsageError(f"{folder} is a language model without a head for a task; give a run of probekit train.")
    learned = TaskSpec.of_card(card)
    if learned.kind != task.kind or learned.label_names != task.label_names:
        raise UsageError(
            f"the teacher {folder} was trained on {learned.name}, which has {_labels(learned)}, but {task.name} has "
            f"{_labels(task)}. Give a teacher with the labels of {task.name}, in the same order."
        )
    if (name := card["head"]["head"]).endswith("crf"):
        raise UsageError(
            f"the head {name} of the teacher {folder} scores whole sequences of tags, not single words, so its "
            "outputs cannot be distilled. Train the teacher with --head softmax or bilstm."
        )
    context = card["encoder"].get("context") or Context.NONE
    if context != options.context:
        raise UsageError(f"the teacher {folder} reads words with --context {context}; the student must read them so.")
    if task.kind is TaskKind.REGRESSION and options.temperature != SignalOptions.temperature:
        raise UsageError(
            f"temperature is {options.temperature:g}, but {task.name} has numbers as labels, which have none; leave it "
            "out."
        )
    return card


@torch.no_grad()  # the outputs of inference mode cannot be learned from
def ask(
    folder: str, options: TrainOptions, task: Task, train: Split, *, hidden: bool = False,
    progress: Progress = no_progress,
) -> Lesson:  # fmt: skip
    """The outputs of the teacher in ``folder`` for the examples of ``train``, which it reads with its own tokenizer.

    Its weights are in memory only meanwhile. Nothing is drawn at random.
    """
    learner, card = load_learner(folder)
    card = card_for(card, task.name)
    if hidden and card["regime"] != Regime.FINE_TUNE:
        raise UsageError(f"{folder} has no encoder of its own; --match-hidden needs a fine-tuned teacher.")
    device = resolve_device(options.device)
    task = replace(task, splits={train.name: train})
    with ExitStack() as stack:
        data = readable(
            stack, folder, learner, card, task, train.name, caches=options.caches, device=device,
            progress=progress,
        )  # fmt: skip
        states = BlockStates(learner.encoder) if hidden else None
        logits: list[Tensor] = [torch.empty(0)] * len(data)
        vectors: list[Tensor] = [torch.empty(0)] * len(data)
        learner.to(device)
        done = 0
        for rows in Batches(data, options.batch_size, shuffle=False):
            batch = on_device(device, data.__getitems__(rows))
            found = _logits(learner, card["module"], batch, folder if hidden else "")
            words = batch["first"].get("words")
            pooled = None if states is None else states.pooled(batch["first"]).cpu()
            for k, i in enumerate(rows):
                logits[i] = found[k] if words is None else found[k][: int((words[k] >= 0).sum())]
                if pooled is not None:
                    vectors[i] = pooled[k]
            done += len(rows)
            progress("asking the teacher", done, len(data))
    return Lesson(logits, torch.stack(vectors) if states is not None else None)


def _logits(learner: Learner, module: str, batch: dict[str, Any], hidden: str) -> Tensor:
    """The outputs for each example; hidden : the teacher's folder if its hidden states are wanted, too."""
    read, head = learner.read(batch["first"], batch.get("second")), cast("Head", learner.get_submodule(module))
    if hidden and read.sequences is not None:
        raise UsageError(f"the teacher {hidden} reads several sequences per example; --match-hidden compares one.")
    return head.of_examples(head(read), read).float().cpu()


def _labels(task: TaskSpec) -> str:
    names = task.label_names
    if not names:
        return "numbers as labels"
    return f"the classes {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"


def word_counts(words: list[tuple[np.ndarray, np.ndarray]] | None) -> list[int]:
    """The number of words with pieces of each example."""
    return [len(first) for first, _ in words or ()]
