"""Options of mutual information."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from probekit.constraint import Checked, Draws, Seed, Threads
from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option


class InformationEstimator(StrEnum):
    """Estimators of mutual information.

    ``edge`` (the default) is calibrated hashing; for symbols it is the plug-in estimate. ``edge-4.3.1``,
    ``edge-4.2.0`` and ``edge-4.4.1`` give the numbers of the published scripts (Noshad, Zeng & Hero 2019),
    ``edge-4.3.1-first-pass`` those before its second pass changes the widths. ``knn`` and ``knn-raw`` use nearest
    neighbours (Ross 2014; for numbers, Kraskov et al. 2004) in four principal components or in all columns.
    ``logistic`` and ``mlp`` are lower bounds from classifiers, ``ridge`` from a regression on numbers. ``plug-in`` is
    for symbols and subtracts the estimate under shuffled labels. ``binning``, ``kernel-upper`` and ``kernel-lower``
    reproduce earlier papers (Saxe et al. 2018; Kolchinsky & Tracey 2017).
    """

    EDGE = "edge"
    EDGE_431 = "edge-4.3.1"
    EDGE_431_FIRST = "edge-4.3.1-first-pass"
    EDGE_420 = "edge-4.2.0"
    EDGE_441 = "edge-4.4.1"
    KNN = "knn"
    KNN_RAW = "knn-raw"
    LOGISTIC = "logistic"
    MLP = "mlp"
    RIDGE = "ridge"
    PLUG_IN = "plug-in"
    BINNING = "binning"
    KERNEL_UPPER = "kernel-upper"
    KERNEL_LOWER = "kernel-lower"

    @classmethod
    def named(cls, name: str) -> InformationEstimator:
        """The estimator of this name; for an unknown name UsageError with the closest one."""
        try:
            return cls(name)
        except ValueError:
            raise UsageError(f"unknown estimator {name!r}; {did_you_mean(str(name), list(cls))}") from None


@dataclass(frozen=True, slots=True)
class InformationOptions(Checked):
    """Estimators of mutual information and their controls.

    Raises
    ------
    UsageError
        For an unknown estimator and a number out of range.
    """

    estimator: tuple[str, ...] = option(
        (InformationEstimator.EDGE.value,),
        "Estimators, separated by commas: edge (calibrated), edge-4.3.1 (the numbers of the published scripts; also "
        "edge-4.2.0, edge-4.4.1), knn, logistic, mlp, ridge (for numbers) … The value is an estimate; ci_low is a "
        "lower bound of the information (97.5 %, one-sided), ci_high the entropy of the labels; p is one-sided, "
        "p_adjusted is corrected over the layers of a curve (Holm).",
    )
    draws: Draws | None = option(
        None, "Shuffles of the labels, for p and for the noise level (default: depends on the estimator)."
    )
    controls: Draws | None = option(
        None,
        "Number of shuffled label sets to estimate in full. Default: 19 for estimators that do not shuffle labels "
        "themselves (their p needs at least 19); otherwise 0.",
    )
    seed: Seed = option(0, "Seed for all random draws.")
    threads: Threads | None = option(
        None, "Layers measured in parallel (default: one per core). The numbers do not depend on it."
    )

    def together(self) -> None:
        names = tuple(dict.fromkeys(InformationEstimator.named(name).value for name in self.estimator))
        if not names:
            raise UsageError("no estimator was given.")
        object.__setattr__(self, "estimator", names)
