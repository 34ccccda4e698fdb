"""Options of edge probes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from probekit.errors import UsageError, did_you_mean
from probekit.recipe import check_least, option
from probekit.statistics.options import check_resamples

__all__ = ["EdgeOptions", "EdgeProbe"]


class EdgeProbe(StrEnum):
    """What reads the pooled spans."""

    MLP = "mlp"  # projection, pooling, hidden layer
    LINEAR = "linear"  # pooling only


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """How edge probes are trained; the defaults of the probe are the paper's, those of the training are shorter.

    Raises
    ------
    UsageError
        For a value out of range.
    """

    probe: EdgeProbe = option(
        EdgeProbe.MLP,
        "mlp (the paper's: projection, self-attention pooling, a hidden layer with tanh and layer norm) or linear "
        "(self-attention pooling only).",
    )
    projection: int = option(256, "Width of the projection of pieces (mlp).")
    hidden: int = option(512, "Units of the hidden layer (mlp).")
    dropout: float = option(0.3, "Share of hidden units that a step leaves out (mlp).")
    learning_rate: float = option(1e-3, "Learning rate of Adam.")
    mix_rate: float = option(
        10.0, "Learning rate of the weights of the mix, as a multiple of the others (1 as in the paper)."
    )
    batch: int = option(64, "Targets in a step.")
    check: int = option(100, "Steps between two measurements of the loss on the held-out part of train.")
    halve: int = option(1, "Measurements without a better loss, after which the learning rate is halved.")
    patience: int = option(3, "Measurements without a better loss, after which a probe is finished.")
    steps: int = option(2000, "Largest number of steps.")
    held_out: float = option(0.1, "Share of the sentences of train on which the loss is measured.")
    raw: bool = option(
        False, "Read the vectors as they are, as the paper does, not standardised (mean 0, variance 1) on train."
    )
    controls: int = option(
        1,
        "Draws of control tasks (a random label for each type of span) for each layer, and of shuffled labels for each "
        "layer and mix.",
    )
    seeds: int = option(1, "Trainings of the mix of all layers, for the interval of its centre of gravity.")
    any_split: bool = option(
        False, "Accept splits with other names: fit on one called dev or test, or evaluate on one called train."
    )
    resamples: int = option(1000, "Bootstrap resamples of dev for the intervals; 0 for none.")
    level: float = option(0.95, "Coverage of the intervals.")
    seed: int = option(0, "Seed of first weights, batches, dropout, controls and resamples.")

    def __post_init__(self) -> None:
        if self.probe not in list(EdgeProbe):
            raise UsageError(f"probe is {self.probe!r}; {did_you_mean(str(self.probe), list(EdgeProbe))}")
        object.__setattr__(self, "probe", EdgeProbe(self.probe))
        check_least(self, projection=1, hidden=1, batch=1, check=1, halve=1, patience=1, steps=1, controls=0, seeds=1)
        check_resamples(self.resamples, self.level, self.seed, none=True)
        for name in ("dropout", "held_out"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be a share below 1.")
        if not (self.held_out > 0 and self.learning_rate > 0 and self.mix_rate > 0):
            raise UsageError("held_out, learning_rate and mix_rate must be above 0.")
