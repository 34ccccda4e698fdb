"""Self-training: a teacher labels unlabelled texts, and the student trains on those of which it is sure."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from probekit.adaptation.options import TrainOptions
from probekit.adaptation.signals.teacher import ask
from probekit.errors import DataError
from probekit.runtime import Progress, no_progress
from probekit.tasks.task import Split, Task

__all__ = ["CONFIDENCE", "with_pseudo_labels"]

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
