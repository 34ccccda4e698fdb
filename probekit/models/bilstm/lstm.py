"""LSTMs over packed sequences: torch's own, or with oneDNN in training and in inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from probekit.models.transformers.onednn import PrepackedLinear, TrainedLinear, onednn_linear

SMALL = 128
"""Cells up to which oneDNN's preparation of a step's product costs more than it saves; both directions then run
together. Measured on an AMD Zen 5 core: 128 cells and 32 rows take 107 µs with torch and 113 with oneDNN, 256 cells 484
and 266."""


class LSTM(nn.Module):
    """torch.nn.LSTM with one layer and one direction.

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

    def forward(self, x: Tensor, sizes: Sequence[int], start: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """States (t, cells) of rows x (t, inputs) in the order of :class:`~probekit.models.elmo.lstm.Steps`.

        Parameters
        ----------
        sizes : Sequence[int]
            For each step, the number of sequences that have not ended.
        start : tuple[Tensor, Tensor], optional
            h and c (s, cells) before the first step, the longest sequence first; 0 by default.
        """
        if not len(x):
            return x.new_zeros(0, self.cells)
        if self.trained:
            return _Trained.apply(tuple(sizes), 1, x, *self.weights, *(start or ()))[0]
        h, c = start or (x.new_zeros(sizes[0], self.cells),) * 2
        if isinstance(self.recurrent, PrepackedLinear):
            return self._by_steps(x, sizes, h, c)
        how = (True, 1, 0.0, False, False)  # biases, layers, dropout, train, both directions
        return torch.lstm(x, torch.tensor(sizes), (h[None], c[None]), self.weights, *how)[0]

    @property
    def trained(self) -> bool:
        """Whether oneDNN computes the products in training."""
        return isinstance(self.recurrent, TrainedLinear) and not torch.is_autocast_enabled("cpu")

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Input and recurrent weights, then their biases, as in torch."""
        return self.input.weight, self.recurrent.weight, self.input.bias, self.recurrent.bias

    def _by_steps(self, x: Tensor, sizes: Sequence[int], h: Tensor, c: Tensor) -> Tensor:
        """No row of the result depends on the number of rows; see :class:`PrepackedLinear`."""
        gates, outputs = self.input(x), []
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


def both_ways(lstms: Sequence[LSTM], rows: Sequence[Tensor], sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The states of two LSTMs of one size, each on its rows (t, inputs)."""
    first = lstms[0]
    if first.trained and first.cells <= SMALL and len(rows[0]):
        states: tuple[Tensor, ...] = _Trained.apply(
            tuple(sizes), len(lstms), *rows, *(w for lstm in lstms for w in lstm.weights)
        )
        return states
    return tuple(lstm(x, sizes) for lstm, x in zip(lstms, rows, strict=True))


class _Trained(torch.autograd.Function):
    """n LSTMs of one size with oneDNN: one product for all inputs of each, and one for each gradient of a weight.

    Given are their inputs, their weights and, for a single LSTM, optionally h and c before the first step.
    """

    @staticmethod
    def forward(ctx: Any, sizes: tuple[int, ...], n: int, *given: Tensor) -> tuple[Tensor, ...]:
        read, weights, first = given[:n], [given[i : i + 4] for i in range(n, 5 * n, 4)], given[5 * n :]
        inputs = [onednn_linear(x, w, bias + other) for x, (w, _, bias, other) in zip(read, weights, strict=True)]
        gates, cells = _stacked(inputs), weights[0][1].shape[1]
        c, h = (gates.new_empty(*gates.shape[:2], cells) for _ in range(2))
        recurrent, before = _Recurrent([w[1] for w in weights]), tuple(x[None] for x in first)
        for start, rows in _steps(sizes):
            gate, cell, state = (x[:, start : start + rows] for x in (gates, c, h))
            if before:
                recurrent.add(gate, before[0][:, :rows])
            i, f, g, o = gate.split(cells, -1)
            gate[..., : 2 * cells].sigmoid_()
            o.sigmoid_()
            torch.mul(i, g.tanh_(), out=cell)
            if before:
                cell.addcmul_(f, before[1][:, :rows])
            torch.tanh(cell, out=state)
            state *= o
            before = state, cell
        ctx.save_for_backward(gates, c, h, *read, *(w for pair in weights for w in pair[:2]), *first)
        ctx.sizes, ctx.number = sizes, n
        return h.unbind(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gates, c, h, *saved = ctx.saved_tensors
        n, sizes = ctx.number, ctx.sizes
        read, weights, recurrent, first = saved[:n], saved[n : 3 * n : 2], saved[n + 1 : 3 * n : 2], saved[3 * n :]
        of_gates, of_c = _through_time(_stacked(gradients), recurrent, gates, c, sizes, *first[1:])
        starts = [start for start, _ in _steps(sizes)]
        before = [h[:, start : start + rows] for start, rows in zip(starts, sizes[1:], strict=False)]
        before = [x[None] for x in first[:1]] + before
        states = torch.cat(before, 1) if before else h[:, :0]  # the state before each row that has one
        of_inputs, of_weights = [], []
        for k in range(n):
            turned, of_bias = of_gates[k].T.contiguous(), of_gates[k].sum(0)
            of_inputs.append(onednn_linear(of_gates[k], weights[k].T) if ctx.needs_input_grad[2 + k] else None)
            begin = 0 if first else sizes[0]
            later = onednn_linear(turned[:, begin:], states[k].T) if before else torch.zeros_like(recurrent[k])
            of_weights += [onednn_linear(turned, read[k].T), later, of_bias, of_bias.clone()]
        of_first = (onednn_linear(of_gates[0][: sizes[0]], recurrent[0].T), of_c[0]) if first else ()
        return None, None, *of_inputs, *of_weights, *of_first


class _Recurrent:
    """Products of one step after another with the same weights, (n, out, in) each, of n LSTMs."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.stacked = torch.stack([w.T for w in weights]) if min(weights[0].shape) <= SMALL else None
        self.packed = [] if self.stacked is not None else [PrepackedLinear(w, None) for w in weights]

    def add(self, to: Tensor, x: Tensor) -> None:
        """Add the products of x (n, rows, in) to a tensor (n, rows, out)."""
        if self.stacked is not None:
            to.baddbmm_(x, self.stacked)
        for into, rows, packed in zip(to, x, self.packed, strict=False):
            into += packed(rows)


def _through_time(
    gradient: Tensor,
    recurrent: Sequence[Tensor],
    gates: Tensor,
    c: Tensor,
    sizes: tuple[int, ...],
    first: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of the gates before their activations, (n, t, 4 cells), and of c before the first step.

    They follow from that of the states; ``first`` is c (s, cells) before the first step.
    """
    of_sigmoid, of_tanh = torch.ops.aten.sigmoid_backward.grad_input, torch.ops.aten.tanh_backward.grad_input
    cells, back, later = c.shape[-1], _Recurrent([w.T for w in recurrent]), 0
    found, steps = torch.empty_like(gates), _steps(sizes)
    of_later = next_gates = gates[:, :0]
    for k, (start, rows) in reversed([*enumerate(steps)]):
        (i, f, g, o), out = gates[:, start : start + rows].split(cells, -1), found[:, start : start + rows]
        of_i, of_f, of_g, of_o = out.split(cells, -1)
        of_state = gradient[:, start : start + rows]
        if later:
            of_state = of_state.clone()
            back.add(of_state[:, :later], next_gates)
        tanh = c[:, start : start + rows].tanh()
        of_sigmoid(of_state * tanh, o, grad_input=of_o)
        of_cell = torch.ops.aten.tanh_backward(of_state.mul(o), tanh)
        if later:
            of_cell[:, :later] += of_later
        of_sigmoid(of_cell * g, i, grad_input=of_i)
        of_tanh(of_cell * i, g, grad_input=of_g)
        if k:
            before = steps[k - 1][0]
            of_sigmoid(of_cell * c[:, before : before + rows], f, grad_input=of_f)
        elif first is not None:
            of_sigmoid(of_cell * first, f, grad_input=of_f)
        else:
            of_f.zero_()
        of_later, next_gates, later = of_cell.mul_(f), out, rows
    return found, of_later


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)) if len(tensors) > 1 else tensors[0][None]


def _steps(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """The first row of each step, and the number of its rows."""
    return [(sum(sizes[:k]), n) for k, n in enumerate(sizes)]
