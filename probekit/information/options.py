"""How mutual information is estimated: one declaration, for Python, the command line and study files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option

__all__ = ["InformationEstimator", "InformationOptions"]


class InformationEstimator(StrEnum):
    """Estimators of mutual information.

    ``edge`` is calibrated hashing, the default; of symbols it is plug-in. ``edge-4.3.1``, ``edge-4.2.0`` and
    ``edge-4.4.1`` are the numbers of the published scripts (Noshad, Zeng & Hero 2018), ``edge-4.3.1-first-pass`` those
    before the second pass sets other widths. ``knn`` and ``knn-raw`` are nearest neighbours (Ross 2014; numbers:
    Kraskov et al. 2004), among four principal components or all columns. ``logistic`` and ``mlp`` are lower bounds by
    classifiers, ``ridge`` one about numbers. ``plug-in`` is of symbols, less what shuffled labels give. ``binning``,
    ``kernel-upper`` and ``kernel-lower`` are for the record (Saxe et al. 2018; Kolchinsky & Tracey 2017).
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
        """The estimator of this name; UsageError, with the closest one, where there is none."""
        try:
            return cls(name)
        except ValueError:
            raise UsageError(f"there is no estimator {name!r}; {did_you_mean(str(name), list(cls))}") from None


@dataclass(frozen=True, slots=True)
class InformationOptions:
    """By what mutual information is estimated, and against what noise.

    Raises
    ------
    UsageError
        For an unknown estimator and a number out of range.
    """

    estimator: tuple[str, ...] = option(
        (InformationEstimator.EDGE.value,),
        "With commas: edge (calibrated), edge-4.3.1 (the published scripts' numbers; also edge-4.2.0, edge-4.4.1), "
        "knn, logistic, mlp, ridge (numbers) … The value is an estimate; ci_low bounds the information from below "
        "(97.5 %, one-sided), ci_high is all that labels hold; p one-sided, p_adjusted (Holm) over a curve's layers.",
    )
    shuffles: int | None = option(
        None, "Of the labels, for p and for where noise falls; each estimator's own number without it."
    )
    controls: int | None = option(
        None,
        "Whole estimates of as many shuffled label sets; 19 without it where an estimator shuffles no labels itself, "
        "whose p takes as many at least.",
    )
    seed: int = option(0, "Of all that is drawn.")
    threads: int | None = option(None, "Layers measured at a time; one a core without it. Numbers do not depend on it.")

    def __post_init__(self) -> None:
        given = [self.estimator] if isinstance(self.estimator, str) else self.estimator
        names = tuple(dict.fromkeys(InformationEstimator.named(name).value for name in given))
        if not names:
            raise UsageError("no estimator was given.")
        object.__setattr__(self, "estimator", names)
        if min(self.shuffles or 0, self.controls or 0, self.seed) < 0 or (
            self.threads is not None and self.threads < 1
        ):
            raise UsageError("shuffles, controls and a seed are 0 or more, threads are 1 or more.")
