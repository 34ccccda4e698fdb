"""Options for comparing fits and summarising curves, for Python, the command line and study files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option

__all__ = ["CompareOptions", "Correction", "Over", "SummaryOptions", "Tails"]


AGAINST = ("best", "permuted", "control-task", "random", "bag-of-pieces")
"""What layers are compared with, beside one of them (layer-NAME)."""
FORMERLY = {"shuffled": "permuted"}
"""Earlier names, which mean the same: probes *trained* on shuffled labels are a control of ``probe``, not compared."""
LEAST = 100
"""Minimum number of resamples."""


class Correction(StrEnum):
    """Correction for multiple layers."""

    MIN_P = "min-p"
    MAX_T = "max-t"
    HOLM = "holm"


class Over(StrEnum):
    """The differences that are corrected together."""

    CURVE = "curve"
    TASK = "task"
    MODEL = "model"
    ALL = "all"


class Tails(StrEnum):
    """The alternative: a difference in either direction, or only the first being better."""

    TWO_SIDED = "two-sided"
    BETTER = "better"


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The comparison, its test and its intervals.

    Raises
    ------
    UsageError
        If a value is out of range.
    """

    against: str | None = option(
        None,
        "layer-0 (or another layer-NAME), best, permuted (labels), control-task, random or bag-of-pieces. Default: the "
        "same layer of the second file, or layer-0 if there is one file.",
    )
    metric: str | None = option(None, "A metric of the table, or log-loss; default: the table's first metric.")
    correction: Correction = option(Correction.MIN_P, "Correction over layers: min-p, max-t or holm.")
    family: Over = option(
        Over.CURVE, "What to correct together: the layers of a curve, or all curves of a task, of a model, or all."
    )
    tails: Tails = option(Tails.TWO_SIDED, "two-sided, or better (one-sided: the first is better).")
    resamples: int = option(
        2000,
        "Resamples of the examples, and draws under the null; fits of up to 1,600 examples are exchanged 10,000 times.",
    )
    level: float = option(0.95, "Coverage of the intervals.")
    seed: int = option(0, "Seed for the draws.")

    def __post_init__(self) -> None:
        for name, kind in (("correction", Correction), ("tails", Tails), ("family", Over)):
            if (word := getattr(self, name)) not in list(kind):
                raise UsageError(f"{name} is {', '.join(list(kind)[:-1])} or {list(kind)[-1]}, not {word!r}.")
            object.__setattr__(self, name, kind(word))
        check_resamples(self.resamples, self.level, self.seed)
        object.__setattr__(self, "against", FORMERLY.get(str(self.against), self.against))
        if self.against is not None and self.against not in AGAINST and not self.against.startswith("layer-"):
            layer = self.against.isdecimal() and f"did you mean layer-{self.against}?"
            raise UsageError(
                f"against is {self.against!r}; {layer or did_you_mean(self.against, ('layer-0', *AGAINST))}"
            )


@dataclass(frozen=True, slots=True)
class SummaryOptions:
    """The metric of the layer curve to summarise, and its intervals.

    Raises
    ------
    UsageError
        If a value is out of range.
    """

    metric: str | None = option(None, "A metric of the table, or log-loss; default: the table's first metric.")
    margin: float = option(
        0.1, "A layer is good if it is within this fraction of the distance from the best to the worst value."
    )
    resamples: int = option(1000, "Resamples of the examples.")
    level: float = option(0.95, "Coverage of the intervals.")
    seed: int = option(0, "Seed for the resamples.")

    def __post_init__(self) -> None:
        check_resamples(self.resamples, self.level, self.seed)
        if not 0 <= self.margin < 1:
            raise UsageError(f"margin is {self.margin:g}; expected a fraction from 0 to below 1.")


def check_resamples(resamples: int, level: float = 0.95, seed: int = 0, *, none: bool = False) -> None:
    """Raise UsageError if there are too few resamples for an interval, or level or seed are out of range.

    none : whether 0 (no intervals) is allowed.
    """
    if resamples < LEAST and not (none and resamples == 0):
        raise UsageError(f"resamples is {resamples}; it must be {LEAST} or more{', or 0 for no intervals' * none}.")
    if seed < 0:
        raise UsageError(f"seed is {seed}; it must be 0 or more.")
    if not 0 < level < 1:
        raise UsageError(f"level is {level:g}; it must be between 0 and 1.")
