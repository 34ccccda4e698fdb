"""Options of probes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from probekit.constraint import Checked, Count, Draws, Ge, MinLen, Positive, Seed, Share, Threads
from probekit.errors import UsageError
from probekit.recipe import option
from probekit.statistics.options import ResamplesOrNone

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
class ProbeOptions(Checked):
    """How the probes are fitted.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    estimator: Estimator | None = option(
        None,
        "logistic, mlp, k-sparse, mass-mean (difference of means), attention (reads all pieces of a text, and learns "
        "which to look at; needs caches of tokens) or monitor (scores each piece, see --scores); ridge for numbers "
        "(default: logistic or ridge).",
    )
    scores: str | None = option(
        None,
        "How a monitor's scores of pieces become that of a text: mean, last, max, ema:DECAY (the largest moving "
        "average), rolling:PIECES (the largest mean of neighbouring pieces; the default, with 10) or cusum:DRIFT (the "
        "largest sum of what exceeds the drift).",
    )
    penalties: Annotated[tuple[Positive, ...], MinLen(1)] | None = option(
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
    folds: Annotated[int, Ge(2)] = option(
        5, "Cross-validation folds of train that choose the penalty; groups stay whole."
    )
    held_out: Share | None = option(
        None, "Choose the penalty on one held-out share of train instead of by cross-validation."
    )
    hold_out_domains: bool = option(False, "Hold out whole domains of train: templates, genres, documents.")
    hold_out_types: bool = option(False, "Hold out whole word types of train, and whole sentences.")
    balanced: bool = option(default=False, help="Give all classes the same weight in the fit and in the log loss.")
    controls: Draws | None = option(
        None,
        "Number of probes on shuffled labels, and of control tasks for words (default: 10, for words 3). 0 also leaves "
        "out the bag and tf-idf of word pieces and the length.",
    )
    cosine: bool = option(
        default=True,
        help="Of pairs of spans, and of texts that are read separately: the cosine of the two, as a baseline.",
    )
    tfidf: bool = option(
        default=True, help="Of texts: tf-idf of word pieces, and of pairs of neighbouring ones, as a baseline."
    )
    any_split: bool = option(
        False, "Accept splits with other names: fit on one called dev or test, or evaluate on one called train."
    )
    calibrate: bool = option(False, "Measure calibration, before and after temperature scaling.")
    by_label: bool | None = option(
        None,
        "Also F1 of each class, label or entity type alone, with its support; of several numbers their metrics "
        "(default: where a text has several labels or numbers).",
    )
    resamples: ResamplesOrNone = option(
        1000, "Bootstrap resamples for the intervals, and permutations of dev's labels for p; 0 for neither."
    )
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of folds, controls and resamples.")
    max_iter: Count = option(5000, "Maximum number of solver iterations.")
    threads: Threads | None = option(
        None, "Layers fitted in parallel (default: one per core). The numbers do not depend on it."
    )

    def together(self) -> None:
        if self.scores is not None:
            from probekit.probes.solvers.scores import Score

            Score.parse(self.scores)
            if self.estimator is not Estimator.MONITOR:
                raise UsageError("scores are those of a monitor; add --estimator monitor, or leave them out.")
