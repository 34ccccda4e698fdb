"""The layers that are trained in each epoch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from torch import nn
from transformers import TrainerCallback

from probekit.adaptation.optimisation.order import ORDERS, Stage, plan, shown_plan
from probekit.adaptation.options import Hyperparameters, Unfreezing
from probekit.adaptation.training.groups import LayerGroup
from probekit.errors import UsageError

__all__ = ["Thaw", "ever_trained", "moved_weights", "order_of", "settled_epoch", "trained_groups"]

log = logging.getLogger(__name__)


def order_of(options: Hyperparameters) -> str:
    """The order of a training: ``order``, or that of ``unfreezing``.

    Each stage takes one epoch and the last stage all remaining ones; the stages of SEQUENTIAL take ``sequential_head``
    and ``sequential_body`` epochs (its authors search for both; Felbo et al. end each stage when the dev metric no
    longer improves).
    """
    if options.order:
        return ORDERS.get(options.order, options.order)
    if options.unfreezing is Unfreezing.SEQUENTIAL:
        return f"head={options.sequential_head},body={options.sequential_body},all"
    return ORDERS[options.unfreezing]


def trained_groups(stages: Sequence[Stage], epoch: int) -> frozenset[int]:
    """The groups, counted from the bottom, that are trained in an epoch, counted from 0."""
    for stage in stages:
        if stage.epochs is None or epoch < stage.epochs:
            return stage.groups
        epoch -= stage.epochs
    raise AssertionError


def ever_trained(names: Sequence[str], options: Hyperparameters, epochs: int) -> frozenset[int]:
    """The groups with these names, counted from the bottom, that are trained in any of the first ``epochs`` epochs."""
    stages = plan(order_of(options), names)
    return frozenset[int]().union(*(trained_groups(stages, epoch) for epoch in range(epochs)))


def moved_weights(groups: Sequence[LayerGroup], options: Hyperparameters) -> dict[str, nn.Parameter]:
    """The encoder's weights that a training changes in any of its epochs, by name."""
    chosen = ever_trained([name for name, _ in groups], options, options.epochs)
    return {name: p for i in chosen for name, p in groups[i][1] if name.startswith("encoder.")}


def settled_epoch(stages: Sequence[Stage]) -> int:
    """The first epoch, counted from 0, after which nothing is frozen or unfrozen any more."""
    return sum(stage.epochs or 0 for stage in stages)


class Thaw(TrainerCallback):
    """Freezes and unfreezes layers at the start of each epoch of a ``transformers.Trainer``, also in resumed runs.

    A frozen parameter has no gradient, so neither momentum nor weight decay changes it. The epoch is computed from the
    number of updates, which a resumed run restores. Several processes need ``ddp_find_unused_parameters``.

    Raises
    ------
    UsageError
        If training starts with other numbers of epochs or updates than those given here.
    """

    def __init__(self, groups: Sequence[LayerGroup], order: str, *, epochs: int, steps_per_epoch: int) -> None:
        names = [name for name, _ in groups]
        self.groups, self.stages = groups, plan(order, names)
        self.epochs, self.steps_per_epoch = epochs, steps_per_epoch
        log.info("trained layers by epoch: %s", shown_plan(self.stages, names))
        if epochs <= (last := settled_epoch(self.stages)):
            log.warning(
                "the order %s of %d layers reaches its last stage only in epoch %d; there are %d epochs.",
                *(next((name for name, known in ORDERS.items() if known == order), order), len(groups)),
                *(last + 1, epochs),
            )

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Compare the schedule with the Trainer's number of updates."""
        if state.max_steps != self.epochs * self.steps_per_epoch:
            raise UsageError(
                f"the schedule is for {self.epochs} epochs of {self.steps_per_epoch} updates, but the Trainer makes "
                f"{state.max_steps} updates. Build it with the Trainer's numbers."
            )

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Freeze all layers except those of the epoch that starts."""
        epoch = state.global_step // self.steps_per_epoch
        chosen = trained_groups(self.stages, epoch)
        for i, (name, members) in enumerate(self.groups):
            for _, parameter in members:
                parameter.requires_grad_(i in chosen)
                if i not in chosen:
                    parameter.grad = None
            log.debug("epoch %d: %s is %s", epoch, name, "trained" if i in chosen else "frozen")
