"""What a diagnostic classifier is asked: the labels of a split, their kind, and the metrics to judge by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric

__all__ = ["Labels", "Question"]


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of one split.

    Attributes
    ----------
    y : np.ndarray
        Int (n,) with -1 for unlabelled, or float (n,) with NaN.
    groups : np.ndarray, optional
        Int (n,), rows that are shuffled, held out and resampled as wholes: copies and near copies of an example, the
        domain of each, or the sentence or document of each word; None where every row stands for itself.
    types : np.ndarray, optional
        Int (n,), the word type of each row, numbered alike in train and dev; None where rows are no words.
    ids : np.ndarray, optional
        Str (n,), names of the rows; None for their numbers.
    seen : np.ndarray, optional
        Bool (n,), of dev: whether train has the example too, or one that belongs to its group.
    sentences : np.ndarray, optional
        Int (n,), the sentence of each word, in which spans end; the groups where it is None.
    """

    y: np.ndarray
    groups: np.ndarray | None = None
    types: np.ndarray | None = None
    ids: np.ndarray | None = None
    seen: np.ndarray | None = None
    sentences: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("groups", "types", "ids", "seen", "sentences"):
            if (value := getattr(self, name)) is not None and np.shape(value) != np.shape(self.y):
                raise UsageError(f"{name} {np.shape(value)} do not go with {np.shape(self.y)} labels.")

    @property
    def known(self) -> np.ndarray:
        """Which rows are labelled, bool (n,)."""
        return ~np.isnan(self.y) if self.y.dtype.kind == "f" else self.y >= 0

    def __getitem__(self, rows: np.ndarray) -> Labels:
        return Labels(
            self.y[rows],
            *(None if v is None else v[rows] for v in (self.groups, self.types, self.ids, self.seen, self.sentences)),
        )


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of vectors, the same of every layer.

    Attributes
    ----------
    kind : str
        "classification" and "sequence-labelling" (classes) or "regression" (numbers).
    metrics : tuple[str, ...]
        Names in :data:`probekit.metrics.METRICS`, the main one first; one of them may choose the penalty. "span-f1"
        wants the sentence of each word (``Labels.sentences``) and the names of the tags. The log loss in nats is always
        measured where classes are predicted.
    label_names : tuple[str, ...], default ()
        Of the classes.
    about : Mapping[str, Any], optional
        The columns task, split, model, representation … of the rows.
    """

    kind: str
    metrics: tuple[str, ...]
    label_names: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.metrics:
            raise UsageError("no metric was given.")
        for name in self.metrics:
            metric(name)

    @property
    def classify(self) -> bool:
        """Whether classes are asked for, not numbers."""
        return self.kind != "regression"
