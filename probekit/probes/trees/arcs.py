"""Biaffine arcs and relations: what a parser finds in the vectors of words, an upper reference for structural probes.

Dozat & Manning 2017, section 2.2, without the recurrent network. Each word has a vector as a dependent and one as a
head, from layers with rectified units; the score of the arc from head h_j to word d_i is h_jᵀ U d_i + uᵀ h_j (equation
6), and relations of an arc are scored by a matrix each (equation 3). Arcs and relations share no weights: the relations
of gold arcs are a probe of their own. All sums are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probekit.constraint import Checked, Count, Part, Positive, Seed, Share, Size
from probekit.errors import UsageError
from probekit.probes.trees.decoding import best_tree

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class ArcOptions(Checked):
    """How a biaffine probe is fitted.

    Attributes
    ----------
    width : int, default 128
        Width of the vectors that score arcs (500 in the paper).
    relation_width : int, default 32
        Width of the vectors that score relations (100 in the paper).
    epochs : int, default 10
        Passes over train at most; the learning rate falls to 0 along half a cosine.
    learning_rate : float, default 0.003
        The highest learning rate of Adam.
    batch : int, default 1024
        Words in a step, of sentences of about the same length.
    dropout : float, default 0.33
        Share of the units of these vectors that are set to 0 in each step (0.33 in the paper).
    held_out : float, default 0.1
        Share of the sentences of train that are not fitted on; the weights with the lowest loss on them are kept.
    seed : int, default 0
        Seed of the initial weights, of the held-out sentences and of the order of the batches.
    """

    width: Size = 128
    relation_width: Size = 32
    epochs: Count = 10
    learning_rate: Positive = 3e-3
    batch: Count = 1024
    dropout: Part = 0.33
    held_out: Share = 0.1
    seed: Seed = 0


@dataclass(frozen=True, slots=True)
class ArcProbe:
    """A fitted probe.

    Attributes
    ----------
    mean, scale : np.ndarray
        float32 (d,), of train; vectors are standardised with them.
    weights : tuple[np.ndarray, ...]
        float32. For arcs: the layer of dependents and heads (d, 2 w) and its biases (2 w,), the vector of the root as a
        head (w,), and the biaffine form (w + 1, w), its last row the vector u. For r relations the same with their
        width, the form (v + 1, r (v + 1)).
    losses : tuple[float, ...]
        The loss on the held-out sentences after each epoch, nats a word.
    """

    mean: np.ndarray
    scale: np.ndarray
    weights: tuple[np.ndarray, ...]
    losses: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Parse:
    """Predicted trees.

    Attributes
    ----------
    heads : np.ndarray
        int64 (t,), from 1 within the sentence; 0 for the root.
    relations : np.ndarray
        int64 (t,), of the predicted arcs.
    given : np.ndarray, optional
        int64 (t,), the relations of the gold arcs, if they are given.
    """

    heads: np.ndarray
    relations: np.ndarray
    given: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class _Batch:
    """Sentences of about the same length, padded: rows of the vectors (b, n), which of them are words, heads (b, n)."""

    rows: torch.Tensor
    there: torch.Tensor
    heads: torch.Tensor


def fit_arcs(
    x: np.ndarray,
    heads: np.ndarray,
    relations: np.ndarray,
    length: np.ndarray,
    classes: int,
    *,
    options: ArcOptions = ArcOptions(),
) -> ArcProbe:
    """Fit a biaffine probe of arcs and relations on the vectors of one layer.

    Parameters
    ----------
    x : np.ndarray
        Float (t, d), the words of the sentences in order.
    heads, relations : np.ndarray
        int64 (t,), the head of each word, from 1 within its sentence, 0 for the root; and its relation; -1 where it is
        unknown.
    length : np.ndarray
        int64 (s,), words of each sentence.
    classes : int
        Number of relations.
    options : ArcOptions
        How it is fitted.

    Returns
    -------
    ArcProbe
        The weights after the epoch with the lowest loss on held-out sentences.

    Raises
    ------
    UsageError
        If the words do not match the vectors, or there are too few sentences to hold some of them out.
    """
    import torch

    if not len(x) == len(heads) == len(relations) == int(length.sum()):
        counts = f"{len(x)}, {len(heads)}, {len(relations)} and {int(length.sum())}"
        raise UsageError(f"vectors, heads, relations and sentences have {counts} words; expected the same number.")
    order = np.random.default_rng(options.seed).permutation(len(length))
    count = max(1, round(options.held_out * len(order)))
    if count >= len(order):
        raise UsageError(f"too few sentences, {len(order)}, to hold some of them out.")
    mean = x.mean(0, dtype=np.float64).astype(np.float32)
    scale = np.maximum(x.std(0, dtype=np.float64), 1e-6).astype(np.float32)
    data = torch.from_numpy((np.asarray(x, dtype=np.float32) - mean) / scale)
    gold = torch.from_numpy(np.asarray(relations, dtype=np.int64))
    held, batches = (
        _batches(length, most, part, heads) for most, part in ((4096, order[:count]), (options.batch, order[count:]))
    )
    weights = _first_weights(x.shape[1], classes, options)
    best, losses = _descend(data, gold, weights, batches, held, options)
    return ArcProbe(mean, scale, tuple(w.numpy() for w in best), losses)


def parse(
    probe: ArcProbe, x: np.ndarray, length: np.ndarray, *, heads: np.ndarray | None = None, tree: bool = True
) -> Parse:
    """The predicted heads and relations of sentences.

    Parameters
    ----------
    probe : ArcProbe
        A fitted probe.
    x : np.ndarray
        Float (t, d), the words of the sentences in order.
    length : np.ndarray
        int64 (s,), words of each sentence.
    heads : np.ndarray, optional
        int64 (t,), gold heads, for the relations of gold arcs.
    tree : bool, default True
        Whether the heads of a sentence are the best tree with one root; otherwise each word has its best head.
    """
    import torch

    data = torch.from_numpy((np.asarray(x, dtype=np.float32) - probe.mean) / probe.scale)
    weights = [torch.from_numpy(w) for w in probe.weights]
    found = np.zeros(len(x), dtype=np.int64)
    relations, given = np.zeros_like(found), None if heads is None else np.zeros_like(found)
    with torch.inference_mode():
        for batch in _batches(length, 4096, np.arange(len(length)), heads):
            h, rows = data[batch.rows], batch.rows.numpy()
            log_p = _arc_scores(h, batch.there, weights[:4]).log_softmax(2)
            said = log_p.argmax(2)
            if tree:
                for i, n in enumerate(batch.there.sum(1).tolist()):
                    scores = log_p[i, :n, : n + 1].numpy().astype(np.float64)
                    scores[np.arange(n), np.arange(1, n + 1)] = 0.0
                    said[i, :n] = torch.from_numpy(best_tree(scores))
            there = batch.there.numpy()
            found[rows[there]] = said.numpy()[there]
            relations[rows[there]] = _relation_scores(h, said, weights[4:])[batch.there].argmax(1).numpy()
            if given is not None:
                given[rows[there]] = _relation_scores(h, batch.heads, weights[4:])[batch.there].argmax(1).numpy()
    return Parse(found, relations, given)


def _batches(length: np.ndarray, most: int, chosen: np.ndarray, heads: np.ndarray | None) -> list[_Batch]:
    """The chosen sentences by length, at most ``most`` words (or one sentence) in a batch."""
    import torch

    start, found, at = np.cumsum(length) - length, list[_Batch](), 0
    order = chosen[np.argsort(length[chosen], kind="stable")]
    order = order[length[order] > 0]
    while at < len(order):
        sizes = length[order[at:]] * np.arange(1, len(order) - at + 1)
        some = order[at : at + max(1, int(np.searchsorted(sizes, most, side="right")))]
        at += len(some)
        place = np.arange(int(length[some].max()))
        there = place < length[some, None]
        rows = np.where(there, start[some, None] + place, start[some, None])
        of = np.zeros_like(rows) if heads is None else np.where(there, heads[rows], 0)
        found.append(_Batch(*map(torch.from_numpy, (rows, there, of))))
    return found


def _first_weights(d: int, classes: int, options: ArcOptions) -> list[torch.Tensor]:
    """He et al. 2015 for the layers; the forms begin at 0, as Dozat & Manning's do."""
    import torch

    draw, weights = torch.Generator().manual_seed(options.seed), list[torch.Tensor]()
    for width, form in (
        (options.width, (options.width + 1, options.width)),
        (options.relation_width, (options.relation_width + 1, classes * (options.relation_width + 1))),
    ):
        layer = torch.randn(d, 2 * width, generator=draw) * (2 / d) ** 0.5
        root = torch.randn(width, generator=draw).abs()
        weights += [layer, torch.zeros(2 * width), root, torch.zeros(form)]
    return weights


