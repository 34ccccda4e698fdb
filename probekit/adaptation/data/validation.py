"""A held-out part of train for choosing the epoch, so that neither dev nor test is used for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probekit.activations.grouping import stored_groups
from probekit.errors import UsageError
from probekit.statistics.folds import held_out
from probekit.tasks.task import Example, Split, Task, TaskKind

if TYPE_CHECKING:
    from probekit.adaptation.options import TrainOptions

VALIDATION = "validation"
"""The name of the held-out part in rows and files."""

DEFAULT_SHARE = 0.1
"""Share of train for tasks without a dev split."""
AT_RANDOM = (TaskKind.SEQUENCE_LABELLING, TaskKind.MULTI_OUTPUT)
BINS = 10  # equally full bins of numeric labels, which are sampled in proportion


def validation_share(task: Task, dev: str, requested: float | None) -> float | None:
    """The share of train to hold out: the requested one, a tenth if the task has no dev split, or None."""
    if requested is not None:
        return requested
    if dev != "dev" or any(name.startswith("dev") for name in task.splits):
        return None
    return DEFAULT_SHARE


def validation_rows(kind: TaskKind, split: Split, share: float, seed: int) -> np.ndarray:
    """The examples to hold out, bool (n,): about ``share`` of each class, in whole groups.

    Groups are the same as in caches: declared ones, or copies, near copies and pairs that share a sentence. Numbers are
    stratified by tenths, several labels by the set that holds (those of one text alone together); sentences with tagged
    words and texts with several numbers are drawn at random. Each held-out label also remains in the training part.

    Raises
    ------
    UsageError
        If the share is not between 0 and 1, or leaves no example in one of the parts.
    """
    examples = list(split)
    of = stored_groups(examples, kind)[0].get("/groups", np.arange(len(examples)))
    _, first, group = np.unique(of, return_index=True, return_inverse=True)
    strata = _strata(kind, examples)
    held = held_out(strata[first], share, seed=seed, stratify=kind not in AT_RANDOM)[group]
    learned = {label for e, out in zip(examples, held, strict=True) if not out for label in _labels(kind, e)}
    for i in np.flatnonzero(held):
        if missing := {label for label in _labels(kind, examples[i]) if label not in learned}:
            held[group == group[i]] = False
            learned |= missing
    if not held.any():
        raise UsageError(
            f"no example of {split.name} can be held out: each of its {len(held)} examples has a unique label."
        )
    return held


def drawn(split: Split, options: TrainOptions) -> int | None:
    """The number of examples of a training split that ``limit`` or ``fraction`` allow; None for all."""
    return options.limit if options.fraction is None else max(1, round(options.fraction * len(split)))


def set_apart(task: Task, options: TrainOptions) -> tuple[Split, Split, np.ndarray | None]:
    """The training part, the validation part, and which drawn train examples are in the latter, bool (n,) or None.

    Raises
    ------
    UsageError
        For an unknown split, and a share that leaves a part empty.
    """
    train = task.split(options.train)
    train = train.sample(drawn(train, options), options.data_seed)
    if options.validation is None:
        return train, task.split(options.dev), None
    return divided(task.kind, train, options.validation, options.data_seed)


def divided(kind: TaskKind, train: Split, share: float, seed: int) -> tuple[Split, Split, np.ndarray]:
    """Train without the held-out part, that part, and which examples are in it; see :func:`validation_rows`."""
    held = validation_rows(kind, train, share, seed)
    parts = [tuple(e for e, out in zip(train, held, strict=True) if bool(out) is side) for side in (False, True)]
    return Split(train.name, parts[0]), Split(VALIDATION, parts[1]), held


def _labels(kind: TaskKind, example: Example) -> tuple[object, ...]:
    """The labels that a head needs to predict this example."""
    if kind in (TaskKind.REGRESSION, TaskKind.MULTI_OUTPUT):
        return ()
    return example.label if isinstance(example.label, tuple) else (example.label,)


def _strata(kind: TaskKind, examples: list[Example]) -> np.ndarray:
    """int64 (n,): each example's class, its set of labels, the bin of its number, or 0."""
    if kind in AT_RANDOM:
        return np.zeros(len(examples), dtype=np.int64)
    if kind is TaskKind.MULTI_LABEL:
        _, of, count = np.unique([str(e.label) for e in examples], return_inverse=True, return_counts=True)
        return np.where(count[of] == 1, -1, of)
    labels = np.array([np.nan if e.label is None else e.label for e in examples], dtype=np.float64)
    if kind is TaskKind.CLASSIFICATION:
        return np.nan_to_num(labels, nan=-1).astype(np.int64)
    rank = np.argsort(np.argsort(labels, kind="stable"), kind="stable")
    return rank * min(BINS, max(1, len(rank) // 2)) // max(1, len(rank))
