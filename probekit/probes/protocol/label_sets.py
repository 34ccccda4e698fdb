"""The label sets that every layer is asked for: gold, then draws of controls; and how train is folded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import OUTSIDE, metric, span_part
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

    Attributes
    ----------
    y, y_dev : np.ndarray
        (T, m) and (T, n), codes of classes, or numbers.
    classes : int
        How many; 0 for numbers.
    train, dev : Labels
        Of the labelled rows.
    rows, rows_dev : np.ndarray
        (m,) and (n,), where the labelled rows stand among all.
    targets : tuple[Mapping[str, str | int | None], ...]
        The columns target and draw of each label set, gold first.
    fold : np.ndarray
        Int (m,), in which each row is held out, -1 for never.
    apart : np.ndarray or None
        Int (m, 2), the folds of its word type and of its sentence, which both do without it; None where these are one.
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
    apart: np.ndarray | None
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
    targets, y, y_dev = _with_controls(train, dev, question, options)
    fold, apart = _folded(train, question, options)
    most = max(int(train.y.max()), len(question.label_names) - 1) if question.classify else -1
    if question.classify and int(dev.y.max()) > most:  # another class would change the fit, and dev has no say in that
        raise UsageError(f"dev has the class {dev.y.max()}, train and label_names end at {most}; name all classes.")
    return LabelSets(train, dev, rows, rows_dev, targets, y, y_dev, most + 1, fold, apart, sizes)


def _named(code: int, names: Sequence[str]) -> str:
    return names[code] if 0 <= code < len(names) else str(code)


def _as_labels(y: np.ndarray | Labels, question: Question) -> Labels:
    labels = y if isinstance(y, Labels) else Labels(np.asarray(y, dtype=None if question.classify else np.float64))
    if question.classify and labels.y.dtype.kind not in "iu":
        raise UsageError(f"classes are whole numbers from 0, -1 for unlabelled; these labels are {labels.y.dtype}.")
    return labels


def _with_controls(
    train: Labels, dev: Labels, question: Question, options: ProbeOptions
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
        types = train.types, dev.types
        sets.append(control_task(*types, train.y, k, options.seed, outside=_outside(question)))  # type: ignore[arg-type]
    y, y_dev = (np.concatenate(parts) for parts in zip(*sets, strict=True))
    return tuple(targets), y, y_dev


def _outside(question: Question) -> int | None:
    """The code of the tag of words in no span, where spans are counted."""
    if not any(metric(name).spans for name in question.metrics):
        return None
    return next((code for code, name in enumerate(question.label_names) if span_part(name) == OUTSIDE), None)


def _folded(train: Labels, question: Question, options: ProbeOptions) -> tuple[np.ndarray, np.ndarray | None]:
    """In which fold each row of train is held out, and which folds do without it: see :class:`LabelSets`.

    Of word types that are held out, the sentences are held out as well: a word is held out where the folds of its type
    and of its sentence are the same, and fitted on where neither is held out.
    """
    if not options.hold_out_types:
        return _parted(train.y, train.groups, question, options, options.seed, options.held_out), None
    share = options.held_out
    if train.groups is None:
        return _parted(train.y, train.types, question, options, options.seed, share), None
    share = None if share is None else share**0.5
    ways = ((train.types, options.seed), (train.groups, options.seed + 1))
    apart = np.stack([_parted(train.y, groups, question, options, seed, share) for groups, seed in ways], axis=1)
    fold = np.where(apart[:, 0] == apart[:, 1], apart[:, 0], -1)
    wanted = 1 if share is not None else options.folds
    if len(np.unique(fold[fold >= 0])) < wanted:
        raise UsageError(f"of {len(fold)} words no type is held out with its sentence in some fold; take fewer folds.")
    return fold, apart


def _parted(
    y: np.ndarray, groups: np.ndarray | None, question: Question, options: ProbeOptions, seed: int, share: float | None
) -> np.ndarray:
    """The fold of each row by one kind of groups; of a share that is held out, the only one."""
    if share is None:
        return folds(y, options.folds, groups=groups, seed=seed, stratify=question.classify)
    return np.where(held_out(y, share, groups=groups, seed=seed, stratify=question.classify), 0, -1)
