"""The LSTM of ELMo, with a projection of its output and limits on the values of cell and projection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from probekit.models.transformers.onednn import Repeated


@dataclass(frozen=True, slots=True)
class Steps:
    """Concatenated sequences without padding, as an LSTM reads them: step by step, the longest first.

    There are s sequences with t rows in all.

    Attributes
    ----------
    order : Tensor
        int64 (s,), the sequences, longest first.
    sizes : tuple[int, ...]
        For each step, the number of sequences that have not ended.
    forward, backward : Tensor
        int64 (t,), the row read at each position of the steps, from the left and from the right.
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

    Attributes
    ----------
    input : Linear
        (4 cells, inputs), with the bias.
    recurrent : Linear
        (4 cells, outputs).
    projection : Linear
        (outputs, cells).
    fused : bool
        Run torch.nn.LSTM first, which has no limits but is one kernel on a GPU. If a batch turns out to reach a limit,
        its outputs are discarded and the batch is run again. The last bits may differ from the loop's. On a CPU
        torch.nn.LSTM with a projection is not faster than the loop.
    cell_clip, proj_clip : float, optional
        Limits on the absolute values of c and h, which are clipped before the next step; None for no limit.
    """

    def __init__(
        self, inputs: int, outputs: int, cells: int, *, cell_clip: float | None = None, proj_clip: float | None = None
    ) -> None:
        super().__init__()
        self.cells, self.cell_clip, self.proj_clip, self.fused = cells, cell_clip, proj_clip, False
        self.input = nn.Linear(inputs, 4 * cells)
        self.recurrent = nn.Linear(outputs, 4 * cells, bias=False)
        self.projection = nn.Linear(cells, outputs, bias=False)

    def forward(self, x: Tensor, sizes: Sequence[int], h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs (t, outputs) of the steps, and h and c of each sequence after its last step.

        Parameters
        ----------
        x : Tensor
            (t, inputs), step by step.
        sizes : Sequence[int]
            See :class:`Steps`; h (s, outputs), c (s, cells) : longest sequence first.
        """
        if self.fused:
            found = self._by_library(x, sizes, h, c)
            if found is not None:
                return found
        gates, below, outputs, ended = self.input(x), x.new_zeros(len(x), h.shape[1]), [], []
        recurrent: Callable[[Tensor], Tensor] = self.recurrent
        projection: Callable[[Tensor], Tensor] = self.projection
        if torch.is_grad_enabled() and self.recurrent.weight.requires_grad:
            recurrent, projection = (again := Repeated(self.recurrent)), (last := Repeated(self.projection))
            gates, below = again.onto(gates), last.onto(below)
        for given, zero in zip(gates.split(list(sizes)), below.split(list(sizes)), strict=True):
            if len(given) < len(h):
                ended.append((h[len(given) :], c[len(given) :]))
                h, c = h[: len(given)], c[: len(given)]
            i, f, g, o = (given + recurrent(h)).chunk(4, -1)
            c = _clipped(i.sigmoid() * g.tanh() + f.sigmoid() * c, self.cell_clip)
            h = _clipped(projection(o.sigmoid() * c.tanh()) + zero, self.proj_clip)
            outputs.append(h)
        ended.append((h, c))
        h, c = (torch.cat(parts[::-1]) for parts in zip(*ended, strict=True))
        return torch.cat(outputs), h, c

    def _by_library(
        self, x: Tensor, sizes: Sequence[int], h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """The same with torch.nn.LSTM; None if a limit would be reached."""
        lstm = self._library()
        packed = PackedSequence(x, torch.tensor(sizes))
        out, (last_h, last_c) = lstm(packed, (h[None], c[None]))
        if self.cell_clip is None and self.proj_clip is None:
            return out.data, last_h[0], last_c[0]
        steps = out.data.split(list(sizes))
        before = torch.cat([h, *(step[:n] for step, n in zip(steps, sizes[1:], strict=False))])
        i, f, g, _ = (self.input(x) + self.recurrent(before)).chunk(4, -1)  # all steps at once, since c is not returned
        new, forgotten, largest = i.sigmoid() * g.tanh(), f.sigmoid(), c.abs().amax()
        for add, keep in zip(new.split(list(sizes)), forgotten.split(list(sizes)), strict=True):
            c = keep * c[: len(keep)] + add
            largest = torch.maximum(largest, c.abs().amax())
        within = self.cell_clip is None or bool(largest <= self.cell_clip)
        within = within and (self.proj_clip is None or bool(out.data.abs().amax() <= self.proj_clip))
        return (out.data, last_h[0], last_c[0]) if within else None

    def _library(self) -> nn.LSTM:
        """torch.nn.LSTM with a copy of these weights, created once."""
        if "_copy" not in self.__dict__:  # not a submodule: its weights are not saved
            outputs, cells = self.projection.weight.shape
            lstm = nn.LSTM(self.input.in_features, cells, proj_size=outputs).to(self.input.weight)
            weights = [self.input.weight, self.recurrent.weight, self.input.bias, None, self.projection.weight]
            with torch.no_grad():
                for parameter, given in zip(lstm.all_weights[0], weights, strict=True):
                    parameter.zero_() if given is None else parameter.copy_(given)
            self.__dict__["_copy"] = lstm.requires_grad_(requires_grad=False)
        return self.__dict__["_copy"]


def _clipped(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else x.clamp(-limit, limit)
