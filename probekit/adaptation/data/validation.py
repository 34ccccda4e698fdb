"""A part of train that is set apart, so that what is chosen is chosen by neither dev nor test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probekit.activations.grouping import stored_groups
from probekit.errors import UsageError
from probekit.statistics.folds import held_out
from probekit.tasks.task import Example, Split, Task, TaskKind

if TYPE_CHECKING:
    from probekit.adaptation.options import TrainOptions

__all__ = ["DEFAULT_SHARE", "VALIDATION", "set_apart", "validation_rows", "validation_share"]

VALIDATION = "validation"
"""What the part of train is called in rows and files."""

DEFAULT_SHARE = 0.1
"""Of train, where a task has nothing to choose by."""

BINS = 10  # of a number, equally full: each gives its share


def validation_share(task: Task, dev: str, asked: float | None) -> float | None:
    """The share of train to set apart: what is asked for, a tenth where the task has no dev split, or None."""
    if asked is not None:
        return asked
    if dev != "dev" or any(name.startswith("dev") for name in task.splits):
        return None
    return DEFAULT_SHARE


def validation_rows(kind: TaskKind, split: Split, share: float, seed: int) -> np.ndarray:
    """Which examples are set apart, bool (n,): about ``share`` of each class, groups as wholes.

    Groups are those of caches: declared ones, or copies, near copies and pairs that share a sentence. Of numbers each
    tenth gives its share; sentences whose words are tagged are drawn by chance. Each label that is set apart is learned
    from, too.

    Raises
    ------
    UsageError
        Where the share is not within 0 and 1, or comes to no example or to all of them.
    """
    examples = list(split)
    of = stored_groups(examples, kind)[0].get("/groups", np.arange(len(examples)))
    _, first, group = np.unique(of, return_index=True, return_inverse=True)
    strata = _strata(kind, examples)
    held = held_out(strata[first], share, seed=seed, stratify=kind is not TaskKind.SEQUENCE_LABELLING)[group]
    learned = {label for e, out in zip(examples, held, strict=True) if not out for label in _labels(kind, e)}
    for i in np.flatnonzero(held):
        if missing := {label for label in _labels(kind, examples[i]) if label not in learned}:
            held[group == group[i]] = False
            learned |= missing
    if not held.any():
        raise UsageError(f"of {len(held)} examples of {split.name} none can be set apart; a label has but one.")
    return held


def set_apart(task: Task, options: TrainOptions) -> tuple[Split, Split, np.ndarray | None]:
    """What is learned from, what is chosen by; and which of the drawn train examples the latter are, bool (n,) or None.

    Raises
    ------
    UsageError
        For a split that there is not, and a share that comes to nothing.
    """
    train = task.split(options.train).sample(options.limit, options.data_seed)
    if options.validation is None:
        return train, task.split(options.dev), None
    held = validation_rows(task.kind, train, options.validation, options.data_seed)
    parts = [tuple(e for e, out in zip(train, held, strict=True) if bool(out) is side) for side in (False, True)]
    return Split(train.name, parts[0]), Split(VALIDATION, parts[1]), held


def _labels(kind: TaskKind, example: Example) -> tuple[object, ...]:
    """The labels that a head has to know, to predict this example."""
    if kind is TaskKind.REGRESSION:
        return ()
    return example.label if isinstance(example.label, tuple) else (example.label,)


def _strata(kind: TaskKind, examples: list[Example]) -> np.ndarray:
    """int64 (n,): each example's class, the bin of its number, or 0."""
    if kind is TaskKind.SEQUENCE_LABELLING:
        return np.zeros(len(examples), dtype=np.int64)
    labels = np.array([np.nan if e.label is None else e.label for e in examples], dtype=np.float64)
    if kind is TaskKind.CLASSIFICATION:
        return np.nan_to_num(labels, nan=-1).astype(np.int64)
    rank = np.argsort(np.argsort(labels, kind="stable"), kind="stable")
    return rank * min(BINS, max(1, len(rank) // 2)) // max(1, len(rank))
