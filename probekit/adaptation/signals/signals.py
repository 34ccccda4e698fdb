"""The signals that the options of a training ask for: more examples, and terms of its loss."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from probekit.adaptation.data.options import Long
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.data.text import TextData
from probekit.adaptation.heads.head import Head
from probekit.adaptation.options import Regime, TrainOptions
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.signals.language_model import language_model_loss
from probekit.adaptation.signals.options import Consistency
from probekit.adaptation.signals.teacher import ask, check_teacher, with_pseudo_labels
from probekit.adaptation.signals.terms import CONFIDENCE, ConsistencyTerm, Distillation, HiddenStates, SliceHeads
from probekit.adaptation.signals.unlabelled import Unlabelled, read_unlabelled
from probekit.adaptation.training.groups import moved_weights
from probekit.adaptation.training.objective import Objective, Term, Training
from probekit.errors import CacheMismatch, DataError, UsageError
from probekit.runtime import Progress, no_progress
from probekit.tasks.slices import Slices, read_slices
from probekit.tasks.task import Split, Task, TaskKind

log = logging.getLogger(__name__)

ON_FROZEN = ("teacher", "slice_heads")
"""Signals for which the encoder reads no text in training."""


@dataclass(frozen=True, eq=False)
class Signals:
    """What a training learns from beside the labels of its task.

    Attributes
    ----------
    options : TrainOptions
        Which signals.
    task : Task
        The task.
    train : Split
        The labelled training examples.
    progress : Progress
        Receives the progress of the work.
    evaluated : tuple[Split, ...], default ()
        The examples that the run is evaluated on.
    """

    options: TrainOptions
    task: Task
    train: Split
    progress: Progress = field(default=no_progress)
    evaluated: tuple[Split, ...] = ()

    def __post_init__(self) -> None:
        """Raise UsageError, before anything is loaded, if the task and the regime do not allow a requested signal."""
        options, spec = self.options, TaskSpec.of_task(self.task, self.train.name)
        _ = self.members
        for folder in (options.teacher, options.pseudo_labels):
            if folder is not None:
                check_teacher(folder, options, spec)
        several = not spec.kind.cacheable or spec.marked or options.long is not Long.TRUNCATE
        for name in ("lm_loss", "consistency", "pseudo_labels", "also", "match_hidden"):
            if getattr(options, name) and several:
                raise UsageError(
                    f"{name} is for tasks whose examples are one text or pair, read as it is; {spec.name} is not read "
                    f"so. Leave out --{name.replace('_', '-')}."
                )
        if options.regime is not Regime.FINE_TUNE:
            for name in options.signals():
                if name not in ON_FROZEN:
                    raise UsageError(
                        f"{name} needs the encoder to read text in training, and frozen layers are cached; leave it "
                        "out, or give --regime fine-tune."
                    )
            if options.match_hidden:
                raise UsageError("match_hidden trains the encoder's hidden states; leave it out, or fine-tune.")
        if options.match_hidden and options.gradient_checkpointing:
            raise UsageError(
                "match_hidden needs the hidden states that gradient_checkpointing discards; leave out one."
            )
        if options.slice_heads:
            if spec.kind not in Head.kinds:
                raise UsageError(
                    f"slice_heads are for tasks with classes, labels or numbers of whole examples; {spec.name} is "
                    f"{spec.kind}. Leave them out."
                )
            _ = self.learned()
        if options.pseudo_labels is not None and spec.kind is not TaskKind.CLASSIFICATION:
            raise UsageError(f"pseudo_labels are for tasks with one class per example; {spec.name} is {spec.kind}.")
        if spec.numbers and options.confidence is not None:
            raise UsageError(f"confidence is a probability, and {spec.name} has numbers as labels; leave it out.")

    @cached_property
    def texts(self) -> Split | None:
        """The unlabelled examples, without the texts of the labelled and the evaluated ones."""
        if self.options.unlabelled is None:
            return None
        found = read_unlabelled(self.options, self.task, self.train)
        known = {(e.text, e.pair) for part in (self.train, *self.evaluated) for e in part}
        new = tuple(e for e in found if (e.text, e.pair) not in known)
        if not new:
            raise DataError(f"every text of {self.options.unlabelled} is one that the run trains or is evaluated on.")
        if len(new) < len(found):
            log.info("%d unlabelled texts are left out: they are labelled or evaluated.", len(found) - len(new))
        return Split(found.name, new)

    @cached_property
    def slices(self) -> Slices | None:
        """The slices that the run is evaluated on."""
        return None if self.options.slices is None else read_slices(self.options.slices)

    @cached_property
    def members(self) -> tuple[dict[str, frozenset[str]], ...]:
        """The ids of the examples of each slice, in each of the evaluated parts."""
        return () if self.slices is None else tuple(self.slices.members(self.task, part) for part in self.evaluated)

    def learned(self, train: Split | None = None) -> dict[str, frozenset[str]]:
        """The ids of the training examples of each slice; train : these examples, if not the labelled ones."""
        return {} if self.slices is None else self.slices.members(self.task, train or self.train)

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of what is read beside task and model; {} if nothing is."""
        found: dict[str, Any] = {}
        for name in ("teacher", "pseudo_labels"):
            if (folder := getattr(self.options, name)) is not None:
                digests = read_card(folder).get("digests") or {}
                found[name] = {file: x for file, x in digests.items() if file.endswith(".safetensors")}
        if self.texts is not None:
            found["unlabelled"] = self.texts.digest()
        if self.slices is not None:
            found["slices"] = self.slices.digest
        return {"signals": found} if found else {}

    def examples(self) -> tuple[Split, dict[str, Any]]:
        """The training examples, with pseudo-labelled ones, and what the card says of these."""
        if self.options.pseudo_labels is None or self.texts is None:
            return self.train, {}
        more = with_pseudo_labels(self.options, self.task, self.train, self.texts, progress=self.progress)
        return more[0], {"pseudo_labels": more[1]}

    def _least(self) -> float:
        """The confidence from which a text counts for consistency; numbers have none, nor have ratings."""
        if self.task.kind in (TaskKind.REGRESSION, TaskKind.MULTI_OUTPUT):
            return 0.0
        return CONFIDENCE if self.options.confidence is None else self.options.confidence

    def added(self, training: Training, train: Split | None = None) -> Training:
        """The training with a term for each signal.

        Parameters
        ----------
        train : Split, optional
            The training examples in the order of the training's data, if they are not the labelled ones.
        """
        training = replace(training, slices=dict(zip(("dev", "test"), self.members, strict=False)))
        options, terms = training.options, list[Term](training.terms)
        _check_effect(training)
        if options.teacher is not None:
            terms += _distillation(training, self.task, train or self.train, self.progress)
        if options.slice_heads:
            terms.append(SliceHeads(training.learner, training.objectives[0], self.learned(train), options.slice_heads))
        if not options.lm_loss and options.consistency is None:
            return replace(training, terms=tuple(terms))
        texts, data = None, training.objectives[0].train
        if self.texts is not None:
            assert isinstance(data, TextData)
            texts = Unlabelled(self.task, self.texts, data, options.batch_size, options.seed)
        if options.lm_loss:
            assert training.source is not None
            term = language_model_loss(
                training.learner, training.source, weight=options.lm_loss, anneal=options.lm_anneal,
                seed=options.seed, texts=texts,
            )  # fmt: skip
            terms.append(term)
        if options.consistency is not None:
            assert texts is not None
            _check_dropout(training)
            terms.append(ConsistencyTerm(texts, options, self._least()))
        return replace(training, terms=tuple(terms))


