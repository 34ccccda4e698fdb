"""The signals that the options of a training ask for, as terms of its loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.options import Regime, TrainOptions
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.signals.distillation import Distillation, HiddenStates
from probekit.adaptation.signals.teacher import ask, check_teacher, word_counts
from probekit.adaptation.training.objective import Objective, Term, Training
from probekit.errors import CacheMismatch, DataError, UsageError
from probekit.runtime import Progress, no_progress
from probekit.tasks.task import Split, Task

__all__ = ["check_signals", "sources_of", "with_signals"]


def check_signals(options: TrainOptions, task: Task, train: Split) -> None:
    """Raise UsageError, before anything is loaded, if the task and the regime do not allow a requested signal."""
    if options.teacher is not None:
        check_teacher(options, TaskSpec.of_task(task, train.name))
    if options.match_hidden and options.regime is not Regime.FINE_TUNE:
        raise UsageError("--match-hidden trains the encoder's hidden states; leave it out, or --regime fine-tune.")
    if options.match_hidden and options.gradient_checkpointing:
        raise UsageError(
            "--match-hidden needs the hidden states that --gradient-checkpointing discards; leave out one."
        )


def sources_of(options: TrainOptions) -> dict[str, Any]:
    """The identity of what a training reads beside its task and its model; {} without signals."""
    if options.teacher is None:
        return {}
    card = read_card(options.teacher)
    weights = {name: x for name, x in (card.get("digests") or {}).items() if name.endswith(".safetensors")}
    return {"signals": {"teacher": weights}}


def with_signals(training: Training, task: Task, train: Split, *, progress: Progress = no_progress) -> Training:
    """The training with a term for each signal of its options.

    Parameters
    ----------
    task : Task
        Its task.
    train : Split
        The training examples, in the order of the training's data.
    progress : Progress
        Receives the progress of the work.
    """
    options, terms = training.options, list[Term](training.terms)
    if options.teacher is not None:
        terms += _distillation(training, task, train, progress)
    return replace(training, terms=tuple(terms))


def _distillation(training: Training, task: Task, train: Split, progress: Progress) -> list[Term]:
    options, objective = training.options, training.objectives[0]
    if objective.head.head.endswith("crf"):
        raise UsageError(
            f"the head {objective.head.head} scores whole sequences of tags, not single words; distil into --head "
            "softmax or bilstm."
        )
    if options.match_hidden and objective.head.pairs_apart:
        raise UsageError("--match-hidden compares one sequence per example; add --pairs joint.")
    if objective.train.ids.tolist() != [e.id for e in train]:
        raise CacheMismatch(
            f"the cache of {task.name} {train.name} must hold the {len(train)} examples that the teacher reads; it "
            "holds others."
        )
    lesson = ask(options, task, train, progress=progress)
    _check_outputs(options, objective, lesson.logits)
    terms: list[Term] = [Distillation(lesson, options.temperature, options.distillation)]
    if options.match_hidden:
        terms.append(HiddenStates(training.learner, lesson, options.match_hidden))
    return terms


def _check_outputs(options: TrainOptions, objective: Objective, logits: list[Any]) -> None:
    """Raise an error if the teacher's outputs do not correspond to the student's."""
    theirs, ours = logits[0].shape[-1], _outputs(objective)
    if theirs != ours:
        raise UsageError(
            f"the head of the teacher {options.teacher} has {theirs} outputs, the student's head "
            f"{objective.head.head} has {ours}. Choose the same --head for both."
        )
    for i, count in enumerate(word_counts(objective.train.words)):
        if len(logits[i]) != count:
            raise DataError(
                f"the teacher {options.teacher} reads {len(logits[i])} words of example {objective.train.ids[i]!r}, "
                f"the student {count}, because texts are truncated, or words have no pieces. Give another "
                "--max-length, or leave the example out."
            )


def _outputs(objective: Objective) -> int:
    """The number of outputs of a head: for ratings, one per rating."""
    scale = objective.head.scale
    return objective.task.outputs if scale is None else scale[1] - scale[0] + 1
