"""How fits are compared and curves summed up: one declaration, for Python, the command line and study files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option

__all__ = ["CompareOptions", "Correction", "Over", "SummaryOptions", "Tails"]


AGAINST = ("best", "shuffled", "control-task", "random")
"""What layers are compared with, beside one of them (layer-NAME)."""
LEAST = 100
"""Resamples at least."""


class Correction(StrEnum):
    """For looking at several layers."""

    MIN_P = "min-p"
    MAX_T = "max-t"
    HOLM = "holm"


class Over(StrEnum):
    """What is corrected together."""

    CURVE = "curve"
    TASK = "task"
    MODEL = "model"
    ALL = "all"


class Tails(StrEnum):
    """What counts as a difference: either way, or only where the first is better."""

    TWO_SIDED = "two-sided"
    BETTER = "better"


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What is held against what, and how it is tested.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    against: str | None = option(
        None,
        "layer-0 (any layer-NAME), best, shuffled, control-task or random. Without it: B layer by layer, or layer-0 "
        "where there is no B.",
    )
    metric: str | None = option(None, "One of the table's, or log-loss; the table's first without it.")
    correction: Correction = option(Correction.MIN_P, "Over the layers: min-p, max-t or holm.")
    family: Over = option(
        Over.CURVE, "What is corrected together: the layers of a curve, or all curves of a task, of a model, or all."
    )
    tails: Tails = option(Tails.TWO_SIDED, "two-sided, or better: only being better counts.")
    resamples: int = option(
        2000, "Draws of the examples, and of chance; fits of up to 1,600 examples are exchanged 10,000 times."
    )
    level: float = option(0.95, "Coverage of the intervals.")
    seed: int = option(0, "Of the draws.")

    def __post_init__(self) -> None:
        for name, kind in (("correction", Correction), ("tails", Tails), ("family", Over)):
            if (word := getattr(self, name)) not in list(kind):
                raise UsageError(f"{name} is {', '.join(list(kind)[:-1])} or {list(kind)[-1]}, not {word!r}.")
            object.__setattr__(self, name, kind(word))
        check_resamples(self.resamples, self.level, self.seed)
        if self.against is not None and self.against not in AGAINST and not self.against.startswith("layer-"):
            layer = self.against.isdecimal() and f"did you mean layer-{self.against}?"
            raise UsageError(
                f"against is {self.against!r}; {layer or did_you_mean(self.against, ('layer-0', *AGAINST))}"
            )


@dataclass(frozen=True, slots=True)
class SummaryOptions:
    """Of which metric a layer curve is summed up, and its intervals.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    metric: str | None = option(None, "One of the table's, or log-loss; the table's first without it.")
    margin: float = option(0.1, "A layer is good within this share of the way from the worst value to the best.")
    resamples: int = option(1000, "Of the examples.")
    level: float = option(0.95, "Coverage of the intervals.")
    seed: int = option(0, "Of the resamples.")

    def __post_init__(self) -> None:
        check_resamples(self.resamples, self.level, self.seed)
        if not 0 <= self.margin < 1:
            raise UsageError(f"a margin is a share, 0 or more and below 1, not {self.margin:g}.")


def check_resamples(resamples: int, level: float = 0.95, seed: int = 0, *, none: bool = False) -> None:
    """Raise UsageError for so few resamples that the ends of an interval are mostly chance, or that cannot be drawn.

    none : 0, for no intervals, may be asked for.
    """
    if resamples < LEAST and not (none and resamples == 0):
        raise UsageError(f"resamples is {resamples}; it must be {LEAST} or more{', or 0 for no intervals' * none}.")
    if seed < 0:
        raise UsageError(f"seed is {seed}; it must be 0 or more.")
    if not 0 < level < 1:
        raise UsageError(f"level is {level:g}; it must be between 0 and 1.")
