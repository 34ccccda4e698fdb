"""A learned mix of an encoder's layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from probekit.errors import UsageError


class ScalarMix(nn.Module):
    """gamma · Σ_l softmax(s)_l · h_l (Peters et al. 2018, equation 1); initially the mean of the layers.

    Attributes
    ----------
    scalar_parameters : Parameter
        (layers,), s.
    gamma : Parameter
        (1,).
    layer_norm : bool, default False
        First subtract the mean of each layer and divide by its deviation, √(variance + 1e-12), both over all numbers of
        the layer in the batch except padding. This is ``do_layer_norm`` of bilm-tf and AllenNLP; with it, the mix of a
        sentence depends slightly on its batch. Like training here, bilm-tf computes both over words only; AllenNLP
        includes the boundaries of sentences.
    """

    def __init__(self, layers: int, *, layer_norm: bool = False) -> None:
        super().__init__()
        self.layer_norm = layer_norm
        self.scalar_parameters = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))

    @property
    def weights(self) -> Tensor:
        """Float32 (layers,): the share of each layer in the mix; they sum to 1."""
        return self.scalar_parameters.detach().softmax(0)

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """The mix, (…, d), of the layers, (layers, …, d): packed pieces (t, d), or a padded batch (b, t, d).

        Parameters
        ----------
        mask : Tensor, optional
            Bool (…), False at padding; only the layer norm needs it.
        """
        if len(hidden) != len(self.scalar_parameters):
            raise UsageError(f"the mix needs {len(self.scalar_parameters)} layers, not {len(hidden)}.")
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
