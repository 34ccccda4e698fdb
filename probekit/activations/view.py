"""One cache of the sentences of several tasks, seen as the cache of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from probekit.activations.cache import ActivationCache
from probekit.activations.checked import CheckedFile
from probekit.activations.folder import CheckedFolder
from probekit.activations.grouping import stored_groups
from probekit.activations.label_sets import stored_labels
from probekit.activations.writing.request import data_digest
from probekit.errors import CacheMismatch, UsageError
from probekit.tasks.task import Split, Task
from probekit.tasks.union import input_key

OF_TASK = (
    "/ids",
    "/labels",
    "/label_values",
    "/label_names",
    "/domains",
    "/groups",
    "/group_names",
    "/word_labels",
    "/index/word_count",
)
"""The datasets that the task determines, beside /targets."""
BY_EXAMPLE = ("/truncated", "/index/start", "/index/length", "/index/row_to_unique")
"""The datasets with a row for each example, beside /pooled."""


def view(cache: ActivationCache, task: Task, split: str) -> ActivationCache:
    """The cache of one task; see :meth:`ActivationCache.for_task`."""
    if "limit" not in cache.spec:
        raise CacheMismatch(
            f"{cache.path} is a cache of {cache.spec['task']}; labels of other tasks need a cache of their sentences: "
            f'probekit cache-activations --task "{task.name}+…".'
        )
    part = task.split(split).sample(cache.spec["limit"], int(cache.spec["data_seed"]))
    row_of = {key: row for row, key in enumerate(cache.ids.tolist())}
    rows = np.array([row_of.get(input_key(e, task.kind), -1) for e in part], dtype=np.int64)
    if lacking := int((rows < 0).sum()):
        raise CacheMismatch(
            f"{cache.path} lacks {lacking:,} of the {len(part):,} sentences of {task.name} {split}; it was made of "
            f"{cache.spec['task']}. Create a cache with {task.name} among its tasks, from the same data."
        )
    return TaskView(cache, task, part, rows)


class TaskView(ActivationCache):
    """The rows of a cache that one task reads, with the labels of the task."""

    def __init__(self, cache: ActivationCache, task: Task, part: Split, rows: np.ndarray) -> None:
        groups, self._grouping = stored_groups(part.examples, task.kind)
        self._base, self.path, self.spec_id = cache, cache.path, cache.spec_id
        self.layers, self.sites, self.poolings = cache.layers, cache.sites, cache.poolings
        self.width, self.widths = cache.width, cache.widths
        self._checked: Any = _Overlay(cache._checked, {**stored_labels(task, part), **groups}, rows)
        self.spec = cache.spec | {
            "task": task.name,
            "split": part.name,
            "kind": str(task.kind),
            "n": len(part),
            "label_names": list(task.label_names),
            "metrics": list(task.metrics),
            "source": task.source,
            "licence": task.licence,
            "data_digest": data_digest(part.digest(), task.label_names),
        }

    def close(self) -> None:
        """Nothing: the file belongs to the cache that this is a view of."""

    @property
    def grouping(self) -> dict[str, Any]:
        """As in :class:`ActivationCache`, of the examples of the task."""
        return self._grouping


class _Overlay:
    """The datasets of a file, with those of another task in place of its own."""

    def __init__(self, checked: CheckedFile | CheckedFolder, own: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
        self._base, self._own, self._rows = checked, own, rows
        self.attrs, self.links, self.sentences = checked.attrs, checked.links, checked.sentences
        self.names, self.shape, self.encoded = checked.names, checked.shape, checked.encoded
        self.check_size, self.nbytes = checked.check_size, checked.nbytes

    def __contains__(self, name: str) -> bool:
        if name in OF_TASK or name.startswith("/targets/"):
            return name in self._own
        return name in self._base or name in self.links

    def values(self, name: str, *, mapped: bool = False) -> np.ndarray:
        if name in self._own:
            return self._own[name]
        if name in BY_EXAMPLE or name.startswith("/pooled/"):
            return self._base.values(name, mapped=True)[self._rows]
        return self._base.values(name, mapped=mapped)

    def rows(self, name: str) -> Any:
        if name.startswith("/pooled/"):
            raise UsageError(f"{name} of several tasks is read whole, not row by row.")
        return self._base.rows(name)