@dataclass(frozen=True, slots=True)
class _Dropout:
    """Sets units to 0 with a probability, and enlarges the others."""

    share: float
    draw: torch.Generator

    def __call__(self, units: torch.Tensor) -> torch.Tensor:
        import torch

        kept = torch.empty_like(units).bernoulli_(1 - self.share, generator=self.draw)
        return units * kept / (1 - self.share)


def _both(h: torch.Tensor, layer: torch.Tensor, bias: torch.Tensor, dropout: _Dropout | None) -> Sequence[torch.Tensor]:
    """The vectors of words (b, n, d) as dependents and as heads, (b, n, w) each."""
    units = (h @ layer + bias).relu()
    return (units if dropout is None else dropout(units)).chunk(2, dim=2)


def _arc_scores(
    h: torch.Tensor, there: torch.Tensor, weights: Sequence[torch.Tensor], dropout: _Dropout | None = None
) -> torch.Tensor:
    """(b, n, n + 1): of each word, the scores of the root and of each word as its head; -inf for itself and padding."""
    import torch

    layer, bias, root, form = weights
    dependent, head = _both(h, layer, bias, dropout)
    head = torch.cat([root.expand(len(h), 1, -1), head], dim=1)
    scores = (dependent @ form[:-1]) @ head.transpose(1, 2) + (head @ form[-1]).unsqueeze(1)
    no = torch.cat([torch.zeros_like(there[:, :1]), ~there], dim=1).unsqueeze(1)
    itself = torch.eye(h.shape[1], h.shape[1] + 1, dtype=torch.bool).roll(1, 1)
    return scores.masked_fill(no | itself, -torch.inf)


