"""The description of a dataset that is known before it is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from probekit.tasks.task import Example, Split, Task, TaskKind

__all__ = ["Dataset"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset without its examples.

    Attributes
    ----------
    name : str
        The name used on the command line.
    title : str
        A readable title.
    kind, metrics, label_names, source, licence : TaskKind or tuple[str, ...] or str
        As in :class:`~probekit.tasks.task.Task`.
    sizes : Mapping[str, int]
        Published number of examples in each split; 0 where none is stated.
    shown : str
        Display name in figures, tables and reports, as the authors write it.
    folder : str, default ''
        Usual name of its folder; case, ``-`` and ``_`` are ignored.
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
        """The task with these examples by split."""
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
