"""Attention probes: which pieces of a text to look at is learned; all targets and weight decays in one batched model.

A label has one query and one value vector: the logit of a text is the sum of the pieces' values, weighted by the
softmax of the pieces' scores (McKenzie et al. 2025, *Detecting high-stakes interactions with activation probes*).
Queries and values start at 0, so that training starts from mean pooling and depends on no draw but the order of the
batches. Training is that of :mod:`probekit.probes.solvers.mlp`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.solvers._path import weighted
from probekit.probes.solvers.mlp import MLPOptions, batches_of, check_decays, errors, hold_out, scaled
from probekit.probes.solvers.together import train_together
from probekit.runtime import Progress, no_progress, torch_threads
from probekit.threads import go_on

if TYPE_CHECKING:
    import torch

WEIGHT_DECAYS = (0.3, 3.0, 10.0, 30.0)
TRAINING = MLPOptions(learning_rate=0.003)  # of .001, .003 and .01 the lowest loss on SST-2 and CoLA, 2,000 texts
PIECES = 16_384  # read at a time
_EMPTY = "text {} has no pieces; an attention probe needs one at least."


@dataclass(frozen=True, slots=True)
class Sequences:
    """The vectors of the pieces of n texts; as a matrix, a row is the mean of a text's pieces.

    Attributes
    ----------
    values : np.ndarray
        float (t, d), may be memory-mapped.
    piece : np.ndarray
        Int (p,), rows of ``values``.
    start, length : np.ndarray
        Int (n,): the pieces of text i are ``values[piece[start[i] : start[i] + length[i]]]``, at least one.
    """

    values: Any
    piece: np.ndarray
    start: np.ndarray
    length: np.ndarray

    @classmethod
    def of(cls, values: Any, length: Any) -> Sequences:
        """Texts whose pieces stand one after another, values (t, d); length int (n,), how many pieces each has.

        Raises
        ------
        UsageError
            If a text has no piece, or they are not t in all.
        """
        count = np.asarray(length)
        if count.ndim != 1 or count.dtype.kind not in "iu" or (count < 1).any() or count.sum() != len(values):
            raise UsageError(
                f"length must say how many of the {len(values):,} pieces each text has, 1 or more, as whole numbers "
                f"(n,); it has {count.size:,}, with the sum {count.sum() if count.dtype.kind in 'iu' else '?'}."
            )
        return cls(values, np.arange(len(values)), np.cumsum(count) - count, count.astype(np.int64))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.start), self.values.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def at(self, rows: np.ndarray) -> Sequences:
        """Some of the texts."""
        return Sequences(self.values, self.piece, self.start[rows], self.length[rows])

    def pieces(self) -> np.ndarray:
        """float32 (t, d), the pieces of all texts, in their order."""
        first = np.cumsum(self.length) - self.length
        at = np.repeat(self.start - first, self.length) + np.arange(self.length.sum())
        return np.array(self.values[self.piece[at]], dtype=np.float32)

    def blocks(self, size: int = PIECES) -> Iterator[np.ndarray]:
        """Numbers of texts that follow each other, of about ``size`` pieces together."""
        of = np.cumsum(self.length) // size
        for at in np.split(np.arange(len(of)), np.flatnonzero(np.diff(of)) + 1) if len(of) else ():
            go_on()
            yield at

    def __getitem__(self, rows: Any) -> np.ndarray:
        some = self.at(np.atleast_1d(np.arange(len(self.start))[rows]))
        parts = [sums_within(part.pieces(), part.length) / part.length[:, None] for part in map(some.at, some.blocks())]
        return np.concatenate(parts).astype(np.float32) if parts else np.empty((0, self.shape[1]), np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


@dataclass(frozen=True, slots=True)
class AttentionPath:
    """Trained probes: query and value float32 (T, S, K, d), bias (T, S, K); K is 1 for two classes.

    Attributes
    ----------
    mean, scale : np.ndarray
        float32 (d,): vectors are standardised over the pieces of train.
    loss : np.ndarray
        Float (T, S), best loss on the inner held-out part, nats per text.
    rounds : np.ndarray
        Int (T, S), number of training rounds.
    converged : np.ndarray
        Bool (T, S), False if the loss was still decreasing at the last round, or was never finite.
    """

    query: np.ndarray
    value: np.ndarray
    bias: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    loss: np.ndarray
    rounds: np.ndarray
    converged: np.ndarray

    def log_proba(self, x: Sequences) -> np.ndarray:
        """Natural logarithms of the probabilities of the classes, float32 (T, S, n, K or 2)."""
        if (x.length < 1).any():
            raise UsageError(_EMPTY.format(int((x.length < 1).argmax())))
        targets, settings, outputs, _ = self.query.shape
        out = np.empty((targets * settings, x.shape[0], outputs), dtype=np.float32)
        for at in x.blocks():
            some = x.at(at)
            logits = self._attended(some)[1] + self.bias.reshape(-1)
            out[:, at] = logits.reshape(len(at), -1, outputs).transpose(1, 0, 2)
        out = _with_both(out.reshape(targets, settings, x.shape[0], outputs), 3)
        out -= out.max(-1, keepdims=True)
        out -= np.log(np.exp(out).sum(-1, keepdims=True))
        return out

    def weights(self, x: Sequences) -> np.ndarray:
        """Where the probes look: the weight of each piece, float32 (T, S, K, t), summing to 1 in a text."""
        parts = [self._attended(x.at(at))[0] for at in x.blocks()]
        return np.concatenate(parts).T.reshape(*self.query.shape[:3], -1)

    def _attended(self, x: Sequences) -> tuple[np.ndarray, np.ndarray]:
        d = self.query.shape[-1]
        vectors = (x.pieces() - self.mean) * self.scale
        weight = softmax_within(vectors @ self.query.reshape(-1, d).T, x.length)
        return weight, sums_within(weight * (vectors @ self.value.reshape(-1, d).T), x.length)


def path(
    x: Sequences,
    codes: np.ndarray,
    classes: int,
    settings: Sequence[float] = WEIGHT_DECAYS,
    *,
    seed: int = 0,
    weights: np.ndarray | None = None,
    progress: Progress | None = None,
    groups: np.ndarray | None = None,
    options: MLPOptions | None = None,
) -> AttentionPath:
    """Train an attention probe for every target and weight decay.

    Arguments as for :func:`probekit.probes.solvers.mlp.path`, but for x; of the options, hidden and dropout have no
    meaning here (default: ``TRAINING``). A probe does not depend, except for rounding, on those trained with it.

    Raises
    ------
    UsageError
        For codes out of range, a target with fewer than two classes, a text without pieces, a negative weight decay, or
        an inner held-out part without an example of a target.
    NonFiniteError
        If a vector contains NaN or infinity.
    """
    codes, options = np.asarray(codes), options or TRAINING
    check_decays(settings, options)
    if (x.length < 1).any():
        raise UsageError(_EMPTY.format(int((x.length < 1).argmax())))
    if codes.dtype.kind not in "iu" or (codes < -1).any() or (codes >= classes).any():
        raise UsageError(f"codes must be whole numbers from 0 to {classes - 1}, or -1 for unlabelled.")
    w = weighted(codes >= 0, x.shape[0], weights)
    for target, (code, weight) in enumerate(zip(codes, w, strict=True)):
        if len(np.unique(code[weight > 0])) < 2:
            raise UsageError(f"target {target} has fewer than two classes; a probe needs two.")
    rng = np.random.default_rng(seed)
    held = hold_out(x.shape[0], groups, options.held_out, rng)
    w = scaled(w, held)
    mean, scale = _standard(x)
    outputs = 1 if classes == 2 else classes
    job = _Job(x, np.maximum(codes, 0).astype(np.int64), w, outputs, mean, scale)
    with torch_threads(1):
        return _train(job, tuple(settings), np.flatnonzero(held), rng, options, progress or no_progress)


@dataclass(frozen=True, slots=True)
class _Job:
    x: Sequences
    y: np.ndarray
    weights: np.ndarray
    outputs: int
    mean: np.ndarray
    scale: np.ndarray

    def batch(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Standardised vectors (t, d) of the pieces of some texts, and the texts' lengths."""
        some = self.x.at(rows)
        vectors = some.pieces()
        vectors -= self.mean
        vectors *= self.scale
        return vectors, some.length


