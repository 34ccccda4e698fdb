"""Compiling an encoder with torch.compile."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from probekit.errors import UsageError, first_line

__all__ = ["compile_encoder"]


def compile_encoder(encoder: nn.Module, device: str) -> None:
    """Compile an encoder in place, for batches of any size; names and values of its weights stay.

    Raises
    ------
    UsageError
        If this machine cannot compile, for instance because it has no C++ compiler.
    """
    try:
        torch.compile(_probe)(torch.ones(8, device=device))
    except Exception as error:
        raise UsageError(
            f"torch cannot compile on this machine ({first_line(error)[:200]}). Install a C++ compiler, or leave out "
            "--compile."
        ) from error
    encoder.compile(dynamic=True)


def _probe(x: Tensor) -> Tensor:
    return (x * 2).sin() + 1
