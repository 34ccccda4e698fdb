"""Ridge regression for features or rows whose scales differ so much that products in one basis lose the small ones.

Each penalty has separate normal equations, in float64, for features divided by their root mean square; residuals are
corrected until only rounding is left of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from probekit.probes.solvers.design import Design
from probekit.probes.solvers.exact import factored, sizes_of

TURNS = 20  # most corrections
NOTHING = 1e-22  # of a target's sum of squares: a smaller decrement needs no correction
HELD = 1e-3  # below this 1 - leverage, the model is fitted again without the row
FEW = 32  # most rows to fit again; with more of them, leverages are used
NEAR = 1e-5  # a smaller 1 - leverage is rounding
VOUCHED = 1e-6  # of the sum of squares: up to this duality gap the decrement is reliable
Solve = Callable[[torch.Tensor], torch.Tensor]


def ridge_exactly(
    design: Design, penalised: np.ndarray, y: torch.Tensor, strength: np.ndarray, *, leave_one_out: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights on x - centre (targets, alphas, d); intercepts, leave-one-out errors, decrements (targets, alphas).

    A decrement is replaced by the duality gap if that is above a millionth: a bound of the remaining decrease of the
    objective, as a share of the target's sum of squares. An error is NaN if leverages are too close to 1.

    Parameters
    ----------
    design : Design
        float64, not scaled.
    penalised : np.ndarray
        The scale of each feature under the penalty, (d,); 0 for a feature to leave out.
    y : torch.Tensor
        float64 (targets, m), centred.
    strength : np.ndarray
        Alphas, (targets, alphas).
    """
    t, k = strength.shape
    sizes, units = sizes_of(design, penalised)
    u = torch.zeros((t, k, design.width + 1), dtype=torch.float64, device=design.device)
    decrement = torch.full((t, k), torch.inf, dtype=torch.float64, device=design.device)
    loss = torch.full((t, k), torch.nan, dtype=torch.float64, device=design.device)
    gram = torch.zeros((design.width + 1,) * 2, dtype=torch.float64, device=design.device)
    for _, a in _rows(design, sizes):
        gram += a.T @ a
    for alpha in np.unique(strength):
        ridge = torch.cat([alpha * units**2, units.new_zeros(1)])
        of = torch.as_tensor(strength == alpha, device=design.device)
        which = of.nonzero()[:, 0]
        solve = factored((gram + torch.diag(ridge))[None])
        u[of], decrement[of] = _corrected(design, sizes, ridge, y[which], solve)
        if leave_one_out:
            loss[of] = _left_out(design, penalised, sizes, y[which], u[of], solve, float(alpha))
    return u[..., :-1] * sizes, u[..., -1], loss, decrement


def _rows(design: Design, sizes: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    """Slices of the rows, and the rows (b, d + 1) of each block."""
    for at, block in design.blocks():
        yield at, torch.cat([block * sizes, block.new_ones(len(block), 1)], 1)


def _corrected(
    design: Design, sizes: torch.Tensor, ridge: torch.Tensor, y: torch.Tensor, solve: Solve
) -> tuple[torch.Tensor, torch.Tensor]:
    """Coordinates (p, d + 1) of the targets y (p, m), and their decrements."""
    u = y.new_zeros(len(y), len(ridge))
    power, live = y.square().sum(1).clamp_min(1e-300), ridge > 0
    for _ in range(TURNS):
        g = -ridge * u
        for at, a in _rows(design, sizes):
            g = g + (y[:, at] - u @ a.T) @ a
        gap = (g[:, live].square() / ridge[live]).sum(1) / power
        step = solve(g)
        decrement = (g * step).sum(1) / power
        if float(decrement.max()) <= NOTHING:
            break
        u = u + step
    return u, torch.where(gap <= VOUCHED, decrement, gap)


def _left_out(
    design: Design,
    penalised: np.ndarray,
    sizes: torch.Tensor,
    y: torch.Tensor,
    u: torch.Tensor,
    solve: Solve,
    alpha: float,
) -> torch.Tensor:
    """Mean squared error of each row under the model fitted to all others, (p,)."""
    left, apart = torch.empty_like(y), y.new_empty(y.shape[1])
    for at, a in _rows(design, sizes):
        left[:, at] = y[:, at] - u @ a.T
        apart[at] = 1 - (a * solve(a)).sum(1)
    held = (apart < HELD).nonzero()[:, 0].tolist()
    left = left / apart
    everyone = np.arange(len(design)) if design.rows is None else design.rows
    if len(held) > FEW:
        return left.square().mean(1) if float(apart.min()) > NEAR else left.new_full((len(y),), torch.nan)
    for row in held:
        others = np.delete(np.arange(len(design)), row)
        mean = y[:, others].mean(1, keepdim=True)
        rest, same = replace(design, rows=everyone[others]), np.full((len(y), 1), alpha)
        w, b, _, _ = ridge_exactly(rest, penalised, y[:, others] - mean, same, leave_one_out=False)
        [(_, x)] = replace(design, rows=everyone[[row]]).blocks()
        left[:, row] = y[:, row] - (w[:, 0] @ x[0] + b[:, 0] + mean[:, 0])
    return left.square().mean(1)
