"""Structural probes: maps B (d, k) for which ‖Bᵀ(h_i - h_j)‖² is the distance of two words in a tree, ‖Bᵀh_i‖² a depth.

Hewitt & Manning 2019, sections 2.2 and 3: the loss of a sentence of n words is the sum of |predicted - gold| over its
ordered pairs, divided by n², or over its words, divided by n; the mean over sentences is minimised. All sentences of a
batch have about the same length, and the gradient has a closed form: with S the signs of the errors, it is
4 Hᵀ (diag(S 1) - S) H B for a sentence, and the n × n × k differences are never made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from probekit.constraint import Checked, Count, Positive, Seed, Share
from probekit.errors import UsageError
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    import torch

Kind = Literal["distance", "depth"]


@dataclass(frozen=True, slots=True)
class FitOptions(Checked):
    """How structural probes are fitted.

    Attributes
    ----------
    epochs : int, default 8
        Passes over train; the learning rate falls to 0 along half a cosine.
    learning_rate : float, default 0.001
        The highest learning rate of Adam, for vectors whose features have variance 1 on average.
    batch : int, default 512
        Words in a step, of sentences of about the same length.
    held_out : float, default 0.1
        Share of the sentences of train that are not fitted on; the map with the lowest loss on them is kept.
    seed : int, default 0
        Seed of the initial map, of the held-out sentences and of the order of the batches.
    """

    epochs: Count = 8
    learning_rate: Positive = 1e-3
    batch: Count = 512
    held_out: Share = 0.1
    seed: Seed = 0


SMALL = 0.1
"""The initial map is so much smaller than one of the right size: fits from a small map overfit less."""

BETAS = 0.9, 0.999
"""Decay of Adam's means of gradients and of their squares."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Gold distances or depths of s sentences.

    Attributes
    ----------
    length : np.ndarray
        int64 (s,), words of each sentence.
    gold : Sequence[np.ndarray]
        For each sentence (n, n) distances, or (n,) depths.
    """

    length: np.ndarray
    gold: Sequence[np.ndarray]

    @property
    def kind(self) -> Kind:
        return "distance" if len(self.gold) and self.gold[0].ndim == 2 else "depth"


@dataclass(frozen=True, slots=True)
class StructuralProbe:
    """A fitted probe.

    Attributes
    ----------
    projection : np.ndarray
        float32 (d, k), of the vectors as they are.
    kind : {"distance", "depth"}
        What it predicts. Depths are of vectors minus ``centre``.
    centre : np.ndarray
        float32 (d,), the mean of train.
    losses : tuple[float, ...]
        The loss on the held-out sentences of train after each epoch.
    """

    projection: np.ndarray
    kind: Kind
    centre: np.ndarray
    losses: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Batch:
    """Sentences of about the same length, padded: rows (b, n) of the vectors, gold and weights (b, n, n) or (b, n)."""

    rows: torch.Tensor
    gold: torch.Tensor
    weight: torch.Tensor
    there: torch.Tensor


def _batches(trees: Trees, most: int, chosen: np.ndarray | None = None) -> list[_Batch]:
    """The chosen sentences (default: all) by length, ``most`` words in a batch."""
    import torch

    start = np.cumsum(trees.length) - trees.length
    order = np.arange(len(trees.length)) if chosen is None else chosen
    order = order[np.argsort(trees.length[order], kind="stable")]
    order = order[trees.length[order] > 0]
    found, at = [], 0
    while at < len(order):
        longest, stop = int(trees.length[order[at]]), at + 1
        while stop < len(order) and int(trees.length[order[stop]]) * (stop + 1 - at) <= most:
            longest, stop = int(trees.length[order[stop]]), stop + 1
        some, at = order[at:stop], stop
        shape = (len(some), longest) if trees.kind == "depth" else (len(some), longest, longest)
        gold, weight = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        rows, there = np.zeros((len(some), longest), np.int64), np.zeros((len(some), longest), bool)
        for i, sentence in enumerate(some):
            n = int(trees.length[sentence])
            rows[i, :n], there[i, :n] = start[sentence] + np.arange(n), True
            inside: Any = (i, *([slice(n)] * (len(shape) - 1)))
            gold[inside], weight[inside] = trees.gold[sentence], 1 / float(n) ** (len(shape) - 1)
        found.append(_Batch(*map(torch.from_numpy, (rows, gold, weight, there))))
    return found


def loss_and_gradient(
    x: torch.Tensor, projection: torch.Tensor, batch: _Batch, kind: Kind
) -> tuple[torch.Tensor, torch.Tensor]:
    """The summed losses of the sentences of a batch, and their gradient (d, k); x (t, d)."""
    import torch

    b, n = batch.rows.shape
    h = x[batch.rows.reshape(-1)] * batch.there.reshape(-1, 1)
    z = (h @ projection).view(b, n, -1)
    square = (z * z).sum(2)
    if kind == "depth":
        error = square - batch.gold
        pull = 2 * (error.sign() * batch.weight).unsqueeze(2) * z
    else:
        error = square.unsqueeze(2) + square.unsqueeze(1) - 2 * torch.bmm(z, z.transpose(1, 2)) - batch.gold
        signs = error.sign() * batch.weight
        signs = (signs + signs.transpose(1, 2)) / 2
        pull = 4 * (signs.sum(2, keepdim=True) * z - torch.bmm(signs, z))
    return (error.abs() * batch.weight).sum(), h.T @ pull.reshape(b * n, -1)


def fit(
    x: np.ndarray,
    trees: Trees,
    ranks: Sequence[int],
    *,
    options: FitOptions = FitOptions(),
    progress: Progress = no_progress,
) -> list[StructuralProbe]:
    """Fit a probe of each rank on the vectors of one layer.

    Parameters
    ----------
    x : np.ndarray
        Float (t, d), the words of the sentences in order.
    trees : Trees
        Gold distances or depths of the s sentences.
    ranks : Sequence[int]
        Columns of the map, at most d.
    options : FitOptions
        How it is fitted.
    progress : callable
        Called after each epoch.

    Raises
    ------
    UsageError
        If the words do not match the vectors, or a rank does not fit.
    """
    import torch

    if len(x) != int(trees.length.sum()):
        raise UsageError(f"there are {len(x)} vectors, but the trees have {int(trees.length.sum())} words.")
    if wrong := [rank for rank in ranks if not 1 <= rank <= x.shape[1]]:
        raise UsageError(f"the rank must be from 1 to the width {x.shape[1]}, not {wrong[0]}.")
    centre = x.mean(0, dtype=np.float64).astype(np.float32)
    centred = np.asarray(x, dtype=np.float32) - centre
    squares = sum(
        float(np.square(part, dtype=np.float64).sum()) for part in np.array_split(centred, len(x) // 4096 + 1)
    )
    size = (squares / centred.size) ** 0.5 or 1.0
    data = torch.from_numpy(centred)
    data /= size
    order = np.random.default_rng(options.seed).permutation(len(trees.length))
    count = max(1, round(options.held_out * len(order)))
    if count >= len(order):
        raise UsageError(f"too few sentences, {len(order)}, to hold some of them out.")
    held, batches = _batches(trees, 4096, order[:count]), _batches(trees, options.batch, order[count:])
    found = []
    for done, rank in enumerate(ranks):
        b = torch.randn(x.shape[1], rank, generator=torch.Generator().manual_seed(options.seed))
        b *= SMALL * _scale(data, b, batches, trees.kind)
        best, losses = _descend(data, b, batches, held, trees.kind, options)
        found.append(StructuralProbe(best.numpy() / np.float32(size), trees.kind, centre, losses))
        progress("ranks", done + 1, len(ranks))
    return found


def _scale(x: torch.Tensor, b: torch.Tensor, batches: Sequence[_Batch], kind: Kind) -> float:
    """The factor that makes the mean prediction the mean of gold, from a batch in the middle."""
    batch = batches[len(batches) // 2]
    predicted = _predicted(x, b, batch, kind)
    weight = batch.weight > 0
    return float((batch.gold[weight].mean() / predicted[weight].mean().clamp_min(1e-12)).clamp_min(1e-6).sqrt())


def _predicted(x: torch.Tensor, b: torch.Tensor, batch: _Batch, kind: Kind) -> torch.Tensor:
    import torch

    z = (x[batch.rows.reshape(-1)] @ b).view(*batch.rows.shape, -1)
    square = (z * z).sum(2)
    if kind == "depth":
        return square
    return (square.unsqueeze(2) + square.unsqueeze(1) - 2 * torch.bmm(z, z.transpose(1, 2))).clamp_min_(0)


def _descend(
    x: torch.Tensor, b: torch.Tensor, batches: Sequence[_Batch], held: Sequence[_Batch], kind: Kind, options: FitOptions
) -> tuple[torch.Tensor, tuple[float, ...]]:
    """Adam from b (Kingma & Ba 2015, algorithm 1); the best map on held-out batches, and their losses."""
    import torch

    rng, steps = np.random.default_rng(options.seed), options.epochs * len(batches)
    mean, square = torch.zeros_like(b), torch.zeros_like(b)
    best, losses, step = b, [], 0
    usual = sum(len(batch.rows) for batch in batches) / len(batches)  # each sentence counts alike, in whichever batch
    for _ in range(options.epochs):
        for at in rng.permutation(len(batches)).tolist():
            gradient = loss_and_gradient(x, b, batches[at], kind)[1] / usual
            rate = options.learning_rate * (1 + np.cos(np.pi * step / steps)) / 2
            step += 1
            mean.lerp_(gradient, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            spread = (square / (1 - BETAS[1] ** step)).sqrt_().add_(1e-8)
            b.addcdiv_(mean, spread, value=-rate / (1 - BETAS[0] ** step))
        total = sum(float(loss_and_gradient(x, b, batch, kind)[0]) for batch in held)
        losses.append(total / sum(len(batch.rows) for batch in held))
        if losses[-1] == min(losses):
            best = b.clone()
    return best, tuple(losses)


def predict(probe: StructuralProbe, x: np.ndarray, length: np.ndarray) -> list[np.ndarray]:
    """For each sentence the predicted distances, float32 (n, n), or depths (n,); x float (t, d)."""
    z = (np.asarray(x, dtype=np.float32) - probe.centre) @ probe.projection
    stop, found = np.cumsum(length), []
    for a, b in zip((stop - length).tolist(), stop.tolist(), strict=True):
        one = z[a:b]
        square = (one * one).sum(1)
        found.append(square if probe.kind == "depth" else np.maximum(square[:, None] + square - 2 * one @ one.T, 0))
    return found
