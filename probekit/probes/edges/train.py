"""Training edge probes: all probes at once, on the same batches; a probe that no longer improves leaves the batch.

As in the paper (appendix C): Adam, gradients of a probe clipped to the norm 5, the learning rate halved and training
ended after some measurements without a better loss. The loss is measured on a held-out part of train, never on dev.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probekit.probes.edges.model import Probes, first_weights, gates, logits
from probekit.probes.edges.options import EdgeOptions
from probekit.probes.edges.spans import SpanLayers
from probekit.runtime import Progress, no_progress, torch_threads

if TYPE_CHECKING:
    import torch

CLIP = 5.0
BLOCK = 512


@dataclass(frozen=True, slots=True)
class Fitted:
    """M trained probes.

    Attributes
    ----------
    weights : dict of str to torch.Tensor
        Those with the lowest held-out loss; the first axis is M.
    loss : np.ndarray
        float64 (M,), this loss: nats per target, summed over labels.
    steps : np.ndarray
        Int (M,), steps of training.
    converged : np.ndarray
        bool (M,), False if the loss was still decreasing at the last step, or was never finite.
    """

    probes: Probes
    weights: dict[str, torch.Tensor]
    loss: np.ndarray
    steps: np.ndarray
    converged: np.ndarray


class _Learners:
    """Probes in training: their weights, stacked, and Adam with a learning rate for each."""

    def __init__(self, weights: Mapping[str, torch.Tensor], options: EdgeOptions) -> None:
        import torch

        self.options = options
        self.weights = {name: w.requires_grad_() for name, w in weights.items()}
        parts = self._parts()
        self.adam = torch.optim.Adam(self._groups(parts, [options.learning_rate] * len(parts)), fused=True)
        self.parts = parts

    def _parts(self) -> list[dict[str, torch.Tensor]]:
        count = len(self.weights["out"])
        return [{name: w.detach()[m] for name, w in self.weights.items()} for m in range(count)]

    def _groups(self, parts: list[dict[str, torch.Tensor]], rates: list[float]) -> list[dict[str, object]]:
        groups: list[dict[str, object]] = []
        for part, rate in zip(parts, rates, strict=True):
            mix = [w for name, w in part.items() if name in ("mix", "gamma")]
            groups.append({"params": [w for name, w in part.items() if name not in ("mix", "gamma")], "lr": rate})
            if mix:
                groups.append({"params": mix, "lr": rate * self.options.mix_rate})
        return groups

    def step(self, loss: torch.Tensor) -> None:
        """One step down the loss of each probe, (M,)."""
        import torch

        loss.sum().backward()
        grads = {n: torch.zeros_like(w) if w.grad is None else w.grad for n, w in self.weights.items()}
        norm = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in grads.values()]).norm(dim=0)
        shrink = (CLIP / (norm + 1e-6)).clamp(max=1.0)
        for name, g in grads.items():
            if (shrink < 1).any():
                g.mul_(shrink.view(-1, *[1] * (g.dim() - 1)))
            for part, grad in zip(self.parts, g, strict=True):
                part[name].grad = grad
            self.weights[name].grad = None
        self.adam.step()

    def halve(self, which: np.ndarray) -> None:
        """Halve the learning rate of some probes."""
        per = len(self.adam.param_groups) // len(self.parts)
        for group, some in zip(self.adam.param_groups, np.repeat(which, per), strict=True):
            group["lr"] *= 0.5 if some else 1.0

    def keep(self, stay: np.ndarray) -> None:
        """Leave out the probes that do not stay."""
        import torch

        old, per = self.parts, len(self.adam.param_groups) // len(self.parts)
        rates = [group["lr"] for group in self.adam.param_groups[::per]]
        self.weights = {name: w.detach()[stay].clone().requires_grad_() for name, w in self.weights.items()}
        self.parts, state, at = self._parts(), self.adam.state, np.flatnonzero(stay)
        self.adam = torch.optim.Adam(self._groups(self.parts, [rates[i] for i in at]), fused=True)
        for part, i in zip(self.parts, at, strict=True):
            for name, w in part.items():
                if old[i][name] in state:
                    self.adam.state[w] = state[old[i][name]]


def fit(
    spans: SpanLayers,
    codes: np.ndarray,
    sets: np.ndarray,
    probes: Probes,
    held: np.ndarray,
    *,
    options: EdgeOptions,
    progress: Progress = no_progress,
) -> Fitted:
    """Train M probes on the targets that are not held out.

    Probes with the same seed start from the same weights and drop the same units, so that a probe does not depend,
    except for rounding, on those trained with it.

    Parameters
    ----------
    spans : SpanLayers
        Of m targets.
    codes : np.ndarray
        Int (T, m), for each label set the row of ``sets`` with the labels of a target.
    sets : np.ndarray
        bool (S, labels), which labels hold.
    probes : Probes
        M probes of the L layers.
    held : np.ndarray
        bool (m,), the targets that measure the loss.
    options : EdgeOptions
        How they are trained.
    progress : callable
        Called after each measurement, with the number of steps.
    """
    with torch_threads(1):
        return _fit(spans, codes, sets, probes, held, options, progress)


def _fit(
    spans: SpanLayers,
    codes: np.ndarray,
    sets: np.ndarray,
    probes: Probes,
    held: np.ndarray,
    options: EdgeOptions,
    progress: Progress,
) -> Fitted:
    import torch

    kinds, kind = np.unique(probes.seed, return_inverse=True)
    draws = [torch.Generator().manual_seed(int(seed)) for seed in kinds]
    first = [first_weights(spans.shape, sets.shape[1], options, draw, mixed=probes.mixed) for draw in draws]
    weights = {name: torch.stack([w[name] for w in first])[kind.reshape(-1)] for name in first[0]}
    best, best_loss = {name: w.clone() for name, w in weights.items()}, np.full(len(probes), np.inf)
    stale, steps = np.zeros((2, len(probes)), dtype=int)
    learners, alive = _Learners(weights, options), np.arange(len(probes))
    labels, inside = torch.from_numpy(sets.astype(np.float32)), np.flatnonzero(~held)
    batches = _batches(inside, options.batch, np.random.default_rng(options.seed))
    inside_held, codes_held = spans.some(held), codes[:, held]
    reads = torch.from_numpy(probes.reads)
    for step in range(1, options.steps + 1):
        rows = next(batches)
        gate = None
        if "hidden" in weights and options.dropout:
            each = torch.stack([gates(options, len(rows), draw) for draw in draws])
            gate = each[0] if len(draws) == 1 else each[kind.reshape(-1)[alive]]
        out = logits(learners.weights, reads[alive], spans.batch(rows), len(rows), gate)
        learners.step(_losses(out, labels[codes[probes.target[alive]][:, rows]]).mean(1))
        if step % options.check and step != options.steps:
            continue
        loss = _held_loss(learners.weights, reads[alive], inside_held, codes_held[probes.target[alive]], labels)
        steps[alive], better = step, loss < best_loss[alive]
        best_loss[alive[better]] = loss[better]
        for name, w in learners.weights.items():
            best[name][alive[better]] = w.detach()[better]
        stale[alive] = np.where(better, 0, stale[alive] + 1)
        learners.halve((stale[alive] > 0) & (stale[alive] % options.halve == 0))
        if not (stay := stale[alive] < options.patience).all():
            alive = alive[stay]
            if not len(alive):
                break
            learners.keep(stay)
        progress("train edge probes", step, options.steps)
    return Fitted(probes, best, best_loss, steps, (stale >= options.patience) & np.isfinite(best_loss))


def predict(fitted: Fitted, spans: SpanLayers) -> Iterator[tuple[slice, np.ndarray]]:
    """The logits of all labels, float32 (M, rows, labels), for some rows after others."""
    import torch

    with torch_threads(1), torch.inference_mode():
        reads = torch.from_numpy(fitted.probes.reads)
        for at in range(0, len(spans), BLOCK):
            rows = slice(at, min(at + BLOCK, len(spans)))
            yield rows, logits(fitted.weights, reads, spans.batch(rows), rows.stop - at).numpy()


def _batches(rows: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Rows of each step, without end: every row once, then again in another order."""
    while True:
        order = rng.permutation(rows)
        for at in range(0, max(1, len(order) - size + 1), size):
            yield np.sort(order[at : at + size])  # sorted: read in the order of the file


def _losses(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of each target, summed over labels, (M, B)."""
    import torch

    return torch.nn.functional.binary_cross_entropy_with_logits(out, y, reduction="none").sum(-1)


def _held_loss(
    weights: Mapping[str, torch.Tensor], reads: torch.Tensor, spans: SpanLayers, codes: np.ndarray, labels: torch.Tensor
) -> np.ndarray:
    """Mean loss of each probe on targets, float64 (M,); codes are (M, targets)."""
    import torch

    total = np.zeros(len(codes))
    with torch.inference_mode():
        for at in range(0, len(spans), BLOCK):
            rows = slice(at, min(at + BLOCK, len(spans)))
            out = logits(weights, reads, spans.batch(rows), rows.stop - at)
            total += _losses(out, labels[codes[:, rows]]).sum(1, dtype=torch.float64).numpy()
    return total / len(spans)