def _relation_scores(
    h: torch.Tensor, heads: torch.Tensor, weights: Sequence[torch.Tensor], dropout: _Dropout | None = None
) -> torch.Tensor:
    """(b, n, r): the scores of the relations of each word to its head."""
    import torch

    layer, bias, root, form = weights
    dependent, head = _both(h, layer, bias, dropout)
    head = torch.cat([root.expand(len(h), 1, -1), head], dim=1)
    head = head.gather(1, heads.unsqueeze(2).expand(-1, -1, head.shape[2]))
    one = torch.ones_like(head[..., :1])
    pair = (torch.cat([dependent, one], 2) @ form).unflatten(2, (-1, head.shape[2] + 1))
    return (pair @ torch.cat([head, one], 2).unsqueeze(3)).squeeze(3)


def _loss(
    x: torch.Tensor, gold: torch.Tensor, batch: _Batch, weights: Sequence[torch.Tensor], dropout: _Dropout | None = None
) -> torch.Tensor:
    """The summed cross-entropies of heads and relations of the words of a batch, nats."""
    from torch.nn.functional import cross_entropy

    h = x[batch.rows]
    scores = _arc_scores(h, batch.there, weights[:4], dropout)[batch.there]
    arcs = cross_entropy(scores, batch.heads[batch.there], reduction="sum")
    scores = _relation_scores(h, batch.heads, weights[4:], dropout)[batch.there]
    relations = cross_entropy(scores, gold[batch.rows[batch.there]], reduction="sum", ignore_index=-1)
    return arcs + relations


def _descend(
    x: torch.Tensor,
    gold: torch.Tensor,
    weights: list[torch.Tensor],
    batches: Sequence[_Batch],
    held: Sequence[_Batch],
    options: ArcOptions,
) -> tuple[list[torch.Tensor], tuple[float, ...]]:
    """Adam; the weights after the epoch with the lowest loss on the held-out batches, and that loss by epoch."""
    import torch

    for w in weights:
        w.requires_grad_()
    rng, steps = np.random.default_rng(options.seed), options.epochs * len(batches)
    adam = torch.optim.Adam(weights, lr=options.learning_rate, betas=(0.9, 0.9), fused=True)
    words = sum(int(batch.there.sum()) for batch in held)
    best, losses = [w.detach().clone() for w in weights], list[float]()
    dropout = _Dropout(options.dropout, torch.Generator().manual_seed(options.seed)) if options.dropout else None
    for epoch in range(options.epochs):
        for i, at in enumerate(rng.permutation(len(batches)).tolist()):
            share = (epoch * len(batches) + i) / steps
            adam.param_groups[0]["lr"] = options.learning_rate * (1 + np.cos(np.pi * share)) / 2
            adam.zero_grad()
            (_loss(x, gold, batches[at], weights, dropout) / batches[at].there.sum()).backward()
            adam.step()
        with torch.inference_mode():
            losses.append(sum(float(_loss(x, gold, batch, weights)) for batch in held) / words)
        if losses[-1] == min(losses):
            best = [w.detach().clone() for w in weights]
    return best, tuple(losses)
