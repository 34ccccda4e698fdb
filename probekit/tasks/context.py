"""Document context: the words around a sentence, read along with it (Devlin et al. 2019, section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

from probekit.errors import UsageError

if TYPE_CHECKING:
    from probekit.tasks.task import Example, Split, Task

MOST = 512
"""Words on either side of a sentence, of which an encoder reads as many as it has room for."""


class Context(StrEnum):
    """The context that an encoder reads around a sentence whose words are labelled."""

    NONE = "none"
    DOCUMENT = "document"  # the sentences around it in its document, as far as there is room


def in_context(task: Task, context: Context | str) -> Task:
    """The task with context: the words around each sentence in its document (neighbours in the same group).

    Raises
    ------
    UsageError
        If the words of the task are not labelled, or its data do not name documents.
    """
    from probekit.tasks.task import TaskKind

    if context == Context.NONE:
        return task
    if task.kind is not TaskKind.SEQUENCE_LABELLING:
        raise UsageError(f"{task.name} has one label per text; --context is for tasks with one label per word.")
    if not any(e.group is not None for split in task.splits.values() for e in split):
        raise UsageError(
            f"{task.name} has no document boundaries, which --context document needs. In CoNLL files, mark them with "
            "-DOCSTART- or # newdoc lines; in a task file, name a column (groups = COLUMN)."
        )
    return replace(task, splits={name: _around(split) for name, split in task.splits.items()})


def _around(split: Split) -> Split:
    """Each example with at most ``MOST`` words of its document on either side."""
    from probekit.tasks.task import Split

    contextual: list[Example] = []
    for group, run in groupby(split, key=lambda e: e.group):
        examples = list(run)
        contextual += examples if group is None else _document(examples)
    return Split(split.name, tuple(contextual))


def _document(examples: Sequence[Example]) -> list[Example]:
    words: list[str] = []
    starts = []
    for e in examples:
        starts.append(len(words))
        words += e.words or ()
    ends = [*starts[1:], len(words)]
    return [
        replace(e, before=tuple(words[max(0, a - MOST) : a]), after=tuple(words[b : b + MOST]))
        for e, a, b in zip(examples, starts, ends, strict=True)
    ]
