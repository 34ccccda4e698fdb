"""Options of probes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from probekit.errors import UsageError
from probekit.probes.solvers.scores import Score
from probekit.recipe import as_typed, check_least, option
from probekit.statistics.options import check_resamples

__all__ = ["LOG_LOSS", "Estimator", "ProbeOptions"]

LOG_LOSS = "log-loss"


class Estimator(StrEnum):
    """The probe fitted on a layer. Its penalty: C, alpha, weight decay, number of dimensions, shrinkage."""

    LOGISTIC = "logistic"
    RIDGE = "ridge"
    MLP = "mlp"
    K_SPARSE = "k-sparse"
    MASS_MEAN = "mass-mean"
    ATTENTION = "attention"
    MONITOR = "monitor"


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """How the probes are fitted.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    estimator: Estimator | None = option(
        None,
        "logistic, mlp, k-sparse, mass-mean (difference of means), attention (reads all pieces of a text, and learns "
        "which to look at; needs caches with --tokens) or monitor (scores each piece, see --scores); ridge for numbers "
        "(default: logistic or ridge).",
    )
    scores: str | None = option(
        None,
        "How a monitor's scores of pieces become that of a text: mean, last, max, ema:DECAY (the largest moving "
        "average) or rolling:PIECES (the largest mean of neighbouring pieces; the default, with 10).",
    )
    penalties: tuple[float, ...] | None = option(
        None,
        "Penalties to choose from, separated by commas: C of logistic regression (inverse), alpha of ridge regression, "
        "weight decay of mlp and attention, number of dimensions of k-sparse, shrinkage of mass-mean. Ties go to the "
        "strongest penalty.",
    )
    choose_by: str = option(
        LOG_LOSS,
        "Criterion for the penalty: log-loss (squared error for numbers), or a metric. With unbalanced classes, "
        "accuracy tends to choose a probe that predicts the majority class.",
    )
    folds: int = option(5, "Cross-validation folds of train that choose the penalty; groups stay whole.")
    held_out: float | None = option(
        None, "Choose the penalty on one held-out share of train instead of by cross-validation."
    )
    hold_out_domains: bool = option(False, "Hold out whole domains of train: templates, genres, documents.")
    hold_out_types: bool = option(False, "Hold out whole word types of train, and whole sentences.")
    balanced: bool = option(
        default=False,
        help="Give all classes the same weight in the fit and in the log loss.",
    )
    controls: int | None = option(
        None,
        "Number of probes on shuffled labels, and of control tasks for words (default: 10, for words 3). 0 also leaves "
        "out the bag of word pieces and the length.",
    )
    any_split: bool = option(
        False, "Accept splits with other names: fit on one called dev or test, or evaluate on one called train."
    )
    calibrate: bool = option(False, "Measure calibration, before and after temperature scaling.")
    resamples: int = option(
        1000, "Bootstrap resamples for the intervals, and permutations of dev's labels for p; 0 for neither."
    )
    level: float = option(0.95, "Coverage of the intervals.")
    seed: int = option(0, "Seed of folds, controls and resamples.")
    max_iter: int = option(5000, "Maximum number of solver iterations.")
    threads: int | None = option(
        None, "Layers fitted in parallel (default: one per core). The numbers do not depend on it."
    )

    def __post_init__(self) -> None:
        numbers = self.penalties is None or not isinstance(self.penalties, str)
        if not numbers or (self.penalties is not None and not all(0 < p < inf for p in self.penalties or (0,))):
            raise UsageError(f"penalties must be positive numbers, not {as_typed(self.penalties)}.")
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise UsageError(f"held_out must be a share between 0 and 1, not {self.held_out}.")
        if self.estimator is not None and self.estimator not in list(Estimator):
            raise UsageError(f"estimator must be one of {', '.join(Estimator)}, not {self.estimator!r}.")
        object.__setattr__(self, "estimator", None if self.estimator is None else Estimator(self.estimator))
        if self.scores is not None:
            Score.parse(self.scores)
            if self.estimator is not Estimator.MONITOR:
                raise UsageError("scores are those of a monitor; add --estimator monitor, or leave them out.")
        check_least(self, controls=0, seed=0, folds=2, threads=1)
        check_resamples(self.resamples, self.level, none=True)
        if self.folds % 1:
            raise UsageError(f"folds is {self.folds}; it must be a whole number.")
