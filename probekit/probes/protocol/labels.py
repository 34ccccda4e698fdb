"""The question for a diagnostic classifier: the labels of a split, their kind, and the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of one split.

    Attributes
    ----------
    y : np.ndarray
        Int (n,) with -1 for unlabelled, or float (n,) with NaN.
    groups : np.ndarray, optional
        Int (n,), groups of rows that are shuffled, held out and resampled as a whole: copies and near copies of an
        example, domains, or the sentences or documents of words; None if every row is independent.
    types : np.ndarray, optional
        Int (n,), the word type of each row, numbered in the same way in train and dev; None if rows are not words.
    ids : np.ndarray, optional
        Str (n,), names of the rows (default: their numbers).
    seen : np.ndarray, optional
        Bool (n,), for dev: whether train contains the example, or an example of its group.
    sentences : np.ndarray, optional
        Int (n,), the sentence of each word, which bounds spans (default: ``groups``).
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
                raise UsageError(
                    f"{name} must have the shape of the labels, {np.shape(self.y)}, not {np.shape(value)}."
                )

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
    """The prediction problem, the same for every layer.

    Attributes
    ----------
    kind : str
        "classification" and "sequence-labelling" (classes) or "regression" (numbers).
    metrics : tuple[str, ...]
        Names in :data:`probekit.metrics.METRICS`, the main one first; one of them may choose the penalty. "span-f1"
        needs the sentence of each word (``Labels.sentences``) and the names of the tags. For classes, the log loss in
        nats is always measured.
    label_names : tuple[str, ...], default ()
        Names of the classes.
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
            if name.startswith("recall-at-fpr") and len(self.label_names) > 2:
                raise UsageError(
                    f"{name} is for two classes, and these labels have {len(self.label_names)}; use auroc or "
                    "average-precision, which are means over the classes."
                )
        if metric(self.metrics[0]).name == "calibration-error-15":
            raise UsageError(
                "calibration-error-15 says how far probabilities are off, not how good a probe is; name another metric "
                f"before it, such as accuracy,{self.metrics[0]}."
            )

    @property
    def classify(self) -> bool:
        """Whether the labels are classes, not numbers."""
        return self.kind != "regression"
