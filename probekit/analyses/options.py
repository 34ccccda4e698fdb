"""Options that several analyses share."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.errors import UsageError
from probekit.recipe import option

__all__ = ["GuidelinesOptions", "VectorOptions"]


@dataclass(frozen=True, slots=True)
class VectorOptions:
    """Which vectors of a cache are looked at."""

    pooling: str | None = option(None, "Which sentence vectors; the caches' first without it.")
    layers: tuple[int | str, ...] | None = option(
        None, "Some of the layers, with commas: 0,6,final_norm; -1 is the last."
    )
    groups: str = option(
        "auto",
        "Examples that are shuffled, held out and resampled as wholes: auto (declared by the task, else equal texts, "
        "shared sentences of pairs and near copies), domain, a column of the data of your task file, or none. Examples "
        "whose vectors are equal are together but for none. Words always go by sentence at least.",
    )


@dataclass(frozen=True, slots=True)
class GuidelinesOptions:
    """By what the regimes are held against each other, and how small a difference makes none."""

    metric: str | None = option(None, "That all tasks have; each task's first without it.")
    split: str | None = option(None, "The last that all runs of a task evaluated without it.")
    margin: float = option(0.01, "Differences below this, on the metric's scale, make none in practice.")
    resamples: int = option(5000, "Of the examples.")
    seed: int = option(0, "Of the resamples.")

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise UsageError(f"margin is {self.margin}; it must be between 0 and 1.")
        if self.resamples < 1000 or self.seed < 0:
            raise UsageError(f"resamples are 1000 or more, a seed is 0 or more, not {self.resamples} and {self.seed}.")
