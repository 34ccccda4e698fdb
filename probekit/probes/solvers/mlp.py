"""Perceptrons with one hidden layer, many at once: every target and weight decay in one batched model.

The probe is that of SentEval (Conneau & Kiela 2018: Adam, stopped after five rounds without improvement on a held-out
part, 200 at most) with the rectifier of Hewitt & Liang (2019), who also stop by the loss. All models use the same
batches, so the first layers are one matrix product; a model that no longer improves leaves the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.constraint import Checked, Count, Part, Positive, Share, Size
from probekit.errors import UsageError
from probekit.probes.solvers._path import Path, Probe, blocks, checked, finite, weighted
from probekit.probes.solvers.together import train_together
from probekit.runtime import Progress, no_progress, torch_threads

if TYPE_CHECKING:
    import torch

__all__ = [
    *(
        "MLP",
        "WEIGHT_DECAYS",
        "MLPOptions",
        "MLPPath",
        "batches_of",
        "check_decays",
        "errors",
        "hold_out",
        "path",
        "regression_path",
    ),
    "scaled",
]

WEIGHT_DECAYS = (0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True, slots=True)
class MLPOptions(Checked):
    """Training options of the perceptrons.

    Attributes
    ----------
    hidden : int, default 50
        Hidden units.
    dropout : float, default 0.1
        Share of the hidden units that is dropped in a step.
    learning_rate : float, default 0.001
        Learning rate of Adam, with decoupled weight decay (Loshchilov & Hutter 2019) of weights but not of biases.
    batch : int, default 128
        Examples per step; a round is one pass over train, or ``steps`` steps if a pass is shorter.
    held_out : float, default 0.1
        Share of train for early stopping.
    patience : int, default 5
        Rounds without a better loss on that share before stopping.
    rounds : int, default 200
        Maximum number of rounds.
    """

    hidden: Size = 50
    dropout: Part = 0.1
    learning_rate: Positive = 1e-3
    batch: Count = 128
    steps: Count = 32
    held_out: Share = 0.1
    patience: Count = 5
    rounds: Count = 200


@dataclass(frozen=True, slots=True)
class MLPPath:
    """Trained perceptrons: w1 float32 (T, S, hidden, d), b1 (T, S, hidden), w2 (T, S, K, hidden), b2 (T, S, K).

    Attributes
    ----------
    loss : np.ndarray
        Float (T, S), best loss on the inner held-out part: nats per example, or half the squared error in units of the
        target's variance.
    rounds : np.ndarray
        Int (T, S), number of training rounds.
    converged : np.ndarray
        Bool (T, S), False if the loss was still decreasing at the last round, or was never finite.
    """

    w1: np.ndarray
    b1: np.ndarray
    w2: np.ndarray
    b2: np.ndarray
    loss: np.ndarray
    rounds: np.ndarray
    converged: np.ndarray

    def log_proba(self, x: np.ndarray) -> np.ndarray:
        """Parameters
        ----------
        x : np.ndarray
            Float (n, d). Natural logarithms of the probabilities of the classes, float32 (T, S, n, K).
        """
        out = self.outputs(x)
        out -= out.max(-1, keepdims=True)
        out -= np.log(np.exp(out).sum(-1, keepdims=True))
        return out

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """Parameters
        ----------
        x : np.ndarray
            Float (n, d). Logits of the classes, or the values of a regression with K = 1; float32 (T, S, n, K).
        """
        import torch

        targets, settings, outputs, _ = self.w2.shape
        x = finite(x)
        out = np.empty((targets * settings, len(x), outputs), dtype=np.float32)
        params = [torch.from_numpy(part).flatten(0, 1) for part in (self.w1, self.b1, self.w2, self.b2)]
        with torch_threads(1), torch.inference_mode():
            for rows in blocks(len(x), 512):
                out[:, rows] = _forward(params, _take(x, rows))[1].transpose(1, 2).numpy()
        return out.reshape(targets, settings, len(x), outputs)


class MLP(Probe):
    """A perceptron for every target and weight decay (see ``path``)."""

    def __init__(
        self, weight_decays: Sequence[float] = WEIGHT_DECAYS, *, seed: int = 0, options: MLPOptions | None = None
    ) -> None:
        self.weight_decays, self.seed, self.options = weight_decays, seed, options

    def _path(self, x: np.ndarray, codes: np.ndarray, classes: int) -> Path:
        return path(x, codes, classes, self.weight_decays, seed=self.seed, options=self.options)


def path(
    x: np.ndarray,
    codes: np.ndarray,
    classes: int,
    settings: Sequence[float] = WEIGHT_DECAYS,
    *,
    seed: int | Sequence[int] = 0,
    weights: np.ndarray | None = None,
    progress: Progress | None = None,
    groups: np.ndarray | None = None,
    options: MLPOptions | None = None,
) -> MLPPath:
    """Train a perceptron for every target and weight decay.

    Models with the same seed start from the same weights and drop the same units, so a model does not depend, except
    for rounding, on those trained with it. Raises the errors of ``checked``, and UsageError for a negative weight
    decay, or if the inner held-out part has no example of a target.

    Parameters
    ----------
    x : np.ndarray
        float32 (n, d), of comparable scale, may be memory-mapped.
    codes : np.ndarray
        Int (T, n), 0 … classes-1, -1 for unlabelled.
    settings : Sequence[float], default WEIGHT_DECAYS
        Weight decays; a weight shrinks by learning_rate · decay per step.
    seed : int | Sequence[int], default 0
        Seed of initial weights and dropout, one for all targets or one for each (repeat a target to see the effect of
        the seed); the first also draws the inner held-out part and the order of the batches, which all models share.
    weights : np.ndarray, optional
        Float (n,) or (T, n), weights of the losses of examples.
    groups : np.ndarray, optional
        Int (n,), groups of rows that are held out together (the sentence of a word).
    """
    x, codes, w = checked(x, codes, classes, weights)
    return _train(_job(x, codes, w, classes, settings, seed, groups, options or MLPOptions()), progress or no_progress)


def regression_path(
    x: np.ndarray,
    y: np.ndarray,
    settings: Sequence[float] = WEIGHT_DECAYS,
    *,
    seed: int | Sequence[int] = 0,
    weights: np.ndarray | None = None,
    progress: Progress | None = None,
    groups: np.ndarray | None = None,
    options: MLPOptions | None = None,
) -> MLPPath:
    """The same for numbers y, float (T, n), NaN for unlabelled, by least squares; ``outputs(x)[..., 0]`` predicts them.

    Raises the errors of ``path``, and UsageError for a constant target.
    """
    x, y = finite(x), np.asarray(y, dtype=np.float32)
    known = np.isfinite(y)
    w = weighted(known, len(x), weights)
    total = np.maximum(w.sum(1, keepdims=True), np.finfo(np.float32).tiny)
    y = np.where(known, y, 0)
    centre = (w * y).sum(1, keepdims=True) / total
    scale = np.sqrt((w * (y - centre) ** 2).sum(1, keepdims=True) / total)
    if not (scale > 0).all():
        raise UsageError(f"target {int(np.flatnonzero(scale == 0)[0])} is constant; there is nothing to predict.")
    job = _job(x, (y - centre) / scale, w, 1, settings, seed, groups, options or MLPOptions())
    fit = _train(job, progress or no_progress)
    return replace(fit, w2=fit.w2 * scale[:, :, None, None], b2=fit.b2 * scale[:, :, None] + centre[:, :, None])


@dataclass(frozen=True, slots=True)
class _Job:
    """The data of a training: labels (T, n), codes or float32; weights float32 (T, n), 1 on average if not held out."""

    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    outputs: int
    settings: tuple[float, ...]
    seeds: tuple[int, ...]
    held: np.ndarray
    rng: np.random.Generator
    options: MLPOptions

    def labels(self, rows: np.ndarray, targets: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Labels and weights of the rows for each model, (models, rows)."""
        import torch

        y, weights = self.y[:, rows], self.weights[:, rows]
        return torch.from_numpy(y[targets]), torch.from_numpy(weights[targets])


