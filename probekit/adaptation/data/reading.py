"""How the examples of a task become sequences of a model, by the kind of task and the options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from probekit.adaptation.data.batches import Data
from probekit.adaptation.data.options import Long, ReadingOptions
from probekit.adaptation.data.responses import ResponseData
from probekit.adaptation.data.sequences import AnswerData, ChoiceData, HeadAndTail, WindowData
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.data.text import MarkedData, TextData, windows_reader
from probekit.adaptation.heads.head import Head
from probekit.adaptation.heads.spec import HeadSpec
from probekit.errors import UsageError
from probekit.models import conversion
from probekit.models.loading import TextReader
from probekit.tasks.task import Split, Task, TaskKind

if TYPE_CHECKING:
    from probekit.adaptation.options import Hyperparameters

READING = ("long", "overlap", "decoding", "max_new_tokens")


def data_for(
    task: Task, split: Split, reader: TextReader, options: ReadingOptions, head: HeadSpec, *, seed: int = 0
) -> Data:
    """A split as training data for a head; seed : of sampled responses."""
    if head.end is not None:
        return ResponseData(
            task, split, reader, end=head.end, decoding=options.decoding, most=options.max_new_tokens, seed=seed
        )
    if task.kind is TaskKind.QUESTION_ANSWERING:
        return AnswerData(task, split, reader, overlap=options.overlap)
    if task.kind is TaskKind.MULTIPLE_CHOICE:
        return ChoiceData(task, split, reader)
    if head.head == "marked":
        return MarkedData(task, split, reader, apart=head.pairs_apart)
    if options.long in (Long.WINDOWS, Long.HIERARCHICAL):
        return WindowData(task, split, reader, overlap=options.overlap)
    if options.long is Long.HEAD_TAIL:
        reader = HeadAndTail(windows_reader(reader, "--long head-tail"))
    return TextData(task, split, reader, apart=head.pairs_apart)


def data_as_in(card: Mapping[str, Any], task: Task, split: Split, reader: TextReader) -> Data:
    """A split as the run with this card reads it."""
    options = ReadingOptions(**{k: v for k, v in card["encoder"].items() if k in READING})
    return data_for(task, split, reader, options, HeadSpec.of_card(card), seed=card["seeds"]["seed"] or 0)


def check_reading(options: Hyperparameters, task: TaskSpec, model_type: str) -> None:
    """Raise UsageError for options that do not fit the task, and for models that cannot read it."""
    single = task.kind in Head.kinds and not task.paired and not task.marked
    if options.long is not Long.TRUNCATE and not single:
        raise UsageError(f"--long {options.long} is for the classification of single texts, which {task.name} is not.")
    if options.overlap is not None and not task.answers and options.long not in (Long.WINDOWS, Long.HIERARCHICAL):
        raise UsageError("overlap is for questions, --long windows and --long hierarchical; leave it out.")
    if (options.decoding or options.max_new_tokens) and not task.responses:
        raise UsageError("decoding and max_new_tokens are for tasks of responses; leave them out.")
    several = options.long in (Long.WINDOWS, Long.HIERARCHICAL) or not task.kind.cacheable
    if options.teacher is not None and task.answers:
        raise UsageError("--teacher teaches classes, tags and numbers; leave it out for questions.")
    if options.match_hidden and several:
        raise UsageError("--match-hidden compares one sequence per example; here an example is several. Leave it out.")
    if not task.kind.cacheable and conversion.reads_apart(model_type):
        raise UsageError(f"{model_type} reads one sentence at a time, but {task.kind} needs pairs in one sequence.")


def reading_of(options: ReadingOptions) -> dict[str, Any]:
    """The options for a card, by which other texts are read in the same way; only those that are not defaults."""
    given = {name: getattr(options, name) for name in READING}
    return {name: value for name, value in given.items() if value != getattr(ReadingOptions(), name)}
