"""The pieces of spans in every layer, a batch of targets at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import NonFiniteError

if TYPE_CHECKING:
    import torch

BLOCK = 4096


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of one span of each of B targets.

    Attributes
    ----------
    x : torch.Tensor
        float32 (L, p, d), the pieces of the first target, then those of the second …
    of : torch.Tensor
        int64 (p,), the target of each piece, 0 … B - 1, ascending.
    """

    x: torch.Tensor
    of: torch.Tensor


@dataclass(frozen=True, slots=True)
class SpanLayers:
    """The spans of m targets, as rows of the token vectors of L layers of the same width.

    Attributes
    ----------
    layers : sequence of np.ndarray
        L arrays (t, d), float; may be memory-mapped.
    first, last : np.ndarray
        int64 (m, k), the first and last row of each of the k spans of a target.
    centre, scale : np.ndarray
        float32 (L, 1, d), subtracted from vectors, and what they are then divided by.
    """

    layers: Sequence[np.ndarray]
    first: np.ndarray
    last: np.ndarray
    centre: np.ndarray = field(default_factory=lambda: np.zeros((1, 1, 1), dtype=np.float32))
    scale: np.ndarray = field(default_factory=lambda: np.ones((1, 1, 1), dtype=np.float32))

    def __len__(self) -> int:
        return len(self.first)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Layers, spans of a target, width."""
        return len(self.layers), self.first.shape[1], int(self.layers[0].shape[1])

    def some(self, targets: np.ndarray) -> SpanLayers:
        """Those of some targets."""
        return replace(self, first=self.first[targets], last=self.last[targets])

    def batch(self, targets: Any) -> list[Pieces]:
        """The pieces of the first span of some targets, then of the second."""
        import torch

        found = []
        for first, last in zip(self.first[targets].T, self.last[targets].T, strict=True):
            length = last - first + 1
            of = np.repeat(np.arange(len(length)), length)
            rows = np.arange(len(of)) + np.repeat(first - (np.cumsum(length) - length), length)
            x = np.stack([layer[rows] for layer in self.layers]).astype(np.float32, copy=False)
            found.append(Pieces(torch.from_numpy((x - self.centre) / self.scale), torch.from_numpy(of)))
        return found

    def rows(self) -> np.ndarray:
        """The rows of all spans, each once, ascending."""
        edges = np.zeros(int(self.last.max()) + 2, dtype=np.int64)
        np.add.at(edges, self.first.ravel(), 1)
        np.add.at(edges, self.last.ravel() + 1, -1)
        return np.flatnonzero(np.cumsum(edges))

    def moments(self, names: Sequence[str], part: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the pieces of spans, each once, float32 (L, 1, d); 1 if it is 0.

        Raises
        ------
        NonFiniteError
            If a layer contains NaN or infinity; the message has its name and the ``part``.
        """
        rows = self.rows()
        mean, square = np.zeros((2, len(self.layers), self.shape[2]))
        for i, (name, layer) in enumerate(zip(names, self.layers, strict=True)):
            for at in range(0, len(rows), BLOCK):
                some = rows[at : at + BLOCK]
                x = layer[some].astype(np.float64)
                if not (finite := np.isfinite(x).all(1)).all():
                    raise NonFiniteError(
                        f"layer {name} of {part} contains NaN or infinity, first in row {int(some[finite.argmin()])} "
                        "of the token vectors; leave the layer out with --layers, or cache it in float32."
                    )
                mean[i] += x.sum(0) / len(rows)
                square[i] += (x**2).sum(0) / len(rows)
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
        deviation[deviation < 1e-6 * (1e-12 + np.abs(mean))] = 1
        return mean[:, None].astype(np.float32), deviation[:, None].astype(np.float32)