def _train(
    job: _Job,
    settings: tuple[float, ...],
    held: np.ndarray,
    rng: np.random.Generator,
    options: MLPOptions,
    progress: Progress,
) -> AttentionPath:
    import torch

    shape = (len(job.y), len(settings))
    count, d = shape[0] * shape[1], job.x.shape[1]
    target = np.repeat(np.arange(shape[0]), shape[1])
    kept = np.setdiff1d(np.arange(job.x.shape[0]), held)
    first = [torch.zeros(count, job.outputs, d), torch.zeros(count, job.outputs, d), torch.zeros(count, job.outputs)]
    shrink = (1 - options.learning_rate * torch.tensor(settings)).repeat(shape[0])

    def gradients(params: list[torch.Tensor], rows: np.ndarray, alive: np.ndarray) -> None:
        for p in params:
            p.grad.zero_()  # type: ignore[union-attr]
        for at in job.x.at(rows).blocks():  # long texts: not all pieces of a step at once
            some = rows[at]
            w = job.weights[target[alive]][:, some] / np.float32(len(rows))
            _add_gradients(params, *job.batch(some), job.y[target[alive]][:, some], w)

    def held_loss(params: list[torch.Tensor], alive: np.ndarray) -> np.ndarray:
        loss, total = np.zeros(len(alive)), np.zeros(len(alive))
        for at in job.x.at(held).blocks():
            rows = held[at]
            w = job.weights[target[alive]][:, rows]
            logits = _forward(params, *job.batch(rows))[-1]
            loss += (_errors(logits, job.y[target[alive]][:, rows])[0] * w).sum(1, dtype=np.float64)
            total += w.sum(1, dtype=np.float64)
        return loss / total

    with torch.no_grad():
        found = train_together(
            first, ((0, 1), shrink), lambda: batches_of(kept, options, rng), gradients, held_loss,
            learning_rate=options.learning_rate, rounds=options.rounds, patience=options.patience,
            progress=("attention", progress),
        )  # fmt: skip
    query, value, bias = (p.unflatten(0, shape).numpy() for p in found.params)
    about = (found.loss.reshape(shape), found.rounds.reshape(shape), found.converged.reshape(shape))
    return AttentionPath(query, value, bias, job.mean, job.scale, *about)


