"""BERT's optimiser, which libraries no longer provide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from probekit.errors import UsageError

__all__ = ["BertAdamW"]


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
