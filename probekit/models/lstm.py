"""The LSTM of ELMo: a projection of its output, and limits to what cell and projection may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["ProjectedLSTM", "Steps"]


@dataclass(frozen=True, slots=True)
class Steps:
    """Sequences, one after another without padding, as an LSTM reads them: step by step, the longest first.

    s sequences with t rows in all.

    order : int64 (s,), the sequences, longest first
    sizes : of each step, how many sequences still go on
    forward, backward : int64 (t,), the row that is read at each place of the steps, from the left and from the right
    """

    order: Tensor
    sizes: tuple[int, ...]
    forward: Tensor
    backward: Tensor

    @classmethod
    def of(cls, length: np.ndarray, device: torch.device | str = "cpu") -> Steps:
        """Steps of sequences of these lengths, int64 (s,), none of them 0."""
        order = np.argsort(-length, kind="stable")
        longest = int(length.max(initial=0))
        sizes = np.searchsorted(-length[order], -np.arange(longest), side="left")
        step = np.repeat(np.arange(longest), sizes)
        sequence = order[np.arange(len(step)) - np.repeat(np.cumsum(sizes) - sizes, sizes)]
        start = np.cumsum(length) - length
        forward, backward = start[sequence] + step, start[sequence] + length[sequence] - 1 - step
        on_device = (torch.from_numpy(x).to(device) for x in (order, forward, backward))
        first, *rows = on_device
        return cls(first, tuple(sizes.tolist()), *rows)


class ProjectedLSTM(nn.Module):
    """One layer, one direction: gates i, f, g, o; c = clip(i g + f c), h = clip(W (o tanh c)) (Sak et al. 2014).

    input : (4 cells, inputs) with the bias; recurrent : (4 cells, outputs); projection : (outputs, cells)
    cell_clip, proj_clip : limits to the absolute values of c and h, which are carried on cut; None for no limit
    """

    def __init__(
        self, inputs: int, outputs: int, cells: int, *, cell_clip: float | None = None, proj_clip: float | None = None
    ) -> None:
        super().__init__()
        self.cells, self.cell_clip, self.proj_clip = cells, cell_clip, proj_clip
        self.input = nn.Linear(inputs, 4 * cells)
        self.recurrent = nn.Linear(outputs, 4 * cells, bias=False)
        self.projection = nn.Linear(cells, outputs, bias=False)

    def forward(self, x: Tensor, sizes: Sequence[int], h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs (t, outputs) of the steps, and h and c of each sequence after its last step.

        x : (t, inputs), step by step; sizes : see :class:`Steps`; h (s, outputs), c (s, cells) : longest sequence first
        """
        gates, outputs, ended = self.input(x), [], []
        for given in gates.split(list(sizes)):
            if len(given) < len(h):
                ended.append((h[len(given) :], c[len(given) :]))
                h, c = h[: len(given)], c[: len(given)]
            i, f, g, o = (given + self.recurrent(h)).chunk(4, -1)
            c = _clipped(i.sigmoid() * g.tanh() + f.sigmoid() * c, self.cell_clip)
            h = _clipped(self.projection(o.sigmoid() * c.tanh()), self.proj_clip)
            outputs.append(h)
        ended.append((h, c))
        h, c = (torch.cat(parts[::-1]) for parts in zip(*ended, strict=True))
        return torch.cat(outputs) if outputs else x.new_zeros(0, self.projection.weight.shape[0]), h, c


def _clipped(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else x.clamp(-limit, limit)
