"""One estimate of mutual information: the value, the noise level, and whether the two are distinguishable."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Information:
    """A lower bound on the mutual information between vectors and labels, in bits.

    An estimator detects only some of the information. ``value`` estimates the detected part; ``ci_low`` bounds the
    information from below with the stated confidence, for any distribution of vectors.

    Attributes
    ----------
    value : float
        The estimate, 0 ≤ value ≤ min(entropy, log2 n); NaN with a reason in ``undetermined``.
    raw : float
        The estimator's number before correction and clipping.
    entropy : float
        H(Y) of the labels, or of the bins of numbers.
    n : int
        Number of examples.
    estimator : str
        Name of the estimator.
    null : np.ndarray, optional
        (draws,) estimates for shuffled labels, on the scale of ``value`` but not clipped: about 0 for an adjusted
        estimator; empty without shuffles.
    null_mean : float, default float('nan')
        Mean of ``raw`` under shuffled labels, in closed form if possible; NaN if unknown.
    p : float, default float('nan')
        Probability that shuffled labels give at least as much; NaN without shuffles.
    ci_low, ci_high : float, default float('nan')
        In 97.5 % of samples the information is not below ``ci_low``; ``ci_high`` is the maximum for these labels,
        min(entropy, log2 n), unless the estimator misses nothing (for symbols): then the two are a 95 % interval. NaN
        if not estimated.
    shown_high : float, default float('nan')
        Upper end of a 95 % interval for the information that the estimator detects.
    groups : int, default 0
        Number of groups in which examples were folded and shuffled; 0 if all are independent.
    buckets : float, default float('nan')
        Occupied buckets of the vectors; NaN without buckets.
    bins : int, default 0
        Number of bins for numeric labels; 0 for classes, and for estimators that do not bin numbers.
    undetermined : str, default ''
        Why the estimate is indistinguishable from noise or from its bound; otherwise "".
    warning : str, default ''
        Known problems of such a number; "" if there are none.
    view : str, default ''
        The view of the vectors: directions, dimensions, settings.
    """

    value: float
    raw: float
    entropy: float
    n: int
    estimator: str
    null: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    null_mean: float = float("nan")
    p: float = float("nan")
    ci_low: float = float("nan")
    ci_high: float = float("nan")
    shown_high: float = float("nan")
    groups: int = 0
    buckets: float = float("nan")
    bins: int = 0
    undetermined: str = ""
    warning: str = ""
    view: str = ""

    def __float__(self) -> float:
        return float(self.value)

    @property
    def share(self) -> float:
        """Share of the labels' entropy, value / entropy."""
        return self.value / self.entropy if self.entropy else float("nan")

    @property
    def null_sd(self) -> float:
        """Standard deviation of ``null``; NaN without shuffles."""
        return float(self.null.std()) if len(self.null) else float("nan")


def p_value(value: float, null: np.ndarray) -> float:
    """(1 + number of null values that reach ``value``) / (1 + their number) (Phipson & Smyth 2010); NaN without any."""
    return float((1 + (null >= value - 1e-12).sum()) / (1 + len(null))) if len(null) else float("nan")
