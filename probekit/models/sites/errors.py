"""How far two sides of an identity are apart, and how far rounding may bring them."""

from __future__ import annotations

import torch

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""The largest error of an identity that rounding explains. These precisions round by 1.1e-16, 6e-8, 4.9e-4 and 3.9e-3;
a sum of a block rounds two or three times, so that its error is a few times that. A product of a thousand terms rounds
more often, but mostly in both directions, and its output once; a norm scales the error of what it reads. Another tensor
in place of the right one gives errors near 1."""


def exact(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64 on the CPU; some devices have no float64."""
    return tensor.detach().cpu().double()


def sum_error(total: torch.Tensor, *terms: torch.Tensor) -> float:
    """The largest |total - sum of terms| / (sum of |terms|) of all numbers; infinite if it is not finite.

    It is relative to each number, so that the few large numbers in the stream of some models (Sun et al. 2024, Massive
    Activations in Large Language Models) hide no error in the others.
    """
    summed = torch.stack([exact(term) for term in terms])
    off = (exact(total) - summed.sum(0)).abs()
    size = summed.abs().sum(0).clamp_min(torch.finfo(torch.float64).tiny)
    return _largest(off / size)


def vector_error(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest \\|found - right\\| / \\|right\\| of all vectors (…, width); infinite if it is not finite."""
    found, right = exact(found), exact(right)
    size = right.norm(dim=-1).clamp_min(torch.finfo(torch.float64).tiny)
    return _largest((found - right).norm(dim=-1) / size)


def _largest(errors: torch.Tensor) -> float:
    return float(errors.nan_to_num(float("inf")).max()) if errors.numel() else float("inf")
