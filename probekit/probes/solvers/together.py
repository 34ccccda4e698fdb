"""Many small models trained at once by Adam; each is stopped when it no longer improves, and leaves the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probekit.runtime import Progress
from probekit.threads import go_on

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Trained:
    """M models, each in its best state.

    Attributes
    ----------
    params : list of torch.Tensor
        (M, …) each.
    loss : np.ndarray
        float64 (M,), on the held-out part.
    rounds : np.ndarray
        Int (M,).
    converged : np.ndarray
        Bool (M,): stopped before the last round, with a finite loss.
    """

    params: list[torch.Tensor]
    loss: np.ndarray
    rounds: np.ndarray
    converged: np.ndarray


def train_together(
    params: list[torch.Tensor],
    decays: tuple[Sequence[int], torch.Tensor],
    batches: Callable[[], Iterable[np.ndarray]],
    gradients: Callable[[list[torch.Tensor], np.ndarray, np.ndarray], None],
    held_loss: Callable[[list[torch.Tensor], np.ndarray], np.ndarray],
    *,
    learning_rate: float,
    rounds: int,
    patience: int,
    progress: tuple[str, Progress],
) -> Trained:
    """Train every model until its held-out loss has not improved for ``patience`` rounds.

    Parameters
    ----------
    params : list of torch.Tensor
        (M, …) each, the first weights; they are changed.
    decays : (int, …) and torch.Tensor
        Which of ``params`` decay, and the factor of each model after every step, (M,).
    batches : callable
        The rows of each step of a round.
    gradients : callable
        From the parameters, the rows of a step and the numbers of the models in ``params`` to their ``.grad``.
    held_loss : callable
        From the parameters and the numbers of the models to the loss of each.
    """
    import torch

    decayed, shrink = decays
    count = len(params[0])
    best = [p.clone() for p in params]
    best_loss, stale, done = np.full(count, np.inf), np.zeros(count, dtype=int), np.zeros(count, dtype=int)
    adam = torch.optim.Adam(params, lr=learning_rate, fused=True)
    for p in params:
        p.grad = torch.empty_like(p)
    alive = np.arange(count)  # the models in params, in this order
    while len(alive) and done[alive[0]] < rounds:
        for rows in batches():
            go_on()
            gradients(params, rows, alive)
            for k in decayed:
                params[k].mul_(shrink[alive].reshape(-1, *[1] * (params[k].ndim - 1)))
            adam.step()
        loss = held_loss(params, alive)
        done[alive] += 1
        better = loss < best_loss[alive]
        best_loss[alive[better]] = loss[better]
        stale[alive] = np.where(better, 0, stale[alive] + 1)
        for best_p, p in zip(best, params, strict=True):
            best_p[alive[better]] = p[better]
        stay = stale[alive] < patience
        if not stay.all():
            alive = alive[stay]
            for p in params:
                state = adam.state[p]
                p.data = p[stay]
                p.grad = torch.empty_like(p)
                state["exp_avg"], state["exp_avg_sq"] = state["exp_avg"][stay], state["exp_avg_sq"][stay]
        progress[1](progress[0], count - len(alive), count)
    return Trained(best, best_loss, done, (stale >= patience) & np.isfinite(best_loss))