def _job(
    x: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    outputs: int,
    settings: Sequence[float],
    seed: int | Sequence[int],
    groups: np.ndarray | None,
    options: MLPOptions,
) -> _Job:
    check_decays(settings, options)
    seeds = (seed,) * len(y) if isinstance(seed, (int, np.integer)) else tuple(seed)
    if len(seeds) != len(y):
        raise UsageError(f"seed must have one value, or one for each of the {len(y)} targets, not {len(seeds)}.")
    rng = np.random.default_rng(seeds[0])
    held = hold_out(len(x), groups, options.held_out, rng)
    return _Job(x, y, scaled(w, held), outputs, tuple(settings), seeds, held, rng, options)


def _train(job: _Job, progress: Progress) -> MLPPath:
    """Train every model until it no longer improves, and return the best state of each."""
    import torch

    with torch_threads(1), torch.no_grad():
        return _rounds(job, progress)


def _rounds(job: _Job, progress: Progress) -> MLPPath:
    import torch

    options, n_settings = job.options, len(job.settings)
    kinds, of = np.unique(job.seeds, return_inverse=True)
    draws = [torch.Generator().manual_seed(int(seed)) for seed in kinds]
    first = [_first_weights(job.x.shape[1], options.hidden, job.outputs, draw) for draw in draws]
    kind = torch.from_numpy(of.reshape(-1)).repeat_interleave(n_settings)
    target = np.repeat(np.arange(len(job.y)), n_settings)
    shrink = (1 - options.learning_rate * torch.tensor(job.settings)).repeat(len(job.y))
    params = [torch.stack(parts)[kind] for parts in zip(*first, strict=True)]

    def gradients(params: list[torch.Tensor], rows: np.ndarray, alive: np.ndarray) -> None:
        gates = [_gate(draw, options.hidden, len(rows), options.dropout) for draw in draws]
        gate = gates[0] if len(gates) == 1 else torch.stack(gates)[kind[alive]]
        _gradients(params, _take(job.x, rows), *job.labels(rows, target[alive]), gate)

    kept = np.flatnonzero(~job.held)
    found = train_together(
        params, ((0, 2), shrink), lambda: batches_of(kept, options, job.rng), gradients,
        lambda params, alive: _held_loss(params, job, target[alive]),
        learning_rate=options.learning_rate, rounds=options.rounds, patience=options.patience,
        progress=("mlp", progress),
    )  # fmt: skip
    shape = (len(job.y), n_settings)
    w1, b1, w2, b2 = (p.unflatten(0, shape).numpy() for p in found.params)
    return MLPPath(w1, b1, w2, b2, *(v.reshape(shape) for v in (found.loss, found.rounds, found.converged)))


