"""The sentences of several tasks, each once: one cache of them serves all the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from probekit.errors import UsageError
from probekit.tasks.targets import reads_words
from probekit.tasks.task import Example, Split, Task, TaskKind

JOIN = "+"
"""Separates the names of tasks whose sentences are read together."""


def input_key(e: Example, kind: TaskKind) -> str:
    """32 hex digits that are equal for examples of which an encoder reads the same.

    Examples
    --------
    >>> a, b = Example("1", "A cat.", 0), Example("7", "A cat.", 1)
    >>> input_key(a, TaskKind.CLASSIFICATION) == input_key(b, TaskKind.CLASSIFICATION)
    True
    """
    read = (e.before, e.words, e.after) if reads_words(e, kind) else (e.text, e.pair, *([e.chat] if e.chat else []))
    return xxhash.xxh3_128_hexdigest(repr(read).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, repr=False)
class Union(Task):
    """Sentences of several tasks, without labels; the ids are their :func:`input_key`.

    Attributes
    ----------
    parts : tuple[Task, ...], default ()
        The tasks.
    """

    parts: tuple[Task, ...] = ()

    def split(self, name: str, limit: int | None = None, seed: int = 0) -> Split:
        """The distinct sentences of this split of the tasks that have it, of at most ``limit`` examples of each.

        Raises
        ------
        UsageError
            If none has it.
        """
        having = [part for part in self.parts if name in part.splits]
        if not having:
            known = dict.fromkeys(split for part in self.parts for split in part.splits)
            raise UsageError(f"none of {self.name} has a split {name!r}; they have {', '.join(known)}.")
        found: dict[str, Example] = {}
        for part in having:
            for e in part.split(name).sample(limit, seed):
                key = input_key(e, part.kind)
                words = e.words if reads_words(e, part.kind) else None
                found.setdefault(
                    key,
                    Example(
                        key, e.text, None, e.pair, words, group=e.group, before=e.before, after=e.after, chat=e.chat
                    ),
                )
        return Split(name, tuple(found.values()))


def union(name: str, tasks: Sequence[Task]) -> Union:
    """The sentences of several tasks as one task called ``name``, of spans if one of them labels words or spans.

    Raises
    ------
    UsageError
        If the tasks mix pairs of sentences with single sentences: they are encoded differently.
    """
    for task in tasks:
        if not task.kind.cacheable:
            raise UsageError(f"{task.name} is a task of {task.kind}, not of texts to cache; leave it out.")
    pairs = {task.name: any(split.paired for split in task.splits.values()) for task in tasks}
    if len(set(pairs.values())) > 1:
        some = ", ".join(name for name, paired in pairs.items() if paired)
        raise UsageError(f"{some} has pairs of sentences and the others have not; cache them separately.")
    tokens = any(task.kind in (TaskKind.SEQUENCE_LABELLING, TaskKind.SPAN_LABELLING) for task in tasks)
    kind = TaskKind.SPAN_LABELLING if tokens else TaskKind.CLASSIFICATION
    sources = "; ".join(dict.fromkeys(task.source for task in tasks if task.source))
    licences = "; ".join(dict.fromkeys(task.licence for task in tasks if task.licence))
    names = dict.fromkeys(split for task in tasks for split in task.splits)
    splits = {split: Split(split, ()) for split in names}
    return Union(name, kind, splits, (), (), sources, licences, (), tuple(tasks))
