"""The label sets to fit on every layer (gold, then draws of controls), and the folds of train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import OUTSIDE, metric, span_part
from probekit.notes import logger
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.statistics.controls import control_task, shuffled_splits
from probekit.statistics.folds import folds, held_out

log = logger(__name__, by_input=True)

CONTROLS = {"words": 3, "texts": 10}
"""Default number of draws of each control."""


@dataclass(frozen=True, slots=True)
class LabelSets:
    """T label sets of the m labelled rows of train and the n labelled rows of dev, the same for every layer.

    Attributes
    ----------
    y, y_dev : np.ndarray
        (T, m) and (T, n), class codes or numbers.
    classes : int
        Number of classes; 0 for numbers.
    train, dev : Labels
        The labels of the labelled rows.
    rows, rows_dev : np.ndarray
        (m,) and (n,), indices of the labelled rows.
    targets : tuple[Mapping[str, str | int | None], ...]
        The columns target and draw of each label set, gold first.
    fold : np.ndarray
        Int (m,), the fold in which each row is held out; -1 for never.
    apart : np.ndarray or None
        Int (m, 2), the folds of the word type and of the sentence of each row, neither of which is fitted on it; None
        if there is only one kind of fold.
    sizes : Mapping[str, int | None]
        Columns n, n_train, left_out_train, left_out_dev (unlabelled), seen_in_train (dev rows that, or whose group,
        train contains too).
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
        """Log losses on dev of predicting each label set's class frequencies in train, float32 (T, n), nats."""
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
        raise UsageError(
            f"too few labelled rows to probe: {len(rows)} in train (2 needed), {len(rows_dev)} in dev (1 needed)."
        )
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
            "%s of %s rows of dev have a label that never occurs in train (%s), so no probe can predict it; ignore the "
            "log loss. Add examples of it to train, or remove these rows from dev.",
            f"{strange:,}", f"{len(dev.y):,}", ", ".join(names),
        )  # fmt: skip
    if options.hold_out_types and train.types is None:
        raise UsageError("hold_out_types needs the word type of each row; these rows are not words.")
    if len(np.unique(train.y)) < 2:
        raise UsageError("all labels in train are the same; a probe needs at least two.")
    targets, y, y_dev = with_controls(train, dev, question, options)
    fold, apart = folded(train, question, options)
    most = max(int(train.y.max()), len(question.label_names) - 1) if question.classify else -1
    if (
        question.classify and int(dev.y.max()) > most
    ):  # another class would change the fit, which must not depend on dev
        raise UsageError(
            f"dev has the class {dev.y.max()}, but train and label_names end at {most}; complete label_names."
        )
    return LabelSets(train, dev, rows, rows_dev, targets, y, y_dev, most + 1, fold, apart, sizes)


def _named(code: int, names: Sequence[str]) -> str:
    return names[code] if 0 <= code < len(names) else str(code)


def _as_labels(y: np.ndarray | Labels, question: Question) -> Labels:
    labels = y if isinstance(y, Labels) else Labels(np.asarray(y, dtype=None if question.classify else np.float64))
    if question.classify and labels.y.dtype.kind not in "iu":
        raise UsageError(
            f"classes must be whole numbers from 0, or -1 for unlabelled; these labels are {labels.y.dtype}."
        )
    return labels


def with_controls(
    train: Labels, dev: Labels, question: Question, options: ProbeOptions
) -> tuple[tuple[Mapping[str, str | int | None], ...], np.ndarray, np.ndarray]:
    """The names of gold labels, shuffled labels and control tasks, and their labels in train and dev."""
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
    """The code of the tag of words outside spans, if a metric counts spans."""
    if not any(metric(name).spans for name in question.metrics):
        return None
    return next((code for code, name in enumerate(question.label_names) if span_part(name) == OUTSIDE), None)


def folded(train: Labels, question: Question, options: ProbeOptions) -> tuple[np.ndarray, np.ndarray | None]:
    """The fold in which each row of train is held out, and the folds not fitted on it: see :class:`LabelSets`.

    With held-out word types, sentences are held out as well: a word is held out in the fold that its type and its
    sentence have in common, and fitted on in the folds of neither.
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
    count = 1 if share is not None else options.folds
    if len(np.unique(fold[fold >= 0])) < count:
        raise UsageError(
            f"for {len(fold)} words, some fold holds out no word type together with its sentence; use fewer folds."
        )
    return fold, apart


def _parted(
    y: np.ndarray, groups: np.ndarray | None, question: Question, options: ProbeOptions, seed: int, share: float | None
) -> np.ndarray:
    """The fold of each row for one kind of groups; with a held-out share there is only one fold."""
    if share is None:
        return folds(y, options.folds, groups=groups, seed=seed, stratify=question.classify)
    return np.where(held_out(y, share, groups=groups, seed=seed, stratify=question.classify), 0, -1)
