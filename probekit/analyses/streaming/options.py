"""Options of analyses in one pass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from probekit.errors import UsageError, did_you_mean
from probekit.recipe import check_least, option
from probekit.runtime import dtype_name
from probekit.sites import layer_list, site_names
from probekit.statistics.options import check_resamples

__all__ = ["Analysis", "StreamOptions", "part_of"]


class Analysis(StrEnum):
    """What is measured of sums over all rows; LOGISTIC and MI of a random sample of the rows."""

    RIDGE = "ridge"
    MASS_MEAN = "mass-mean"
    LOGISTIC = "logistic"
    LEACE = "leace"
    CKA = "cka"
    MI = "mi"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What is read, summed and measured in one pass.

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
        None, "How the pieces of a text become one vector: mean, first, last, max or mean-all (default: the model's)."
    )
    layers: tuple[str, ...] | None = option(
        None, "Layers, such as 0,4-8,12 or 8:24:4; by default all. With --sites: their blocks, from 0."
    )
    sites: tuple[str, ...] | None = option(
        None, "Sites instead of the residual stream, such as attn_out,mlp_out (see probekit sites); each is proven."
    )
    pairs: str = option("auto", "Sentence pairs: joint (one sequence), separate (two), or auto (joint if possible).")
    dtype: str = option("float32", "Precision of the model: float32, float16 or bfloat16; sums are float64.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    revision: str | None = option(None, "Branch, tag or commit of the model on the hub.")
    random_weights: int | None = option(None, "Re-initialise the model with this seed.", metavar="SEED")
    model_name: str | None = option(None, "Name of the model in rows.")
    max_length: int | None = option(None, "Truncate texts to fewer pieces than the model can read.")
    batch_tokens: int | None = option(None, "Pieces in a batch (default: a fast number).")
    data_dir: str | None = option(None, "Folder of the task's files.")
    stream: bool = option(
        False, "Read a task file's JSON lines or data set of the hub a chunk at a time; files of texts always are."
    )
    limit: int | None = option(None, "At most this many examples of each split, drawn at random.")
    folds: int = option(5, "Folds that choose penalties: a text is in one by a hash of its group, or of itself.")
    alphas: tuple[float, ...] | None = option(None, "Penalties of ridge to choose from.")
    shrinkages: tuple[float, ...] | None = option(None, "Shrinkages of mass-mean to choose from, 0 to 1.")
    controls: int = option(10, "Number of probes on random labels.")
    bins: int = option(512, "Random sets of texts, each with one random label in a control.")
    sample: int = option(
        4096, "Rows to keep, drawn by a hash of their id: they calibrate mass-mean, and logistic and mi are of them."
    )
    chunk: int = option(2048, "Texts that are read at a time: the unit of --part, and of what a resumed run repeats.")
    save_every: int = option(16, "Chunks after which the state is written.")
    resamples: int = option(1000, "Bootstrap resamples for intervals, and permutations for p; 0 for neither.")
    level: float = option(0.95, "Coverage of the intervals.")
    seed: int = option(0, "Seed of folds, bins, sample, controls and resamples.")
    threads: int | None = option(None, "Layers solved in parallel (default: one per core); no number depends on it.")

    def __post_init__(self) -> None:
        for name in self.analysis or ():
            if name not in list(Analysis):
                raise UsageError(f"unknown analysis {name!r}; {did_you_mean(str(name), list(Analysis))}")
        if self.analysis is not None:
            if not self.analysis:
                raise UsageError(f"no analysis was given; choose from {', '.join(Analysis)}.")
            object.__setattr__(self, "analysis", tuple(dict.fromkeys(map(str, self.analysis))))
        if self.layers is not None:
            object.__setattr__(self, "layers", tuple(map(str, layer_list(self.layers))))
        if self.sites is not None:
            object.__setattr__(self, "sites", site_names(self.sites))
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        if not all(a > 0 for a in self.alphas or (1,)) or not all(0 <= s <= 1 for s in self.shrinkages or (1,)):
            raise UsageError("alphas must be positive, and shrinkages lie between 0 and 1.")
        check_least(
            self, folds=2, controls=0, bins=2, sample=0, chunk=1, save_every=1, limit=1, batch_tokens=1, threads=1
        )
        check_resamples(self.resamples, self.level, none=True)


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
