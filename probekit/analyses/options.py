"""Options that several analyses share."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.errors import UsageError
from probekit.recipe import check_least, option
from probekit.sites import layer_list

__all__ = ["GuidelinesOptions", "VectorOptions"]


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """Which vectors of a cache are analysed."""

    pooling: str | None = option(None, "Pooling of the sentence vectors (default: the first in the cache).")
    layers: tuple[int | str, ...] | None = option(
        None, "Layers to analyse, separated by commas: 0,4-6,final_norm; -1 is the last (default: all)."
    )
    groups: str = option(
        "auto",
        "How examples are grouped; a group is shuffled, held out and resampled as a whole: auto (groups that the task "
        "declares, otherwise equal texts, shared sentences of pairs and near copies), domain, a column of the data of "
        "your task file, or none. Except with none, examples with equal vectors share a group. Words are always "
        "grouped at least by sentence.",
    )

    def __post_init__(self) -> None:
        names = self.pooling.split(",") if isinstance(self.pooling, str) else list(self.pooling or ())
        if len(names) > 1:
            raise UsageError(
                f"an analysis has one pooling, not {','.join(names)}. Run it once for each, with --pooling {names[0]} "
                "and another --out; then plot layers draws the rows of both, and compare tests their difference."
            )
        if self.layers is not None:
            object.__setattr__(self, "layers", layer_list(self.layers))


@dataclass(frozen=True, slots=True)
class GuidelinesOptions:
    """How the regimes are compared, and which differences are too small to matter."""

    metric: str | None = option(None, "Metric that all tasks have (default: the first metric of each task).")
    split: str | None = option(
        None, "Split to compare on (default: the last on which all runs of a task were evaluated)."
    )
    margin: float = option(0.01, "Largest difference, on the metric's scale, that does not matter in practice.")
    resamples: int = option(5000, "Bootstrap resamples of the examples.")
    seed: int = option(0, "Seed of the resampling.")

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise UsageError(f"margin is {self.margin}; it must be between 0 and 1.")
        check_least(self, resamples=1000, seed=0)
