"""Options of structural probes."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.errors import UsageError
from probekit.probes.trees.arcs import ArcOptions
from probekit.probes.trees.fit import FitOptions
from probekit.recipe import check_least, option
from probekit.statistics.options import check_resamples

__all__ = ["StructuralOptions"]


@dataclass(frozen=True, slots=True)
class StructuralOptions:
    """How structural probes are fitted and evaluated.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    ranks: tuple[int, ...] = option(
        (64,), "Ranks of the maps, separated by commas; a rank above the width of a layer is the width."
    )
    controls: int = option(1, "Number of probes on shuffled trees: those of other sentences of the same length.")
    arcs: bool = option(
        False, "Also fit a biaffine probe of arcs and relations to each layer: what a parser finds there."
    )
    epochs: int = option(8, "Passes of structural probes over train; the learning rate falls to 0.")
    learning_rate: float = option(1e-3, "Highest learning rate of Adam, for features of variance 1 on average.")
    batch: int = option(512, "Words in a step, of sentences of about the same length.")
    held_out: float = option(0.1, "Share of the sentences of train that choose the epoch.")
    resamples: int = option(1000, "Bootstrap resamples of sentences for the intervals; 0 for none.")
    level: float = option(0.95, "Coverage of the intervals.")
    seed: int = option(0, "Seed of initial maps, batches, shuffled trees and resamples.")

    def __post_init__(self) -> None:
        ranks = (self.ranks,) if isinstance(self.ranks, int) else tuple(self.ranks)
        if not ranks or min(ranks) < 1:
            raise UsageError(f"ranks must be whole numbers of 1 or more, not {','.join(map(str, ranks)) or 'none'}.")
        object.__setattr__(self, "ranks", ranks)
        check_least(self, controls=0)
        check_resamples(self.resamples, self.level, none=True)
        _ = self.fit, self.biaffine

    @property
    def fit(self) -> FitOptions:
        """The options of one fit."""
        return FitOptions(self.epochs, self.learning_rate, self.batch, self.held_out, self.seed)

    @property
    def biaffine(self) -> ArcOptions:
        """The options of a biaffine probe."""
        return ArcOptions(held_out=self.held_out, seed=self.seed)
