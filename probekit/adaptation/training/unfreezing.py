"""Which layers are trained in which epoch."""

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

    Each stage takes one epoch and the last takes the rest; those of SEQUENTIAL take as many as ``sequential`` says
    (its authors search for both numbers; Felbo et al. end each stage when the dev metric no longer improves).
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
    """The first epoch, counted from 0, after which nothing is frozen or thawed any more."""
    stages = {
        Unfreezing.GRADUAL: groups - 1,
        Unfreezing.CHAIN_THAW: groups if groups > 1 else 0,
        Unfreezing.SEQUENTIAL: sum(sequential) if groups > 1 else 0,
    }
    return stages.get(unfreezing, 0)


class Thaw(TrainerCallback):
    """Freezes and thaws layers as each epoch of a ``transformers.Trainer`` begins, also where a run is resumed in it.

    A frozen parameter has no gradient, so that neither momentum nor weight decay moves it. The epoch is counted from
    the updates done, which a resumed run knows as well. Several processes need ``ddp_find_unused_parameters``.

    Raises
    ------
    UsageError
        When training begins with other numbers of epochs or updates than those given here.
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
                "%s unfreezing of %d layers trains all that it should only from epoch %d on; there are %d epochs.",
                *(unfreezing, len(groups), last + 1, epochs),
            )

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hold the schedule against the Trainer's own count of updates."""
        if state.max_steps != self.epochs * self.steps_per_epoch:
            raise UsageError(
                f"the schedule was made for {self.epochs} epochs of {self.steps_per_epoch} updates, "
                f"the Trainer makes {state.max_steps} updates. Build it with the Trainer's numbers."
            )

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Freeze all but what is trained in the epoch that begins."""
        epoch = state.global_step // self.steps_per_epoch
        chosen = trained_groups(self.unfreezing, epoch, len(self.groups), self.sequential)
        for i, (name, members) in enumerate(self.groups):
            for _, parameter in members:
                parameter.requires_grad_(i in chosen)
                if i not in chosen:
                    parameter.grad = None
            log.debug("epoch %d: %s is %s", epoch, name, "trained" if i in chosen else "frozen")
