"""The label sets that every layer is asked for: gold, then draws of controls; and how train is folded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probekit.errors import UsageError
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.statistics.controls import control_task, shuffled_splits
from probekit.statistics.folds import folds, held_out

__all__ = ["LabelSets", "label_sets"]

log = logging.getLogger(__name__)

CONTROLS = {"words": 3, "texts": 10}
"""Draws of each control where none are asked for."""


@dataclass(frozen=True, slots=True)
class LabelSets:
    """T label sets of the m labelled rows of train and the n labelled ones of dev, the same for every layer.

    y (T, m), y_dev (T, n) : codes of classes, or numbers; classes : how many, 0 for numbers

    Attributes
    ----------
    train, dev : Labels
        Of the labelled rows; rows (m,), rows_dev (n,) : where they stand among all.
    targets : tuple[Mapping[str, str | int | None], ...]
        The columns target and draw of each label set, gold first.
    fold : np.ndarray
        Int (m,), in which each row is held out, -1 for never.
    sizes : Mapping[str, int | None]
        Columns n, n_train, left_out_train, left_out_dev (unlabelled), seen_in_train (dev rows that train
        has too, or whose group it has).
    """

    train: Labels
    dev: Labels
    rows: np.ndarray
    rows_dev: np.ndarray
    targets: tuple[Mapping[str, str | int | None], ...]
    y: np.ndarray
    y_dev: np.ndarray
    classes: int
    fold: np.ndarray
    sizes: Mapping[str, int | None]

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def prior_loss(self) -> np.ndarray:
        """Log losses on dev of the shares that each set's classes have in train, float32 (T, n), nats."""
        count = np.stack([np.bincount(y, minlength=self.classes) for y in self.y])
        loss = -np.log(np.maximum(count, 0.5) / count.sum(1, keepdims=True)).astype(np.float32)
        return np.take_along_axis(loss, self.y_dev, 1)


def label_sets(
    train: np.ndarray | Labels, dev: np.ndarray | Labels, question: Question, options: ProbeOptions
) -> LabelSets:
    """Gold labels and controls of the labelled rows; UsageError for labels that cannot be probed."""
    train, dev = (_as_labels(y, question) for y in (train, dev))
    rows, rows_dev = np.flatnonzero(train.known), np.flatnonzero(dev.known)
    if len(rows_dev) == 0 or len(rows) < 2:
        raise UsageError(f"{len(rows)} labelled rows in train and {len(rows_dev)} in dev: too few to probe.")
    sizes = {
        "n": len(rows_dev),
        "n_train": len(rows),
        "left_out_train": len(train.y) - len(rows),
        "left_out_dev": len(dev.y) - len(rows_dev),
        "seen_in_train": None if dev.seen is None else int(dev.seen[rows_dev].sum()),
    }
    train, dev = train[rows], dev[rows_dev]
    if question.classify and (strange := int((~np.isin(dev.y, train.y)).sum())):
        names = [_named(c, question.label_names) for c in np.setdiff1d(dev.y, train.y)]
        log.warning(
            "%d of dev have a label that train lacks (%s); no probe can know it, and their log loss says little.",
            strange, ", ".join(names),
        )  # fmt: skip
    if options.hold_out_types and train.types is None:
        raise UsageError("hold_out_types wants the word type of each row; these rows are no words.")
    if len(np.unique(train.y)) < 2:
        raise UsageError("all labels in train are the same; there is nothing to tell apart.")
    targets, y, y_dev = _with_controls(train, dev, options)
    fold = _folded(train, question, options)
    most = max(int(train.y.max()), len(question.label_names) - 1) if question.classify else -1
    if question.classify and int(dev.y.max()) > most:  # another class would change the fit, and dev has no say in that
        raise UsageError(f"dev has the class {dev.y.max()}, train and label_names end at {most}; name all classes.")
    return LabelSets(train, dev, rows, rows_dev, targets, y, y_dev, most + 1, fold, sizes)


def _named(code: int, names: Sequence[str]) -> str:
    return names[code] if 0 <= code < len(names) else str(code)


def _as_labels(y: np.ndarray | Labels, question: Question) -> Labels:
    labels = y if isinstance(y, Labels) else Labels(np.asarray(y, dtype=None if question.classify else np.float64))
    if question.classify and labels.y.dtype.kind not in "iu":
        raise UsageError(f"classes are whole numbers from 0, -1 for unlabelled; these labels are {labels.y.dtype}.")
    return labels


def _with_controls(
    train: Labels, dev: Labels, options: ProbeOptions
) -> tuple[tuple[Mapping[str, str | int | None], ...], np.ndarray, np.ndarray]:
    """Gold labels, shuffled ones and control tasks: what they are called, and those of train and dev."""
    words = train.types is not None and dev.types is not None
    k = CONTROLS["words" if words else "texts"] if options.controls is None else options.controls
    targets: list[Mapping[str, str | int | None]] = [{"target": "gold", "draw": None}]
    sets = [(train.y[None], dev.y[None])]
    if k:
        targets += [{"target": "shuffled", "draw": i} for i in range(k)]
        groups = train.groups, dev.groups
        sets.append(shuffled_splits(train.y, dev.y, k, options.seed, groups=groups, ordered=words))
    if k and words:
        targets += [{"target": "control-task", "draw": i} for i in range(k)]
        sets.append(control_task(train.types, dev.types, train.y, k, options.seed))  # type: ignore[arg-type]
    y, y_dev = (np.concatenate(parts) for parts in zip(*sets, strict=True))
    return tuple(targets), y, y_dev


def _folded(train: Labels, question: Question, options: ProbeOptions) -> np.ndarray:
    """In which fold each row of train is held out; of a share that is held out, in the only one."""
    groups = train.types if options.hold_out_types else train.groups
    if options.held_out is None:
        return folds(train.y, options.folds, groups=groups, seed=options.seed, stratify=question.classify)
    share = held_out(train.y, options.held_out, groups=groups, seed=options.seed, stratify=question.classify)
    return np.where(share, 0, -1)