def check_decays(settings: Sequence[float], options: MLPOptions) -> None:
    """Raise UsageError for a negative weight decay, and for one that would turn weights round in a step."""
    most = 1 / options.learning_rate
    if not len(settings) or not all(0 <= s < most for s in settings):
        raise UsageError(f"weight decays must be from 0 to below {most:g} (1 / learning rate), not {tuple(settings)}.")


def scaled(weights: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Weights (T, n) that are 1 on average where they are not held out; UsageError for a target with too few."""
    if not (weights[:, held].sum(1) > 0).all() or not (weights[:, ~held].sum(1) > 0).all():
        raise UsageError(
            "a target has too few labelled examples to hold some of them out for early stopping; label more."
        )
    return weights / weights[:, ~held].mean(1, keepdims=True)


def hold_out(n: int, groups: np.ndarray | None, share: float, rng: np.random.Generator) -> np.ndarray:
    """The rows for early stopping, bool (n,): a share of the rows, or of the groups."""
    unit = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1].reshape(-1)
    if len(unit) != n:
        raise UsageError(f"groups must have one value for each of the {n} rows, not {len(unit)}.")
    units = int(unit.max()) + 1
    return np.isin(unit, rng.permutation(units)[: max(1, round(share * units))])


def batches_of(rows: np.ndarray, options: MLPOptions, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Rows of each step of a round; a last batch of less than half the size is skipped."""
    steps = 0
    while steps < options.steps:
        order = rng.permutation(rows)
        for start in range(0, max(1, len(order) - options.batch // 2 + 1), options.batch):
            yield np.sort(order[start : start + options.batch])  # sorted: read in the order of the file
            steps += 1


def _first_weights(d: int, hidden: int, classes: int, draw: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Initial weights as in torch.nn.Linear: uniform within ± 1 / √(inputs)."""
    import torch

    def uniform(inputs: int, *shape: int) -> torch.Tensor:
        return torch.empty(shape).uniform_(-(inputs**-0.5), inputs**-0.5, generator=draw)

    return uniform(d, hidden, d), uniform(d, hidden), uniform(hidden, classes, hidden), uniform(hidden, classes)


def _gate(draw: torch.Generator, hidden: int, rows: int, dropout: float) -> torch.Tensor:
    """The dropout factors of the hidden units, (hidden, rows): 0, or 1 / (1 - dropout)."""
    import torch

    if dropout == 0:
        return torch.ones(1, 1)
    return torch.empty(hidden, rows).bernoulli_(1 - dropout, generator=draw).div_(1 - dropout)


def _forward(
    params: Sequence[torch.Tensor], x: torch.Tensor, gate: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden units (models, hidden, rows) and logits (models, K, rows)."""
    import torch

    w1, b1, w2, b2 = params
    hidden = torch.addmm(b1.flatten()[:, None], w1.flatten(0, 1), x.T).relu_().unflatten(0, b1.shape)
    if gate is not None:
        hidden *= gate
    return hidden, torch.baddbmm(b2[:, :, None], w2, hidden)


def errors(logits: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss of each row (models, rows) and its derivative with respect to the logits (models, K, rows).

    Cross-entropy if y holds codes, half the squared error if it holds floats.
    """
    import torch

    if y.is_floating_point():
        error = logits - y[:, None]
        return 0.5 * error[:, 0] ** 2, error
    log_proba, code = torch.log_softmax(logits, 1), y[:, None]
    return -log_proba.gather(1, code)[:, 0], log_proba.exp().scatter_add_(1, code, torch.full(code.shape, -1.0))


def _gradients(
    params: Sequence[Any], x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor, gate: torch.Tensor
) -> None:
    """Write to ``.grad`` the gradient of the mean weighted loss of the rows; y and weights are (models, rows)."""
    import torch

    w1, b1, w2, b2 = params
    hidden, logits = _forward(params, x, gate)
    error = errors(logits, y)[1]
    error *= weights[:, None] / len(x)
    back = torch.bmm(w2.transpose(1, 2), error)
    back *= hidden > 0
    back *= gate
    torch.mm(back.flatten(0, 1), x, out=w1.grad.flatten(0, 1))
    torch.sum(back, 2, out=b1.grad)
    torch.bmm(error, hidden.transpose(1, 2), out=w2.grad)
    torch.sum(error, 2, out=b2.grad)


def _held_loss(params: Sequence[torch.Tensor], job: _Job, targets: np.ndarray) -> np.ndarray:
    """Weighted mean loss of each model on the held rows, float64 (models,)."""
    import torch

    rows, loss, total = np.flatnonzero(job.held), np.zeros(len(targets)), np.zeros(len(targets))
    for part in blocks(len(rows), 512):
        y, weights = job.labels(rows[part], targets)
        losses = errors(_forward(params, _take(job.x, rows[part]))[1], y)[0]
        loss += (losses * weights).sum(1, dtype=torch.float64).numpy()
        total += weights.sum(1, dtype=torch.float64).numpy()
    return loss / total


def _take(x: np.ndarray, rows: np.ndarray | slice) -> torch.Tensor:
    """A copy of the rows of x, float32."""
    import torch

    return torch.from_numpy(np.array(x[rows], dtype=np.float32))
