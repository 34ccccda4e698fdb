"""Options of analyses in one pass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from probekit.activations.options import ReadOptions
from probekit.analyses.options import PairVector, SpanVector
from probekit.constraint import WRITTEN, Count, Draws, Ge, Le, Most, Natural, Positive, Seed, Share, Threads
from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option
from probekit.statistics.options import ResamplesOrNone


class Analysis(StrEnum):
    """What is measured of sums over all rows; LOGISTIC and MI of a random sample of the rows."""

    RIDGE = "ridge"
    MASS_MEAN = "mass-mean"
    LOGISTIC = "logistic"
    LEACE = "leace"
    CKA = "cka"
    MI = "mi"


@dataclass(frozen=True, slots=True)
class StreamOptions(ReadOptions):
    """What is summed and measured in one pass.

    Raises
    ------
    UsageError
        For an unknown analysis and a value out of range.
    """

    analysis: tuple[str, ...] | None = option(
        None,
        "What to measure, separated by commas: ridge, mass-mean (difference of means) and logistic probes, leace "
        "(erasers of the labels), cka (similarity of all pairs of layers), mi (mutual information). Default: mass-mean "
        "for classes, ridge for numbers, cka without labels.",
    )
    pooling: str | None = option(
        None,
        "How the pieces of a text become one vector: mean, mean-all, first, last, max or ema:DECAY (exponential moving "
        "average). Default: mean (Skip-thoughts: last).",
    )
    leave_out: bool = option(
        False, "Leave out texts without a piece at --positions, and count them, instead of stopping."
    )
    span: SpanVector | None = option(
        None,
        "A row for each span, or pair of spans, that a label is about: ends, its first and last piece, side by side "
        "(the default of tasks that label spans), or mean, the mean of its pieces.",
    )
    span_pair: PairVector = option(
        PairVector.COMPARED,
        "For pairs of words or spans: what is read of their vectors u and v. compared: [u; v; abs(u - v); u * v]; "
        "sides: [u; v].",
    )
    folds: Annotated[int, Ge(2)] = option(
        5, "Folds that choose penalties: a text is in one by a hash of its group, or of itself."
    )
    alphas: tuple[Positive, ...] | None = option(None, "Penalties of ridge to choose from.")
    shrinkages: tuple[Annotated[float, Ge(0), Le(1)], ...] | None = option(
        None, "Shrinkages of mass-mean to choose from, 0 to 1."
    )
    controls: Draws = option(10, "Number of probes on random labels.")
    bins: Annotated[int, Ge(2), Most(1_000_000)] = option(
        512, "Random sets of texts, each with one random label in a control."
    )
    sample: Natural = option(
        4096, "Rows to keep, drawn by a hash of their id: they calibrate mass-mean, and logistic and mi are of them."
    )
    state: Annotated[Path | None, WRITTEN] = option(
        None,
        "File for sums, sample and position (.npz). The same command continues from it; a finished one is not run "
        "again, whichever analyses are asked of it; only cka must be among those of the first run.",
        metavar="FILE",
    )
    part: str | None = option(
        None, "I/N: read only the I-th of N parts of the split, write --state, and measure nothing.", metavar="I/N"
    )
    merge: tuple[str, ...] = option(
        (), "Finished states of all parts, separated by commas, instead of reading the split.", metavar="FILES"
    )
    erasers: Annotated[Path | None, WRITTEN] = option(
        None, "File for the erasers of leace (.npz): LAYER/mean and LAYER/projection.", metavar="FILE"
    )
    chunk: Count = option(2048, "Texts that are read at a time: the unit of --part, and of what a resumed run repeats.")
    save_every: Count = option(16, "Chunks after which the state is written.")
    resamples: ResamplesOrNone = option(
        1000, "Bootstrap resamples for intervals, and permutations for p; 0 for neither."
    )
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of folds, bins, sample, controls and resamples.")
    threads: Threads | None = option(
        None, "Layers solved in parallel (default: one per core); no number depends on it."
    )

    def together(self) -> None:
        from probekit.activations.pooling import poolings

        for name in self.analysis or ():
            if name not in list(Analysis):
                raise UsageError(f"unknown analysis {name!r}; {did_you_mean(str(name), list(Analysis))}")
        if self.analysis is not None:
            if not self.analysis:
                raise UsageError(f"no analysis was given; choose from {', '.join(Analysis)}.")
            object.__setattr__(self, "analysis", tuple(dict.fromkeys(map(str, self.analysis))))
        if self.pooling is not None and len(names := poolings(self.pooling)) > 1:
            raise UsageError(
                f"a stream has one pooling, not {','.join(names)}. Run it once for each, with --pooling {names[0]} and "
                "another --out."
            )
        if self.span is not None and (self.positions is not None or self.pooling is not None):
            raise UsageError("--span makes a row of each span; leave out --positions and --pooling.")
        if self.leave_out and self.positions is None:
            raise UsageError("--leave-out is of texts without a piece at --positions; give both, or neither.")
        part_of(self.part)
        if self.part is not None and (self.state is None or self.merge):
            raise UsageError("--part needs --state, the file for its sums, and takes no --merge.")


def part_of(text: str | None) -> tuple[int, int]:
    """ "2/8" as (2, 8), the second of eight parts; (1, 1) for None.

    Raises
    ------
    UsageError
        Unless the part is from 1 to the number of parts.
    """
    if text is None:
        return 1, 1
    found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"part is {text!r}; expected I/N, such as 1/8 for the first of eight parts.")
    return int(found[1]), int(found[2])
