"""A learned mix of an encoder's layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from probekit.errors import UsageError

__all__ = ["ScalarMix"]


class ScalarMix(nn.Module):
    """gamma · Σ_l softmax(s)_l · h_l (Peters et al. 2018, equation 1); at the start the mean of the layers.

    Attributes
    ----------
    scalar_parameters : Parameter
        (layers,), s.
    gamma : Parameter
        (1,).
    layer_norm : bool, default False
        First take from each layer its mean and divide it by its deviation, √(variance + 1e-12), both over all numbers
        of the layer in the batch that are no padding. This is what bilm-tf and AllenNLP do with ``do_layer_norm``; with
        it the mix of a sentence depends, a little, on the batch that it is in. bilm-tf takes both numbers of the words,
        as training here does; AllenNLP of what begins and ends the sentences, too.
    """

    def __init__(self, layers: int, *, layer_norm: bool = False) -> None:
        super().__init__()
        self.layer_norm = layer_norm
        self.scalar_parameters = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))

    @property
    def weights(self) -> Tensor:
        """Float32 (layers,): how much of each layer is in the mix; they sum to 1."""
        return self.scalar_parameters.detach().softmax(0)

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """The mix, (…, d), of the layers, (layers, …, d): packed pieces (t, d), or a padded batch (b, t, d).

        Parameters
        ----------
        mask : Tensor, optional
            Bool (…), what is no padding; only the layer norm asks for it.
        """
        if len(hidden) != len(self.scalar_parameters):
            raise UsageError(f"a mix of {len(self.scalar_parameters)} layers was given {len(hidden)}.")
        hidden = hidden.to(self.gamma.dtype)
        weights, shift = self.gamma * self.scalar_parameters.softmax(0), None
        if self.layer_norm:
            pieces = hidden if mask is None else hidden[:, mask]
            mean = pieces.flatten(1).mean(1)
            square = torch.linalg.vector_norm(pieces, dim=-1).square().flatten(1).mean(1) / pieces.shape[-1]
            # torch.var_mean, a single pass, takes tens of times as long on a CPU
            weights = weights / ((square - mean.square()).clamp_min(0) + 1e-12).sqrt()
            shift = weights @ mean
        mixed = (weights @ hidden.flatten(1)).view(hidden.shape[1:])  # each layer is read once
        return mixed if shift is None else mixed - shift
