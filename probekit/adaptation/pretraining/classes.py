"""Objectives that predict classes: of pairs, against the other pairs of a batch, and labelled tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.data.text import TextData
from probekit.adaptation.heads.head import Head
from probekit.adaptation.heads.in_batch import ContrastiveHead, ResponseHead
from probekit.adaptation.heads.spec import HeadSpec
from probekit.adaptation.pretraining.corpora.kinds import CorpusKind
from probekit.adaptation.pretraining.objective import Encoded, PretrainingObjective, Requested
from probekit.adaptation.pretraining.scoring import accuracy, guess, most_frequent, of_task, task_metrics
from probekit.adaptation.pretraining.sequences import SequenceData
from probekit.adaptation.training import objective as supervised
from probekit.errors import DataError
from probekit.models import conversion
from probekit.tasks.task import Split, Task, TaskKind

if TYPE_CHECKING:
    from probekit.adaptation.pretraining.options import EncoderOptions


def respond(requested: Requested) -> PretrainingObjective:
    """Whether the second text of a pair belongs to the first; wrong ones are those of other pairs in the batch."""
    options = requested.options
    head = ResponseHead(requested.encoder.width, hidden_size=options.hidden_size, dropout=options.dropout)
    return _in_batch(requested, head)


def contrast(requested: Requested) -> PretrainingObjective:
    """Which of the second texts of a batch belongs to the first, by their cosine."""
    return _in_batch(requested, ContrastiveHead())


def _in_batch(requested: Requested, head: Head) -> PretrainingObjective:
    requested.check(CorpusKind.PAIRS)
    if lone := [split for split, size in requested.size.items() if size < 2]:
        raise DataError(f"{requested.name}: {lone[0]} has one pair; others are needed to choose from.")
    data = [SequenceData(*both) for both in requested.read(0, 1).values()]
    size, two = requested.options.batch_size, isinstance(head, ResponseHead)
    chance = guess(data[1], size, 2 if two else None)
    return requested.made(
        head, data, "accuracy", partial(accuracy, in_batch=True), chance, candidates=2 if two else size
    )


def next_sentence(requested: Requested) -> PretrainingObjective:
    """Whether a sentence follows another; for half of the pairs, the second is that of another pair."""
    requested.check(CorpusKind.PAIRS)
    data = []
    for split, (first, second) in requested.read(0, 1).items():
        draw, n = np.random.default_rng((requested.options.data_seed, split == "dev")), len(first.length)
        if n < 2:
            raise DataError(
                f"{requested.name}: {split} has one pair; others are needed for sentences that do not follow."
            )
        labels = draw.integers(2, size=n)
        other = (np.arange(n) + draw.integers(1, n, size=n)) % n
        data.append(SequenceData(first, second, labels=labels, partner=np.where(labels == 1, np.arange(n), other)))
    return classes(requested, data, ("random", "next"))


def dissent(requested: Requested) -> PretrainingObjective:
    """The discourse marker between two clauses (Nie et al. 2019)."""
    requested.check(CorpusKind.CLAUSES)
    names = tuple(sorted(set(requested.column("train", 2))))
    index, data = {marker: i for i, marker in enumerate(names)}, []
    for split, (first, second) in requested.read(0, 1).items():
        markers = list(requested.column(split, 2))
        if unknown := sorted(set(markers) - set(names)):
            raise DataError(
                f"{requested.name}: {split} has the marker {unknown[0]!r}, which the {requested.size['train']:,} "
                "examples of train lack. Train on more examples (--limit), or take it out of dev."
            )
        data.append(SequenceData(first, second, labels=np.array([index[marker] for marker in markers])))
    return classes(requested, data, names)


def classes(requested: Requested, data: Sequence[SequenceData], names: tuple[str, ...]) -> PretrainingObjective:
    """Classes of pairs of texts."""
    if len(names) < 2:
        raise DataError(f"{requested.name}: all training examples have the same class, {names[0]}.")
    task = TaskSpec(requested.name, TaskKind.CLASSIFICATION, names, ("accuracy",), paired=True)
    head = _max_mlp(requested.encoder, requested.options, apart=True).build(task)
    chance = most_frequent(*(np.asarray(part.labels) for part in data))
    return requested.made(head, data, "accuracy", accuracy, chance, labels=list(names))


def _max_mlp(encoder: Encoded, options: EncoderOptions, *, apart: bool) -> HeadSpec:
    """The classifier of Bowman et al. (2018), without attention."""
    return HeadSpec(
        head="max-mlp", width=encoder.width, pairs_apart=apart, hidden_size=options.hidden_size, dropout=options.dropout
    )


def labelled(
    name: str, task: Task, train: Split, dev: Split, encoder: Encoded, options: EncoderOptions, module: str
) -> PretrainingObjective:
    """A labelled task: sentences, pairs or words."""
    spec = TaskSpec.of_task(task, "train")
    apart = spec.paired and conversion.reads_apart(encoder.model.config.model_type)
    head = _max_mlp(encoder, options, apart=apart)
    head = replace(head, head="softmax", hidden_size=None) if spec.tags else head
    first, second = (TextData(task, part, encoder.reader, apart=apart) for part in (train, dev))
    checked = supervised.Objective(spec, head, first, second, module=module)
    checked.check_labels()
    about = {"labels": list(spec.label_names), "truncated": [first.truncated, second.truncated]}
    score = partial(task_metrics, data=second, task=spec, module=module)
    chance = of_task(spec, first, second)
    return PretrainingObjective(name, head.build(spec), first, second, checked.metric, score, about, chance, module)
