"""Options for comparing fits and summarising curves, for Python, the command line and study files."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from probekit.constraint import MOST_DRAWS, Checked, Ge, Most, OrZero, Part, Seed, Share
from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option

BAG = "bag-of-pieces"
TFIDF = "tf-idf-of-pieces"
BASELINES = {BAG: BAG, TFIDF: TFIDF, "majority": "none", "type-majority": "word-type"}
"""The representation of each baseline without a model that layers are compared with."""
AGAINST = ("best", "permuted", "control-task", "random", *BASELINES)
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


Resamples = Annotated[int, Ge(LEAST), Most(MOST_DRAWS)]
ResamplesOrNone = Annotated[int, OrZero(LEAST, "no intervals"), Ge(0), Most(MOST_DRAWS)]


@dataclass(frozen=True, slots=True)
class CompareOptions(Checked):
    """The comparison, its test and its intervals.

    Raises
    ------
    UsageError
        If a value is out of range.
    """

    against: str | None = option(
        None,
        "layer-0 (or another layer-NAME), best, permuted (labels), control-task, random, bag-of-pieces, "
        "tf-idf-of-pieces, majority (class) or type-majority (of each word). Default: the same layer of the second "
        "file; of one file, layer-0.",
    )
    metric: str | None = option(None, "A metric of the table, or log-loss; default: the table's first metric.")
    correction: Correction = option(Correction.MIN_P, "Correction over layers: min-p, max-t or holm.")
    family: Over = option(
        Over.CURVE, "What to correct together: the layers of a curve, or all curves of a task, of a model, or all."
    )
    tails: Tails = option(Tails.TWO_SIDED, "two-sided, or better (one-sided: the first is better).")
    resamples: Resamples = option(
        2000,
        "Resamples of the examples, and draws under the null; fits of up to 1,600 examples are exchanged 10,000 times.",
    )
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed for the draws.")

    def together(self) -> None:
        object.__setattr__(self, "against", FORMERLY.get(str(self.against), self.against))
        if self.against is not None and self.against not in AGAINST and not self.against.startswith("layer-"):
            layer = self.against.isdecimal() and f"did you mean layer-{self.against}?"
            raise UsageError(
                f"against is {self.against!r}; {layer or did_you_mean(self.against, ('layer-0', *AGAINST))}"
            )


@dataclass(frozen=True, slots=True)
class SummaryOptions(Checked):
    """The metric of the layer curve to summarise, and its intervals.

    Raises
    ------
    UsageError
        If a value is out of range.
    """

    metric: str | None = option(None, "A metric of the table, or log-loss; default: the table's first metric.")
    margin: Part = option(
        0.1, "A layer is good if it is within this fraction of the distance from the best to the worst value."
    )
    resamples: Resamples = option(1000, "Resamples of the examples.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed for the resamples.")
