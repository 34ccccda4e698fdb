"""The layers that are trained in each epoch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from transformers import TrainerCallback

from probekit.adaptation.options import Unfreezing
from probekit.adaptation.training.groups import LayerGroup
from probekit.errors import UsageError

__all__ = ["Thaw", "settled_epoch", "trained_groups"]

log = logging.getLogger(__name__)


def trained_groups(unfreezing: Unfreezing, epoch: int, groups: int, sequential: tuple[int, int] = (1, 1)) -> range:
    """The groups, counted from the bottom, that are trained in an epoch, counted from 0.

    Each stage takes one epoch and the last stage all remaining ones; the stages of SEQUENTIAL take the epochs in
    ``sequential`` (its authors search for both; Felbo et al. end each stage when the dev metric no longer improves).
    """
    top = groups - 1
    match unfreezing:
        case Unfreezing.TOP:
            return range(top, groups)
        case Unfreezing.GRADUAL:
            return range(max(top - epoch, 0), groups)
        case Unfreezing.CHAIN_THAW if epoch < groups:
            return range(epoch - 1, epoch) if epoch else range(top, groups)
        case Unfreezing.SEQUENTIAL if epoch < sum(sequential):
            return range(top if epoch < sequential[0] else min(1, top), groups)
    return range(groups)


def settled_epoch(unfreezing: Unfreezing, groups: int, sequential: tuple[int, int] = (1, 1)) -> int:
    """The first epoch, counted from 0, after which nothing is frozen or unfrozen any more."""
    stages = {
        Unfreezing.GRADUAL: groups - 1,
        Unfreezing.CHAIN_THAW: groups if groups > 1 else 0,
        Unfreezing.SEQUENTIAL: sum(sequential) if groups > 1 else 0,
    }
    return stages.get(unfreezing, 0)


class Thaw(TrainerCallback):
    """Freezes and unfreezes layers at the start of each epoch of a ``transformers.Trainer``, also in resumed runs.

    A frozen parameter has no gradient, so neither momentum nor weight decay changes it. The epoch is computed from the
    number of updates, which a resumed run restores. Several processes need ``ddp_find_unused_parameters``.

    Raises
    ------
    UsageError
        If training starts with other numbers of epochs or updates than those given here.
    """

    def __init__(
        self,
        groups: Sequence[LayerGroup],
        unfreezing: Unfreezing,
        *,
        epochs: int,
        steps_per_epoch: int,
        sequential: tuple[int, int] = (1, 1),
    ) -> None:
        self.groups, self.unfreezing, self.sequential = groups, unfreezing, sequential
        self.epochs, self.steps_per_epoch = epochs, steps_per_epoch
        if epochs <= (last := settled_epoch(unfreezing, len(groups), sequential)):
            log.warning(
                "%s unfreezing of %d layers reaches its last stage only in epoch %d; there are %d epochs.",
                *(unfreezing, len(groups), last + 1, epochs),
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
        chosen = trained_groups(self.unfreezing, epoch, len(self.groups), self.sequential)
        for i, (name, members) in enumerate(self.groups):
            for _, parameter in members:
                parameter.requires_grad_(i in chosen)
                if i not in chosen:
                    parameter.grad = None
            log.debug("epoch %d: %s is %s", epoch, name, "trained" if i in chosen else "frozen")
