"""The layers of an encoder and its head as parameter groups, bottom to top, and which of them each epoch trains."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from torch import nn
from transformers import TrainerCallback

from probekit.adaptation.optimisation.order import ORDERS, Stage, plan, shown_plan
from probekit.adaptation.options import Hyperparameters, Unfreezing
from probekit.errors import UsageError
from probekit.models.transformers.blocks import find_blocks

LayerGroup = tuple[str, list[tuple[str, nn.Parameter]]]
"""The name of a layer, and its parameters with their names."""

_FINAL_NORM = re.compile(r"(^|\.)(norm|ln_f|norm_f|final_norm|final_layer_?norm)\.\w+$")
"""Names of the norm after the last block in transformers. DeBERTa's ``encoder.LayerNorm`` belongs to the positions."""


def layer_groups(encoder: nn.Module, **above: nn.Module) -> list[LayerGroup]:
    """The trainable parameters by layer, bottom to top: ``embeddings``, ``block 1`` … ``block L``, ``head``.

    Parameters outside the blocks belong to the embeddings, except a norm after the last block (to that block) and the
    encoder's pooler (to the head). ALBERT's shared blocks are one group. Each parameter, even a tied one, is in only
    one group; layers without trainable parameters are left out.

    Parameters
    ----------
    **above
        The modules of the group ``head``, by name: heads, and the mix of layers.

    Raises
    ------
    ModelError
        If the encoder's blocks cannot be found.
    """
    blocks = find_blocks(encoder)
    home = {id(parameter): i for i, block in enumerate(blocks, start=1) for parameter in block.parameters()}
    names = ["embeddings", *(f"block {i}" for i in range(1, len(blocks) + 1)), "head"]
    groups: list[LayerGroup] = [(name, []) for name in names]
    for name, parameter in encoder.named_parameters():
        outside = -1 if "pooler" in name.split(".") else len(blocks) if _FINAL_NORM.search(name) else 0
        groups[home.setdefault(id(parameter), outside)][1].append((f"encoder.{name}", parameter))
    for part, module in above.items():
        groups[-1][1].extend((f"{part}.{name}", p) for name, p in module.named_parameters() if id(p) not in home)
    trainable = [(name, [(key, p) for key, p in members if p.requires_grad]) for name, members in groups]
    return [group for group in trainable if group[1]]


def layer_names(encoder: Any) -> tuple[str, ...]:
    """The names of an encoder's hidden states, inputs of blocks and the last: "0" … "L - 1", "L" or "final_norm"."""
    depth = int(encoder.config.num_hidden_layers)
    inside = {id(module) for block in find_blocks(encoder) for module in block.modules()}
    outside = [name for name, module in encoder.named_modules() if id(module) not in inside]
    normed = any(_FINAL_NORM.search(f"{name}.weight") for name in outside)
    return (*map(str, range(depth)), "final_norm" if normed else str(depth))


def param_groups(
    groups: Sequence[LayerGroup], *, lr: float, weight_decay: float = 0.0, layer_factor: float = 1.0
) -> list[dict[str, Any]]:
    """The groups for a torch optimiser, each with the rate ``lr * layer_factor**depth``.

    The top has depth 0. Peters, Ruder & Smith (2019) use a factor of 0.4, ULMFiT (Howard & Ruder 2018, section 3.2)
    1 / 2.6. Biases and weights of norms, the only parameters with one dimension, are not decayed.
    """
    made: list[dict[str, Any]] = []
    for depth, (name, members) in enumerate(reversed(groups)):
        for decay, wide in ((weight_decay, True), (0.0, False)):
            if chosen := [parameter for _, parameter in members if (parameter.ndim > 1) == wide]:
                rate = lr * layer_factor**depth
                made.insert(0, {"params": chosen, "lr": rate, "weight_decay": decay, "layer": name})
    return made


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
