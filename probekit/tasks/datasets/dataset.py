"""What is known of a dataset before it is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from probekit.tasks.task import Example, Split, Task, TaskKind

__all__ = ["Dataset"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset, but for its examples.

    Attributes
    ----------
    name : str
        As on the command line.
    title : str
        For people.
    kind, metrics, label_names, source, licence : TaskKind or tuple[str, ...] or str
        As in :class:`~probekit.tasks.task.Task`.
    sizes : Mapping[str, int]
        Published number of examples of each split.
    shown : str
        Its name in figures, tables and reports, as its authors write it.
    folder : str, default ''
        Usual name of its folder, without regard to case, ``-`` and ``_``.
    """

    name: str
    title: str
    kind: TaskKind
    sizes: Mapping[str, int]
    metrics: tuple[str, ...]
    source: str
    licence: str
    label_names: tuple[str, ...] = ()
    shown: str = field(kw_only=True)
    folder: str = ""

    def task(self, splits: Mapping[str, Sequence[Example]], notes: Sequence[str] = (), *, name: str = "") -> Task:
        """The task with these examples, by the name of their split."""
        return Task(
            name=name or self.name,
            kind=self.kind,
            splits={split: Split(split, tuple(examples)) for split, examples in splits.items()},
            label_names=self.label_names,
            metrics=self.metrics,
            source=self.source,
            licence=self.licence,
            notes=tuple(notes),
        )
