"""Penalties on the distance of weights from those that training starts with: L2-SP and EWC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from probekit.adaptation.training.learners import Learner

__all__ = ["DistancePenalty", "distance_penalty"]


def distance_penalty(
    weights: Mapping[str, Tensor], start: Mapping[str, Tensor], importance: Mapping[str, Tensor] | None = None
) -> Tensor:
    """Half the sum of F (w - w0)² over all weights, a scalar with a gradient.

    Times its strength, it is the first term of L2-SP (Li, Grandvalet & Davoine 2018, section 3.2) without
    ``importance``, and the penalty of EWC (Kirkpatrick et al. 2017, equation 3) with the diagonal of the Fisher
    information. The gradient keeps no copy of the weights.

    Parameters
    ----------
    weights : Mapping[str, Tensor]
        Weights by name.
    start : Mapping[str, Tensor]
        Their values w0 at the start, by the same names.
    importance : Mapping[str, Tensor], optional
        F by the same names, at least 0 (default: 1).

    Examples
    --------
    >>> import torch
    >>> from probekit.adaptation.optimisation.penalties import distance_penalty
    >>> float(distance_penalty({"w": torch.tensor([1.0, 3.0])}, {"w": torch.tensor([1.0, 1.0])}))
    2.0
    """
    f = importance or {}
    return torch.stack([_Distance.apply(w, start[name], f.get(name)) for name, w in weights.items()]).sum()


class _Distance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, start: Tensor, importance: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight, start, importance)
        return _weighted(weight - start, importance).mul_(weight - start).sum() / 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        weight, start, importance = ctx.saved_tensors
        return _weighted(weight - start, importance).mul_(gradients[0]), None, None


def _weighted(distance: Tensor, importance: Tensor | None) -> Tensor:
    return distance if importance is None else distance.mul_(importance)


class DistancePenalty:
    """The :func:`distance_penalty` of a learner's encoder, and half its head's squared norm, as a term of the loss.

    The weights of the encoder that are trained when it is made are penalised, from the values that they then have.

    Parameters
    ----------
    name : str
        Its name in the log, such as "l2-sp".
    learner : Learner
        The model before training, with an ``encoder``.
    strength, head_strength : float
        The factors of both parts, alpha and beta in Li, Grandvalet & Davoine (2018).
    importance : Mapping[str, Tensor], optional
        As for :func:`distance_penalty`, by names that begin with "encoder.".
    """

    def __init__(
        self, name: str, learner: Learner, *, strength: float, head_strength: float = 0.0,
        importance: Mapping[str, Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.strength, self.head_strength = name, strength, head_strength
        self.start = {key: weight.detach().clone() for key, weight in _trained(learner, encoder=True).items()}
        self.importance = importance

    def __call__(
        self, learner: Learner, batch: Mapping[str, Any], out: Mapping[str, Tensor], step: int, total: int,
        part: int = 0,
    ) -> Tensor:  # fmt: skip
        """The weighted value, a scalar with a gradient; the arguments are those of any term."""
        weights = {name: weight for name, weight in learner.weights().items() if name in self.start}
        self._move(next(iter(weights.values())).device)
        value = self.strength * distance_penalty(weights, self.start, self.importance)
        if self.head_strength:
            head = [weight.square().sum() for weight in _trained(learner, encoder=False).values()]
            value = value + self.head_strength * torch.stack(head).sum() / 2
        return value

    def _move(self, device: torch.device) -> None:
        """Move the values at the start to the device of the weights, once."""
        if next(iter(self.start.values())).device != device:
            self.start, self.importance = (_on(device, one) for one in (self.start, self.importance))


def _on(device: torch.device, tensors: Any) -> Any:
    return None if tensors is None else {name: one.to(device) for name, one in tensors.items()}


def _trained(learner: Learner, *, encoder: bool) -> dict[str, nn.Parameter]:
    return {
        name: weight
        for name, weight in learner.weights().items()
        if weight.requires_grad and name.startswith("encoder.") == encoder
    }
