"""Options of structural probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from probekit.constraint import Checked, Count, Draws, MinLen, Positive, Seed, Share, Size
from probekit.recipe import option
from probekit.statistics.options import ResamplesOrNone

if TYPE_CHECKING:
    from probekit.probes.trees.arcs import ArcOptions
    from probekit.probes.trees.fit import FitOptions


@dataclass(frozen=True, slots=True)
class StructuralOptions(Checked):
    """How structural probes are fitted and evaluated.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    ranks: Annotated[tuple[Size, ...], MinLen(1)] = option(
        (64,), "Ranks of the maps, separated by commas; a rank above the width of a layer is the width."
    )
    controls: Draws = option(1, "Number of probes on shuffled trees: those of other sentences of the same length.")
    arcs: bool = option(
        False, "Also fit a biaffine probe of arcs and relations to each layer: what a parser finds there."
    )
    epochs: Count = option(8, "Passes of structural probes over train; the learning rate falls to 0.")
    learning_rate: Positive = option(1e-3, "Highest learning rate of Adam, for features of variance 1 on average.")
    batch: Count = option(512, "Words in a step, of sentences of about the same length.")
    held_out: Share = option(0.1, "Share of the sentences of train that choose the epoch.")
    resamples: ResamplesOrNone = option(1000, "Bootstrap resamples of sentences for the intervals; 0 for none.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of initial maps, batches, shuffled trees and resamples.")

    @property
    def fit(self) -> FitOptions:
        """The options of one fit."""
        from probekit.probes.trees.fit import FitOptions

        return FitOptions(self.epochs, self.learning_rate, self.batch, self.held_out, self.seed)

    @property
    def biaffine(self) -> ArcOptions:
        """The options of a biaffine probe."""
        from probekit.probes.trees.arcs import ArcOptions

        return ArcOptions(held_out=self.held_out, seed=self.seed)