def _forward(
    params: Sequence[torch.Tensor], vectors: np.ndarray, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Weights and values of the pieces, (t, M K); what each text attends to (n, M K); logits (M, n, K)."""
    query, value, bias = (p.numpy() for p in params)
    weight = softmax_within(vectors @ query.reshape(-1, query.shape[-1]).T, length)
    values = vectors @ value.reshape(-1, value.shape[-1]).T
    attended = sums_within(weight * values, length)
    logits = (attended + bias.reshape(-1)).reshape(len(length), *bias.shape).transpose(1, 0, 2)
    return weight, values, attended, logits


def _add_gradients(
    params: Sequence[Any], vectors: np.ndarray, length: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> None:
    """Add to ``.grad`` the gradient of the weighted sum of the texts' losses; y and weights are (M, n)."""
    query, value, bias = (p.grad.numpy() for p in params)
    weight, values, attended, logits = _forward(params, vectors, length)
    error = _errors(logits, y)[1] * weights[:, :, None]
    bias += error.sum(1)
    of_text = error.transpose(1, 0, 2).reshape(len(length), -1)
    weight *= np.repeat(of_text, length, axis=0)  # the derivative by a piece's value
    value += (weight.T @ vectors).reshape(value.shape)
    values -= np.repeat(attended, length, axis=0)
    weight *= values  # by its score
    query += (weight.T @ vectors).reshape(query.shape)


def _errors(logits: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Loss of each text (M, n), and its derivative with respect to the logits (M, n, K)."""
    import torch

    loss, error = errors(torch.from_numpy(_with_both(logits, 2)).transpose(1, 2), torch.from_numpy(y))
    return loss.numpy(), error.transpose(1, 2).numpy()[..., -logits.shape[2] :]


def _with_both(logits: np.ndarray, axis: int) -> np.ndarray:
    """Logits of both classes, where that of the first is 0 and only that of the second is given."""
    if logits.shape[axis] > 1:
        return logits
    return np.concatenate([np.zeros_like(logits), logits], axis)


def softmax_within(scores: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The softmax of the scores (t, M) within each text; the scores are changed."""
    first = np.cumsum(length) - length
    scores -= np.repeat(np.maximum.reduceat(scores, first, axis=0), length, axis=0)
    np.exp(scores, out=scores)
    scores /= np.repeat(np.add.reduceat(scores, first, axis=0), length, axis=0)
    return scores


def sums_within(values: np.ndarray, length: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, np.cumsum(length) - length, axis=0)


def _standard(x: Sequences) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the pieces and 1 / standard deviation, 0 for a constant feature; float32 (d,)."""
    total, mean, square = 0, np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for at in x.blocks():  # Chan, Golub & LeVeque (1983), equation 2.1
        pieces = x.at(at).pieces()
        if not np.isfinite(pieces).all():
            raise NonFiniteError("the features contain NaN or infinity; no probe can be fitted on them.")
        own = pieces.mean(0, dtype=np.float64)
        square += ((pieces - own) ** 2).sum(0, dtype=np.float64) + (own - mean) ** 2 * (
            total * len(pieces) / (total + len(pieces))
        )
        mean += (own - mean) * (len(pieces) / (total + len(pieces)))
        total += len(pieces)
    sd = np.sqrt(square / total)
    scale = np.divide(1, sd, out=np.zeros_like(sd), where=sd > 1e-5 * np.abs(mean))
    return mean.astype(np.float32), scale.astype(np.float32)
