"""Cross-entropy over the words of a vocabulary, without holding the logits of all pieces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from probekit.adaptation.heads.head import IGNORED
from probekit.errors import UsageError
from probekit.models.transformers.onednn import onednn_available, onednn_linear


def check_vocabulary(outputs: int) -> None:
    """Raise UsageError for a vocabulary without a choice."""
    if outputs < 2:
        raise UsageError(f"the output vocabulary has {outputs} words; expected at least 2. Give more training text.")


def known_words(labels: Tensor, outputs: int) -> Tensor:
    """Where ids of words (b, t) are not ``IGNORED``.

    Raises
    ------
    UsageError
        For ids outside the vocabulary.
    """
    known = labels != IGNORED
    if bool((known & ((labels < 0) | (labels >= outputs))).any()):
        low, high = (int(x) for x in labels[known].aminmax())
        raise UsageError(
            f"labels are from {low} to {high}; expected ids from 0 to {outputs - 1}, and {IGNORED} at padding. "
            "Map unknown words to the vocabulary's id for them."
        )
    return known


def mean_loss(hidden: Tensor, output: nn.Linear, labels: Tensor) -> Tensor:
    """Mean cross-entropy of words (n,) given hidden states (n, d), in nats; 0 without words."""
    return vocabulary_loss(hidden, output.weight, output.bias, labels) if len(labels) else hidden.sum()


ROWS = 256
"""Pieces whose logits are held at once: 8 MB for 8,000 pieces."""


def vocabulary_loss(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """Mean cross-entropy of ``hidden @ weight.T + bias`` and labels, in nats.

    Logits exist for a few pieces at a time. Their gradient is multiplied out directly, and the backward pass only
    scales the results.

    Parameters
    ----------
    hidden : Tensor
        (n, d).
    weight, bias : Tensor
        (v, d), and (v) or None.
    labels : Tensor
        int64 (n).
    """
    bfloat16 = torch.is_autocast_enabled(hidden.device.type)
    dtype = torch.bfloat16 if bfloat16 else hidden.dtype
    if not torch.is_grad_enabled():  # parameters count as needing gradients in a Function even then
        weight, bias = weight.detach(), None if bias is None else bias.detach()
    loss: Tensor = _Loss.apply(hidden, weight, bias, labels, dtype)
    return loss


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, dtype: Any) -> Tensor:
        needed = [*ctx.needs_input_grad[:3]]
        rows, table = hidden.to(dtype), weight.to(dtype)
        total = hidden.new_zeros((), dtype=torch.float32)
        of_hidden = torch.empty_like(rows) if needed[0] else None
        of_weight = torch.zeros_like(weight) if needed[1] else None
        of_bias = torch.zeros_like(bias) if bias is not None and needed[2] else None
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, len(rows), ROWS):
                part, right = rows[start : start + ROWS], labels[start : start + ROWS]
                logits = _product(part, table).float()
                logits = logits if bias is None else logits.add_(bias)
                values = torch.log_softmax(logits, 1)
                total += functional.nll_loss(values, right, reduction="sum")
                if not any(needed):
                    continue
                gradient = values.exp_()
                gradient[torch.arange(len(right), device=right.device), right] -= 1
                if of_bias is not None:
                    of_bias += gradient.sum(0)
                gradient = gradient.to(dtype)
                if of_hidden is not None:
                    of_hidden[start : start + ROWS] = _product(gradient, table.T)
                if of_weight is not None:
                    of_weight += _product(gradient.T, part.T)
        ctx.save_for_backward(of_hidden, of_weight, of_bias)
        ctx.count, ctx.dtype = len(rows), hidden.dtype
        return total / len(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scale = gradients[0] / ctx.count
        of_hidden, of_weight, of_bias = ctx.saved_tensors
        return (
            None if of_hidden is None else of_hidden.to(ctx.dtype) * scale,
            None if of_weight is None else of_weight * scale,
            None if of_bias is None else of_bias * scale,
            None,
            None,
        )


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """x (n, d) @ weight.T (d, v)."""
    if x.device.type == "cpu" and x.dtype is torch.float32 and onednn_available(torch.float32):
        return onednn_linear(x, weight)
    return functional.linear(x, weight)
