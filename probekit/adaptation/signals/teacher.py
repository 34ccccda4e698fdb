"""What a teacher says of each example, computed once: for distillation, and as labels of unlabelled texts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from probekit.adaptation.data.batches import Batches
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.head import Head
from probekit.adaptation.options import Regime, TrainOptions
from probekit.adaptation.runs.evaluation import load_learner, readable
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.runs.predictions import on_device
from probekit.adaptation.signals.options import SignalOptions
from probekit.adaptation.training.learners import Learner
from probekit.adaptation.training.multi_task import card_for
from probekit.errors import DataError, UsageError
from probekit.models.adapted.virtual import prompt_tokens
from probekit.models.transformers.blocks import find_blocks
from probekit.runtime import Progress, no_progress, resolve_device
from probekit.tasks.context import Context
from probekit.tasks.task import Split, Task


class BlockStates:
    """Hooks on the blocks of an encoder that hold what each block put out last.

    Attributes
    ----------
    depth : int
        Number of blocks.
    """

    def __init__(self, encoder: nn.Module) -> None:
        blocks = find_blocks(encoder)
        self._before = prompt_tokens(encoder)
        self.depth = len(blocks)
        self._last: dict[int, Tensor] = {}
        for i, block in enumerate(blocks):
            block.register_forward_hook(self._hold(i))

    def _hold(self, i: int) -> Any:
        def hook(_: nn.Module, __: Any, out: Any) -> None:
            self._last[i] = out if isinstance(out, Tensor) else out[0]

        return hook

    def pooled(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The mean of each block's output over the pieces of each sequence, (b, blocks, d), which is then released.

        Special pieces and padding are left out.

        Parameters
        ----------
        inputs : Mapping[str, Tensor]
            ``attention_mask`` and ``special`` (b, t) of the call.
        """
        kept = ((inputs["attention_mask"] > 0) & ~inputs["special"]).unsqueeze(-1)
        count = kept.sum(1).clamp_min(1)
        means = [self._last[i][:, self._before :].masked_fill(~kept, 0.0).sum(1) / count for i in range(self.depth)]
        self._last.clear()
        return torch.stack(means, 1)


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
        theirs, ours = learned.labels_in_words, task.labels_in_words
        raise UsageError(
            f"the teacher {folder} was trained on {learned.name}, which has {theirs}, but {task.name} has {ours}. Give "
            f"a teacher with the labels of {task.name}, in the same order."
        )
    if (name := card["head"]["head"]).endswith("crf"):
        raise UsageError(
            f"the head {name} of the teacher {folder} scores whole sequences of tags, not single words, so its "
            "outputs cannot be distilled. Train the teacher with --head softmax or bilstm."
        )
    context = card["encoder"].get("context") or Context.NONE
    if context != options.context:
        raise UsageError(f"the teacher {folder} reads words with --context {context}; the student must read them so.")
    if task.numbers and options.temperature != SignalOptions.temperature:
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
            stack, folder, learner, card, task, train.name, caches=options.caches, device=device, progress=progress
        )
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


log = logging.getLogger(__name__)

CONFIDENCE = 0.9


def with_pseudo_labels(
    options: TrainOptions, task: Task, train: Split, texts: Split, *, progress: Progress = no_progress
) -> tuple[Split, dict[str, int]]:
    """The training examples with the confidently labelled texts, and the number of the latter by class.

    A text gets the teacher's most likely class if its probability is at least ``options.confidence`` (default .9). It
    warns if one class takes all.

    Raises
    ------
    DataError
        If the teacher is sure of no text.
    """
    least = CONFIDENCE if options.confidence is None else options.confidence
    lesson = ask(str(options.pseudo_labels), options, task, texts, progress=progress)
    shares, classes = torch.stack(lesson.logits).softmax(-1).max(-1)
    sure = [
        replace(e, label=int(label))
        for e, share, label in zip(texts, shares.tolist(), classes.tolist(), strict=True)
        if share >= least
    ]
    if not sure:
        raise DataError(
            f"the teacher {options.pseudo_labels} is sure of none of the {len(texts):,} unlabelled texts: its highest "
            f"probability is {float(shares.max()):.3f}, and the confidence is {least:g}. Lower --confidence, or give "
            "other text."
        )
    counts = {name: sum(e.label == i for e in sure) for i, name in enumerate(task.label_names)}
    if max(counts.values()) == len(sure):
        (only,) = [name for name, count in counts.items() if count]
        log.warning("all %d texts that the teacher labels have the class %s.", len(sure), only)
    return Split(train.name, (*train.examples, *sure)), counts
