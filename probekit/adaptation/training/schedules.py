"""BERT's optimiser, which libraries no longer provide, and learning rates over the updates of a training run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau
from torch.optim.optimizer import ParamsT
from transformers import get_scheduler

from probekit.adaptation.optimisation.order import GRADUAL, ORDERS
from probekit.adaptation.options import Hyperparameters, Schedule
from probekit.adaptation.training.groups import LayerGroup, Thaw, order_of
from probekit.errors import UsageError


class BertAdamW(torch.optim.Optimizer):
    """AdamW as in google-research/bert, ``optimization.py``: without the bias correction of Adam.

    The moments start at zero and are not rescaled, so the first steps are large (by a ratio of 0.1 / sqrt(0.001), about
    3, for the first), which is the reason for the warm-up. ``eps`` is outside the square root; weight decay is
    decoupled: p -= lr * (m / (sqrt(v) + eps) + weight_decay * p). Clip gradients to a norm of 1 first.

    Raises
    ------
    UsageError
        For a setting out of range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 5e-5,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        if lr < 0 or eps <= 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise UsageError(
                f"lr ≥ 0, betas in [0, 1), eps > 0, weight_decay ≥ 0 needed, not {lr}, {betas}, {eps}, {weight_decay}."
            )
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]  # two overloads
        """One update of every parameter that has a gradient; returns the loss of ``closure``, if one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._update(group)
        return loss

    def _update(self, group: dict[str, Any]) -> None:
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        for p in params:
            if not self.state[p]:
                self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        grads = [p.grad for p in params]
        first, second = ([self.state[p][name] for p in params] for name in ("exp_avg", "exp_avg_sq"))
        beta1, beta2 = group["betas"]
        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, grads, alpha=1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, value=1 - beta2)
        scale = torch._foreach_sqrt(second)
        torch._foreach_add_(scale, group["eps"])
        update = torch._foreach_div(first, scale)
        if group["weight_decay"]:
            torch._foreach_add_(update, params, alpha=group["weight_decay"])
        torch._foreach_add_(params, update, alpha=-group["lr"])


def slanted_triangular(peak: float, step: int, steps: int, *, cut: float = 0.1, ratio: float = 32) -> float:
    """The learning rate of update ``step`` of ``steps``, both counted from 0: Howard & Ruder (2018), equation 3.

    It rises from ``peak / ratio`` during the fraction ``cut`` of the updates and falls back during the others, over
    ``steps - top`` updates; the paper's ``top * (1 / cut - 1)`` is the same if ``cut * steps`` is whole.
    """
    top = int(steps * cut)
    height = step / top if step < top else 1 - (step - top) / (steps - top)
    return peak * (1 + height * (ratio - 1)) / ratio


def triangle(step: int, ends: Sequence[int], *, epochs: int, steps: int, frozen: int) -> tuple[int, int]:
    """The position of update ``step`` in its triangle, and the triangle's length, as in AllenNLP 0.9.

    Each of the first ``frozen`` epochs, while layers are still frozen, has a new triangle; one triangle covers the
    remaining training.

    Parameters
    ----------
    ends : Sequence[int]
        Updates done at the end of each finished epoch. As in AllenNLP, an epoch counts as finished only after the first
        update of the next one; if all epochs have ``steps`` updates, that update has the lowest rate in any case.
    steps : int
        Expected updates per epoch; after the first epoch, the mean length of finished epochs is used.
    """
    finished = [0, *(end for end in ends if end < step)]
    done = len(finished) - 1
    length = finished[-1] // done if done else max(steps, step)
    start = finished[min(done, frozen)]
    if done >= frozen:
        length = epochs * length - start
    return min(step - start, length), length


def bert_linear(step: int, *, warmup: int, steps: int) -> float:
    """The factor of google-research/bert at update ``step``, counted from 0: a line down from 1 at update 0.

    The warm-up rises from 0 towards 1 below this line, so the rate drops slightly at its end; the line in transformers
    starts at that point.
    """
    return step / warmup if step < warmup else max(0.0, 1 - step / steps)


class SlantedTriangular(LRScheduler):
    """:func:`slanted_triangular` for every parameter group, from its own peak; see :func:`triangle` for ``frozen``."""

    def __init__(
        self, optimizer: Optimizer, *, epochs: int, steps: int, frozen: int = 0, cut: float = 0.1, ratio: float = 32
    ) -> None:
        self.epochs, self.steps, self.frozen, self.cut, self.ratio = epochs, steps, frozen, cut, ratio
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:  # as torch declares it: floats or tensors
        """The rates of the next update, one per parameter group."""
        ends = range(self.steps, self.last_epoch + 1, self.steps)
        place = triangle(self.last_epoch, ends, epochs=self.epochs, steps=self.steps, frozen=self.frozen)
        return [slanted_triangular(peak, *place, cut=self.cut, ratio=self.ratio) for peak in map(float, self.base_lrs)]


def plateau(optimizer: Optimizer, patience: int, *, rising: bool = True) -> ReduceLROnPlateau:
    """The schedule of Bowman et al. (2018): halve the rate at evaluation ``patience + 1`` without improvement.

    Improvements of less than 1e-4 do not count; step it with the main metric after each evaluation.

    Parameters
    ----------
    rising : bool, default True
        Whether larger values of the metric are better.
    """
    mode: Literal["max", "min"] = "max" if rising else "min"
    return ReduceLROnPlateau(optimizer, mode, factor=0.5, patience=patience, threshold=1e-4, threshold_mode="abs")


def build(
    optimizer: Optimizer,
    groups: Sequence[LayerGroup],
    options: Hyperparameters,
    steps_per_epoch: int,
    *,
    rising: bool = True,
) -> tuple[LRScheduler, Thaw | None]:
    """The scheduler for ``transformers.Trainer``, to be stepped after each update, and a callback for unfreezing.

    That of PLATEAU is to be stepped after each evaluation.

    Parameters
    ----------
    groups : Sequence[LayerGroup]
        The layers that ``options.order`` or ``options.unfreezing`` freezes and unfreezes, bottom to top.
    options : Hyperparameters
        ``schedule``, ``order``, ``unfreezing`` and ``epochs``; ``warmup``, the fraction of all updates, rounded down,
        in which LINEAR, COSINE and BERT rise from zero; ``cut`` and ``ratio`` of SLANTED_TRIANGULAR, which with GRADUAL
        unfreezing restarts in each epoch until all layers are trained; ``sequential_head`` and ``sequential_body``, the
        epochs that train only the head, and then all but the embeddings, with SEQUENTIAL unfreezing;
        ``plateau_patience``.
    rising : bool, default True
        For PLATEAU, whether larger values of the main metric are better.

    Raises
    ------
    UsageError
        For a number of updates or epochs out of range.
    """
    if steps_per_epoch < 1:
        raise UsageError(f"a schedule needs at least 1 update per epoch, not {steps_per_epoch}.")
    epochs, order = options.epochs, order_of(options)
    steps = epochs * steps_per_epoch
    warmup = int(options.warmup * steps)
    scheduler: LRScheduler
    if options.schedule is Schedule.SLANTED_TRIANGULAR:
        frozen = len(groups) - 1 if order == GRADUAL else 0
        scheduler = SlantedTriangular(
            optimizer, epochs=epochs, steps=steps_per_epoch, frozen=frozen, cut=options.cut, ratio=options.ratio
        )
    elif options.schedule is Schedule.PLATEAU:
        scheduler = plateau(optimizer, options.plateau_patience, rising=rising)
    elif options.schedule is Schedule.BERT:
        scheduler = LambdaLR(optimizer, partial(bert_linear, warmup=warmup, steps=steps))
    else:
        scheduler = get_scheduler(str(options.schedule), optimizer, warmup, steps)
    if order == ORDERS["all"]:
        return scheduler, None
    return scheduler, Thaw(groups, order, epochs=epochs, steps_per_epoch=steps_per_epoch)
