"""Which columns of which module hold the values of the attention heads, found by multiplying and comparing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from probekit.models.sites.errors import exact, vector_error
from probekit.models.sites.projections import inputs, outputs
from probekit.models.sites.recording import Call


@dataclass(frozen=True, slots=True)
class Heads:
    """The attention of a block.

    Attributes
    ----------
    projection : Call
        The output projection, which reads z.
    values : Call
        The module whose output holds the values.
    columns : tuple of int
        The columns of the values there, head after head.
    count : int
        The number of heads of values.
    """

    projection: Call
    values: Call
    columns: tuple[int, ...]
    count: int


def attended(probabilities: torch.Tensor, values: torch.Tensor, width: int) -> torch.Tensor:
    """attn_probs · value, the heads side by side.

    Parameters
    ----------
    probabilities : torch.Tensor
        (heads, t, t).
    values : torch.Tensor
        (t, value heads · d); neighbouring heads share values if there are fewer.
    width : int
        heads · d.

    Returns
    -------
    torch.Tensor
        (t, heads · d), in float64 or float32.
    """
    heads, precision = len(probabilities), torch.float64 if values.dtype == torch.float64 else torch.float32
    split = values.to(precision).unflatten(1, (-1, width // heads)).transpose(0, 1)
    shared = split.repeat_interleave(heads // len(split), 0)
    return (probabilities.to(precision) @ shared).transpose(0, 1).flatten(1)


def find_heads(calls: Sequence[Call], probabilities: torch.Tensor, tolerance: float) -> Heads | None:
    """The output projection whose input is attn_probs · value for values that another linear layer returns.

    Parameters
    ----------
    calls : sequence of Call
        The calls in a block.
    probabilities : torch.Tensor
        (heads, t, t), the block's attention probabilities.
    tolerance : float
        The largest error that counts as equal.

    Returns
    -------
    Heads or None
        None if there is no such pair.
    """
    linear = [call for call in calls if inputs(call.module) and call.given is not None and call.returned is not None]
    for k, projection in enumerate(linear):
        if inputs(projection.module) % len(probabilities):
            continue
        for values in linear[:k]:
            if outputs(values.module) and (found := _columns(projection, values, probabilities, tolerance)):
                return found
    return None


def _columns(projection: Call, values: Call, probabilities: torch.Tensor, tolerance: float) -> Heads | None:
    """The columns of ``values`` that ``projection`` reads, weighted by the probabilities."""
    assert projection.given is not None
    assert values.returned is not None
    heads, z, offered = len(probabilities), exact(projection.given), exact(values.returned)
    size = z.shape[1] // heads
    starts = []
    for h in range(heads):
        weighted = exact(probabilities[h]) @ offered
        right = z[:, h * size : (h + 1) * size]
        start = int((weighted - right[:, :1]).square().sum(0).argmin())
        found = weighted[:, start : start + size]
        if found.shape != right.shape or vector_error(found.T, right.T) > tolerance:
            return None
        starts.append(start)
    distinct = list(dict.fromkeys(starts))
    if starts != [start for start in distinct for _ in range(heads // len(distinct))]:
        return None
    return Heads(projection, values, tuple(c for start in distinct for c in range(start, start + size)), len(distinct))
