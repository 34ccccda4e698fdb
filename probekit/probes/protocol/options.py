"""How probes are fitted: one declaration, for Python, the command line and study files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from probekit.errors import UsageError
from probekit.recipe import option
from probekit.statistics.options import check_resamples

__all__ = ["LOG_LOSS", "Estimator", "ProbeOptions"]

LOG_LOSS = "log-loss"


class Estimator(StrEnum):
    """What is fitted on a layer. Its settings: C, alpha, weight decay, number of dimensions, shrinkage."""

    LOGISTIC = "logistic"
    RIDGE = "ridge"
    MLP = "mlp"
    K_SPARSE = "k-sparse"
    MASS_MEAN = "mass-mean"


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """How the probes are fitted.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    estimator: Estimator | None = option(
        None, "logistic, mlp, k-sparse or mass-mean (difference of means); ridge for numbers."
    )
    penalties: tuple[float, ...] | None = option(
        None,
        "With commas: C of logistic regression (inverse), alpha of ridge regression, weight decays of mlp, numbers of "
        "dimensions of k-sparse, shrinkages of mass-mean. Of equally good ones the strongest is taken.",
    )
    choose_by: str = option(
        LOG_LOSS,
        "What chooses the penalty: log-loss (squared error for numbers), or a metric; accuracy picks the majority "
        "class where classes are unequal.",
    )
    folds: int = option(5, "Of train, whole groups each, which choose the penalty.")
    held_out: float | None = option(None, "Choose the penalty on one share of train instead.")
    hold_out_domains: bool = option(False, "Hold out whole domains of train: templates, genres, documents.")
    hold_out_types: bool = option(False, "Hold out whole word types of train, and whole sentences.")
    balanced: bool = option(
        default=False,
        help="Give all classes the same weight in the fit; log losses are then balanced, too.",
    )
    controls: int | None = option(
        None, "Shuffled labels, and control tasks for words: how many; 10 (3 for words) without it, 0 for none."
    )
    any_split: bool = option(
        False, "Take splits that are called otherwise: fit on one called dev or test, evaluate on one called train."
    )
    calibrate: bool = option(False, "Measure calibration, before and after temperature scaling.")
    resamples: int = option(1000, "Draws of the intervals, and of dev's labels for p; 0 for neither.")
    level: float = option(0.95, "Coverage of the interval.")
    seed: int = option(0, "Of folds, controls and resamples.")
    max_iter: int = option(5000, "Iterations of the solver at most.")
    threads: int | None = option(None, "Layers fitted at a time; one a core without it. Numbers do not depend on it.")

    def __post_init__(self) -> None:
        numbers = self.penalties is None or not isinstance(self.penalties, str)
        if not numbers or (self.penalties is not None and not all(0 < p < inf for p in self.penalties or (0,))):
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
        check_resamples(self.resamples, none=True)
        if not 0 < self.level < 1 or (self.threads is not None and self.threads < 1):
            raise UsageError("a level lies between 0 and 1, and threads are 1 or more.")
