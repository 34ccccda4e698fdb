"""What a diagnostic classifier is given: how it is fitted, labels of a split, inputs that need no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probekit.errors import UsageError
from probekit.probes.protocol.selection import Estimator

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["LOG_LOSS", "Inputs", "Labels", "Options"]

LOG_LOSS = "log-loss"


@dataclass(frozen=True, slots=True)
class Options:
    """How the probes are fitted.

    estimator : what is fitted; for None logistic regression, or ridge regression for numbers
    penalties : its settings: C of logistic regression (inverse strength), alpha of ridge regression, weight decay of
        the MLP, k of k-sparse probes, shrinkage of the difference of means; None for the estimator's own grid. Of
        equally good ones the strongest is taken. Features are standardised.
    choose_by : "log-loss" (squared error for numbers), or a metric's name; accuracy picks the majority class where
        classes are unequal. folds : of train, which choose the setting; whole groups each
    held_out : instead of folds, one share of train
    hold_out_domains : hold out whole domains of train (templates, documents, genres), for when examples of one domain
        resemble each other, so that its other examples would give an answer away
    hold_out_types : hold out whole word types, so that a word's label is not known by heart when the penalty is chosen
    balanced : give all classes the same weight in the fit. Log losses are then those of balanced probabilities
    controls : how often labels are shuffled, and how many control tasks are made where words are labelled; None for 10
        (3 where words are labelled), 0 for none
    calibrate : also rows of calibration error and Brier score, before and after temperature scaling
    seed : of folds, controls and resamples
    resamples : of the bootstrap; 0 for no interval. level : its coverage
    max_iter : of the solver
    threads : layers fitted at a time, None for one a core; the numbers do not depend on it
    """

    estimator: Estimator | str | None = None
    penalties: tuple[float, ...] | None = None
    choose_by: str = LOG_LOSS
    folds: int = 5
    held_out: float | None = None
    hold_out_domains: bool = False
    hold_out_types: bool = False
    balanced: bool = False
    controls: int | None = None
    calibrate: bool = False
    seed: int = 0
    resamples: int = 1000
    level: float = 0.95
    max_iter: int = 5000
    threads: int | None = None

    def __post_init__(self) -> None:
        numbers = self.penalties is None or not isinstance(self.penalties, str)
        if not numbers or (self.penalties is not None and not all(0 < p < np.inf for p in self.penalties or (0,))):
            raise UsageError(f"penalties are positive numbers, not {self.penalties!r}.")
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise UsageError(f"held_out is a share between 0 and 1, not {self.held_out}.")
        if self.controls is not None and self.controls < 0:
            raise UsageError(f"controls are counted from 0, not {self.controls}.")
        if self.estimator is not None and self.estimator not in list(Estimator):
            raise UsageError(f"estimator is {', '.join(Estimator)}, not {self.estimator!r}.")
        object.__setattr__(self, "estimator", None if self.estimator is None else Estimator(self.estimator))
        if self.seed < 0 or self.folds < 2 or self.folds % 1:
            raise UsageError(f"a seed is 0 or more, folds are 2 or more, not {self.seed} and {self.folds}.")
        if self.resamples < 0 or not 0 < self.level < 1 or (self.threads is not None and self.threads < 1):
            raise UsageError("resamples are 0 or more, a level lies between 0 and 1, and threads are 1 or more.")


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of one split.

    y : int (n,) with -1 for unlabelled, or float (n,) with NaN
    groups : int (n,), rows that are held out and resampled together: the sentence of each word, where a row is a word,
        or the domain of each example; None where every row stands for itself
    types : int (n,), the word type of each row, numbered alike in train and dev; None where rows are no words
    ids : str (n,), names of the rows; None for their numbers
    seen : bool (n,), of dev: whether the example occurs in train exactly
    """

    y: np.ndarray
    groups: np.ndarray | None = None
    types: np.ndarray | None = None
    ids: np.ndarray | None = None
    seen: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("groups", "types", "ids", "seen"):
            if (value := getattr(self, name)) is not None and np.shape(value) != np.shape(self.y):
                raise UsageError(f"{name} {np.shape(value)} do not go with {np.shape(self.y)} labels.")

    @property
    def known(self) -> np.ndarray:
        """Which rows are labelled, bool (n,)."""
        return ~np.isnan(self.y) if self.y.dtype.kind == "f" else self.y >= 0

    def __getitem__(self, rows: np.ndarray) -> Labels:
        return Labels(
            self.y[rows],
            *(None if v is None else v[rows] for v in (self.groups, self.types, self.ids, self.seen)),
        )


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is probed beside the layers and needs no model, for train and dev.

    bag : float32 csr (n, v), whose pieces occur; length : float32 (n, k)
    """

    bag: tuple[sparse.csr_matrix, sparse.csr_matrix] | None = None
    length: tuple[np.ndarray, np.ndarray] | None = None