def _check_effect(training: Training) -> None:
    """Raise UsageError for signals that train only the encoder's layers if none of these is ever trained."""
    options = training.options
    if not (options.lm_loss or options.match_hidden):
        return
    if all("pooler" in name.split(".") for name in moved_weights(training.learner.groups(), options)):
        name = "lm-loss" if options.lm_loss else "match-hidden"
        raise UsageError(
            f"--{name} trains the encoder's layers, and this run trains none of them. Leave it out, or choose another "
            "--unfreezing or --order."
        )


def _check_dropout(training: Training) -> None:
    """Warn of consistency under dropout if nothing is dropped, so that both passes are the same."""
    rates = (getattr(one, name, 0.0) for one in training.learner.modules() for name in ("p", "dropout"))
    if training.options.consistency is Consistency.DROPOUT and not any(
        isinstance(rate, float) and rate > 0 for rate in rates
    ):
        log.warning(
            "--consistency dropout compares two passes with dropout, and this run has none, so both are alike and it "
            "adds nothing; give --consistency word-deletion."
        )


def _distillation(training: Training, task: Task, train: Split, progress: Progress) -> list[Term]:
    options, objective = training.options, training.objectives[0]
    if objective.head.head.endswith("crf"):
        raise UsageError(
            f"the head {objective.head.head} scores whole sequences of tags, not single words; distil into --head "
            "softmax or bilstm."
        )
    if options.match_hidden and objective.head.pairs_apart:
        raise UsageError("match_hidden compares one sequence per example; add --pairs joint.")
    if objective.train.ids.tolist() != [e.id for e in train]:
        raise CacheMismatch(
            f"the cache of {task.name} {train.name} must hold the {len(train)} examples that the teacher reads; it "
            "holds others."
        )
    lesson = ask(str(options.teacher), options, task, train, hidden=options.match_hidden > 0, progress=progress)
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
    for i, (words, _) in enumerate(objective.train.words or ()):
        if len(logits[i]) != (count := len(words)):
            raise DataError(
                f"the teacher {options.teacher} reads {len(logits[i])} words of example {objective.train.ids[i]!r}, "
                f"the student {count}, because texts are truncated, or words have no pieces. Give another "
                "--max-length, or leave the example out."
            )


def _outputs(objective: Objective) -> int:
    """The number of outputs of a head: for ratings, one per rating."""
    scale = objective.head.scale
    return objective.task.outputs if scale is None else scale[1] - scale[0] + 1
