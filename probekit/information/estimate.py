"""One estimate of mutual information: the number, what noise alone gives, and whether the two can be told apart."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["Information"]


@dataclass(frozen=True, slots=True, eq=False)
class Information:
    """A lower bound on the mutual information between vectors and labels, in bits.

    Estimators look at vectors in some ways, and what they see is no more than there is. ``value`` estimates what was
    found; that ``ci_low`` is no more than the information is as sure as is said, whatever the vectors are like.

    Attributes
    ----------
    value : float
        What is reported, 0 ≤ value ≤ min(entropy, log2 n); NaN where ``undetermined`` says why.
    raw : float
        The estimator's own number, before anything is taken off or clipped.
    entropy : float
        H(Y) of the labels, or of the bins that numbers were put in.
    n : int
        Examples that the number rests on.
    estimator : str
        Its name.
    null : np.ndarray, optional
        (shuffles,) what the estimator gives for shuffled labels, on the scale of ``value`` but not clipped: about 0 for
        an adjusted estimator; empty where nothing was shuffled.
    null_mean : float, default float('nan')
        Of ``raw`` under shuffled labels, in closed form where there is one; NaN where unknown.
    p : float, default float('nan')
        Probability that shuffled labels give as much; NaN without shuffles.
    ci_low, ci_high : float, default float('nan')
        The information is not below ``ci_low``, in 97.5 % of samples; ``ci_high`` is what labels hold, min(entropy,
        log2 n), unless the estimator leaves nothing out (of symbols): then the two are a 95 % interval. NaN where not
        estimated.
    shown_high : float, default float('nan')
        Upper end of a 95 % interval for what the estimator looks at, which says nothing of what it does not see.
    groups : int, default 0
        In how many groups examples were folded and shuffled; 0 where each stands for itself.
    buckets : float, default float('nan')
        Occupied buckets of the vectors; NaN where there are none.
    bins : int, default 0
        Bins that numbers were put in; 0 for classes, and for estimators that use numbers as they are.
    undetermined : str, default ''
        Why the estimate can not be told from noise or from its bound; "" where it can.
    warning : str, default ''
        What is known to be wrong with such a number; "" where nothing is.
    view : str, default ''
        How the vectors were looked at: directions, dimensions, settings.
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
        """Of the labels' entropy that is known, value / entropy."""
        return self.value / self.entropy if self.entropy else float("nan")

    @property
    def null_sd(self) -> float:
        """Standard deviation of ``null``; NaN without shuffles."""
        return float(self.null.std()) if len(self.null) else float("nan")


def p_value(value: float, null: np.ndarray) -> float:
    """(1 + number of null values that reach ``value``) / (1 + their number) (Phipson & Smyth 2010); NaN without any."""
    return float((1 + (null >= value - 1e-12).sum()) / (1 + len(null))) if len(null) else float("nan")
