"""The probe of Tenney et al. (2019, section 3.1 and appendix C), M of them at once.

Pieces are projected (the first and the second span each in its own way) and pooled by the softmax of one score a piece
(Lee et al. 2017). The spans, side by side, pass a hidden layer (tanh, layer norm, dropout), and every label has its own
sigmoid. The linear probe has neither projection nor hidden layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probekit.probes.edges.options import EdgeOptions, EdgeProbe
from probekit.probes.edges.spans import Pieces

if TYPE_CHECKING:
    import torch

    Weights = dict[str, torch.Tensor]

EPS = 1e-5  # of the layer norm, as in torch.nn.LayerNorm


@dataclass(frozen=True, slots=True)
class Probes:
    """What each of M probes reads and learns: either all of them read one layer, or all of them a mix.

    Attributes
    ----------
    reads : np.ndarray
        bool (M, L), the layers that a probe reads.
    target : np.ndarray
        Int (M,), the number of its label set.
    seed : np.ndarray
        Int (M,), of its first weights and dropout.
    mixed : bool
        Whether probes learn the weights of a mix (Peters et al. 2018, equation 1); if not, they read one layer.
    """

    reads: np.ndarray
    target: np.ndarray
    seed: np.ndarray
    mixed: bool

    def __len__(self) -> int:
        return len(self.target)

    def some(self, at: np.ndarray) -> Probes:
        """Those at some places."""
        return Probes(self.reads[at], self.target[at], self.seed[at], self.mixed)


def first_weights(
    shape: tuple[int, int, int], outputs: int, options: EdgeOptions, draw: torch.Generator, *, mixed: bool
) -> Weights:
    """The first weights of one probe, as torch.nn.Linear draws them: uniform within ± 1 / √(inputs); an even mix.

    shape : layers, spans of a target, width.
    """
    import torch

    layers, spans, d = shape

    def uniform(inputs: int, *size: int) -> torch.Tensor:
        return torch.empty(size).uniform_(-(inputs**-0.5), inputs**-0.5, generator=draw)

    mlp = options.probe is EdgeProbe.MLP
    weights: Weights = {}
    width = options.projection if mlp else d
    for k in range(spans):
        if mlp:
            weights |= {f"project{k}": uniform(d, d, width), f"project{k}_bias": uniform(d, width)}
        weights[f"score{k}"] = uniform(width, width)
    inputs = spans * width
    if mlp:
        hidden = options.hidden
        weights |= {"hidden": uniform(inputs, inputs, hidden), "hidden_bias": uniform(inputs, hidden)}
        weights |= {"gain": torch.ones(hidden), "shift": torch.zeros(hidden)}
        inputs = hidden
    weights |= {"out": uniform(inputs, inputs, outputs), "out_bias": uniform(inputs, outputs)}
    return weights | ({"mix": torch.zeros(layers), "gamma": torch.ones(1)} if mixed else {})


def mix_weights(weights: Mapping[str, torch.Tensor], reads: torch.Tensor) -> torch.Tensor:
    """The softmax of the mix over the layers that each probe reads, (M, L); 0 for the others."""
    import torch

    return weights["mix"].masked_fill(~reads, -torch.inf).softmax(-1)


def gates(options: EdgeOptions, rows: int, draw: torch.Generator) -> torch.Tensor:
    """The dropout factors of hidden units, (rows, hidden): 0, or 1 / (1 - dropout)."""
    import torch

    keep = 1 - options.dropout
    return torch.empty(rows, options.hidden).bernoulli_(keep, generator=draw).div_(keep)


def logits(
    weights: Mapping[str, torch.Tensor],
    reads: torch.Tensor,
    batch: Sequence[Pieces],
    count: int,
    gate: torch.Tensor | None = None,
) -> torch.Tensor:
    """The logits of labels, (M, B, labels).

    Parameters
    ----------
    weights : mapping of str to torch.Tensor
        Those of :func:`first_weights`, of M probes.
    reads : torch.Tensor
        bool (M, L).
    batch : sequence of Pieces
        The pieces of each span of B targets.
    count : int
        B.
    gate : torch.Tensor, optional
        The dropout factors, (B, hidden) or (M, B, hidden).
    """
    import torch

    pooled = []
    for k, pieces in enumerate(batch):
        if "mix" in weights:
            shares = weights["gamma"] * mix_weights(weights, reads)
            z = (shares @ pieces.x.flatten(1)).unflatten(1, pieces.x.shape[1:])
        else:
            z = pieces.x[reads.int().argmax(1)]
        if f"project{k}" in weights:
            z = torch.baddbmm(weights[f"project{k}_bias"][:, None], z, weights[f"project{k}"])
        pooled.append(_pooled(z, weights[f"score{k}"], pieces.of, count))
    x = torch.cat(pooled, -1)
    if "hidden" in weights:
        x = torch.baddbmm(weights["hidden_bias"][:, None], x, weights["hidden"]).tanh()
        x = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=EPS)
        x = x * weights["gain"][:, None] + weights["shift"][:, None]
        x = x if gate is None else x * gate
    return torch.baddbmm(weights["out_bias"][:, None], x, weights["out"])


def _pooled(z: torch.Tensor, score: torch.Tensor, of: torch.Tensor, count: int) -> torch.Tensor:
    """Means of the pieces (M, p, h) of each target, weighted by the softmax of their scores, (M, count, h)."""
    import torch

    if len(of) == count:  # one piece a span
        return z
    scores = torch.bmm(z, score[:, :, None])[:, :, 0]
    at = of.expand(len(z), -1)
    top = torch.full((len(z), count), -torch.inf).scatter_reduce(1, at, scores.detach(), "amax")
    share = (scores - top[:, of]).exp()
    total = torch.zeros(len(z), count).index_add(1, of, share)
    return torch.zeros(len(z), count, z.shape[2]).index_add(1, of, (share / total[:, of])[:, :, None] * z)
