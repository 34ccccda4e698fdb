"""Options of edge probes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from probekit.constraint import Checked, Count, Draws, Ge, Most, Part, Positive, Seed, Share, Size
from probekit.recipe import option
from probekit.statistics.options import ResamplesOrNone


class EdgeProbe(StrEnum):
    """What reads the pooled spans."""

    MLP = "mlp"  # projection, pooling, hidden layer
    LINEAR = "linear"  # pooling only


@dataclass(frozen=True, slots=True)
class EdgeOptions(Checked):
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
    projection: Size = option(256, "Width of the projection of pieces (mlp).")
    hidden: Size = option(512, "Units of the hidden layer (mlp).")
    dropout: Part = option(0.3, "Share of hidden units that a step leaves out (mlp).")
    learning_rate: Positive = option(1e-3, "Learning rate of Adam.")
    mix_rate: Positive = option(
        10.0, "Learning rate of the weights of the mix, as a multiple of the others (1 as in the paper)."
    )
    batch: Count = option(64, "Targets in a step.")
    check: Count = option(100, "Steps between two measurements of the loss on the held-out part of train.")
    halve: Count = option(1, "Measurements without a better loss, after which the learning rate is halved.")
    patience: Count = option(3, "Measurements without a better loss, after which a probe is finished.")
    steps: Count = option(2000, "Largest number of steps.")
    held_out: Share = option(0.1, "Share of the sentences of train on which the loss is measured.")
    raw: bool = option(
        False, "Read the vectors as they are, as the paper does, not standardised (mean 0, variance 1) on train."
    )
    controls: Draws = option(
        1,
        "Draws of control tasks (a random label for each type of span) for each layer, and of shuffled labels for each "
        "layer and mix.",
    )
    seeds: Annotated[int, Ge(1), Most(10_000)] = option(
        1, "Trainings of the mix of all layers, for the interval of its centre of gravity."
    )
    any_split: bool = option(
        False, "Accept splits with other names: fit on one called dev or test, or evaluate on one called train."
    )
    resamples: ResamplesOrNone = option(1000, "Bootstrap resamples of dev for the intervals; 0 for none.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of first weights, batches, dropout, controls and resamples.")
