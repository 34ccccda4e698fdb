"""One direction of an LSTM over packed sequences: torch's own, or with oneDNN in training and in inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from probekit.models.transformers.onednn import PrepackedLinear, TrainedLinear, product

__all__ = ["LSTM", "Turned"]


class LSTM(nn.Module):
    """torch.nn.LSTM with one layer and one direction, which begins with an empty state.

    Gates i, f, g, o as in torch: c = i g + f c, h = o tanh c. Linear layers hold the weights, so that
    :func:`~probekit.models.transformers.onednn.prepack` and ``train_with_onednn`` apply.

    Attributes
    ----------
    input : Linear
        (4 cells, inputs), torch's weight_ih and bias_ih.
    recurrent : Linear
        (4 cells, cells), torch's weight_hh and bias_hh.
    """

    def __init__(self, inputs: int, cells: int) -> None:
        super().__init__()
        self.cells = cells
        self.input, self.recurrent = nn.Linear(inputs, 4 * cells), nn.Linear(cells, 4 * cells)

    def forward(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """States (t, cells) of rows x (t, inputs) in the order of :class:`~probekit.models.elmo.lstm.Steps`.

        Parameters
        ----------
        sizes : Sequence[int]
            For each step, the number of sequences that have not ended.
        """
        if not len(x):
            return x.new_zeros(0, self.cells)
        if isinstance(self.recurrent, PrepackedLinear):
            return self._by_steps(x, sizes)
        weights = (self.input.weight, self.recurrent.weight, self.input.bias, self.recurrent.bias)
        if torch.is_autocast_enabled("cpu") or not isinstance(self.recurrent, TrainedLinear):
            zero, how = x.new_zeros(1, sizes[0], self.cells), (True, 1, 0.0, False, False)  # biases, layers, dropout …
            return torch.lstm(x, torch.tensor(sizes), (zero, zero), weights, *how)[0]
        return _Trained.apply(x, *weights, tuple(sizes))

    def _by_steps(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """No row of the result depends on the number of rows; see :class:`PrepackedLinear`."""
        gates, outputs = self.input(x), []
        h = c = x.new_zeros(sizes[0], self.cells)
        for given in gates.split(list(sizes)):
            i, f, g, o = (given + self.recurrent(h[: len(given)])).chunk(4, -1)
            c = i.sigmoid() * g.tanh() + f.sigmoid() * c[: len(given)]
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.cat(outputs)


class Turned(torch.autograd.Function):
    """Rows in another order, ``x[turn]``, where ``turn`` (t,) is its own inverse."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, turn: Tensor) -> Tensor:
        ctx.turn = turn
        return x.index_select(0, turn)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].index_select(0, ctx.turn), None


class _Trained(torch.autograd.Function):
    """The LSTM with oneDNN: one product for all inputs, prepacked recurrent weights, one product per gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, recurrent_bias: Tensor,
        sizes: tuple[int, ...],
    ) -> Tensor:  # fmt: skip
        cells = recurrent.shape[1]
        gates, c, h = product(x, weight, bias + recurrent_bias), x.new_empty(len(x), cells), x.new_empty(len(x), cells)
        step_weight, before = PrepackedLinear(recurrent, None), None
        for rows in _steps(sizes):
            gate, cell, state = gates[rows], c[rows], h[rows]
            if before is not None:
                last = slice(before.start, before.start + len(gate))
                gate += step_weight(h[last])
            i, f, g, o = gate.split(cells, -1)
            gate[:, : 2 * cells].sigmoid_()
            o.sigmoid_()
            torch.mul(i, g.tanh_(), out=cell)
            if before is not None:
                cell.addcmul_(f, c[last])
            torch.tanh(cell, out=state)
            state *= o
            before = rows
        ctx.save_for_backward(x, weight, recurrent, gates, c, h)
        ctx.sizes = sizes
        return h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, recurrent, gates, c, h = ctx.saved_tensors
        of_gates = _through_time(gradients[0], recurrent, gates, c, ctx.sizes)
        later = len(x) - ctx.sizes[0]
        read = h.new_empty(later, h.shape[1])  # the state before each row that has one
        start = 0
        for rows, n in zip(_steps(ctx.sizes), ctx.sizes[1:], strict=False):
            read[start : start + n] = h[rows.start : rows.start + n]
            start += n
        turned = of_gates.T.contiguous()
        of_bias = of_gates.sum(0)
        return (
            product(of_gates, weight.T) if ctx.needs_input_grad[0] else None,
            product(turned, x.T),
            product(turned[:, ctx.sizes[0] :], read.T) if later else torch.zeros_like(recurrent),
            of_bias,
            of_bias.clone(),
            None,
        )


def _through_time(gradient: Tensor, recurrent: Tensor, gates: Tensor, c: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The gradient of the gates before their activations, (t, 4 cells), from that of the states."""
    of_sigmoid = torch.ops.aten.sigmoid_backward.grad_input
    of_tanh = torch.ops.aten.tanh_backward.grad_input
    cells, back = c.shape[1], PrepackedLinear(recurrent.T, None)
    found, steps = torch.empty_like(gates), list(_steps(sizes))
    next_cell = next_gates = None
    for k in reversed(range(len(steps))):
        rows, n = steps[k], sizes[k]
        (i, f, g, o), out = gates[rows].split(cells, -1), found[rows]
        of_i, of_f, of_g, of_o = out.split(cells, -1)
        of_state = gradient[rows]
        if next_gates is not None:
            of_state = of_state.clone()
            of_state[: len(next_gates)] += back(next_gates)
        tanh = c[rows].tanh()
        of_sigmoid(of_state * tanh, o, grad_input=of_o)
        of_cell = torch.ops.aten.tanh_backward(of_state.mul(o), tanh)
        if next_cell is not None:
            of_cell[: len(next_cell)] += next_cell
        of_sigmoid(of_cell * g, i, grad_input=of_i)
        of_tanh(of_cell * i, g, grad_input=of_g)
        if k:
            first = steps[k - 1].start
            of_sigmoid(of_cell * c[first : first + n], f, grad_input=of_f)
        else:
            of_f.zero_()
        next_cell, next_gates = of_cell.mul_(f), out
    return found


def _steps(sizes: Sequence[int]) -> list[slice]:
    """The rows of each step."""
    start, found = 0, []
    for n in sizes:
        found.append(slice(start, start + n))
        start += n
    return found
