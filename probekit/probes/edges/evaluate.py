"""Edge probes of every layer and of mixes of layers, for gold labels and controls, evaluated on dev."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.probes.edges.model import Probes, mix_weights
from probekit.probes.edges.options import EdgeOptions
from probekit.probes.edges.spans import SpanLayers
from probekit.probes.edges.train import fit, predict
from probekit.probes.kept import Weights, of_edges
from probekit.probes.protocol.label_sets import with_controls
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.runtime import Progress, no_progress
from probekit.statistics.folds import held_out
from probekit.statistics.predictions import Predictions

ATTENTION, MIX = "attention", "mix"
"""The representation of rows: the pooled span in one layer, and in the mix of the first layer up to this one."""
NUMBERS = 1 << 27  # weights trained at once


@dataclass(frozen=True, slots=True)
class Mixes:
    """The trained mix of all layers.

    Attributes
    ----------
    layers : np.ndarray
        Int (L,), their numbers, ascending.
    weights : np.ndarray
        float64 (seeds, L), rows sum to 1.
    gamma : np.ndarray
        float64 (seeds,), the factor of the mix.
    """

    layers: np.ndarray
    weights: np.ndarray
    gamma: np.ndarray


def evaluate_edges(
    layers: Mapping[str, int | None],
    spans: SpanLayers,
    train: Labels,
    spans_dev: SpanLayers,
    dev: Labels,
    sets: np.ndarray,
    question: Question,
    *,
    several: bool = False,
    options: EdgeOptions,
    progress: Progress = no_progress,
    keep: Callable[[str, Weights], object] = lambda *layer: None,
) -> tuple[Predictions, Mixes | None]:
    """Train probes of each layer and of the mixes of layers up to each, and their controls; predict dev.

    Layers have shuffled labels and control tasks, mixes shuffled labels.

    Parameters
    ----------
    layers : mapping of str to int
        Names of the L layers, and their numbers; those without a number (None) are not in mixes.
    spans, spans_dev : SpanLayers
        Of the m targets of train and the n of dev.
    train, dev : Labels
        The numbers of label sets, -1 for unlabelled, with groups and types.
    sets : np.ndarray
        bool (S, labels), the labels of each label set.
    question : Question
        Metrics, the label names, and columns that describe the vectors.
    several : bool
        Whether several labels can hold at once: each label is then a prediction (its output is above 0); if not, the
        label with the highest output is.
    options : EdgeOptions
        How the probes are trained.
    progress : callable
        Called during training.
    keep : callable
        Called with each layer and the weights of its probe of gold labels.

    Returns
    -------
    Predictions
        Fits of layers, with the representation "attention", of mixes up to a layer ("mix"; the first one is the probe
        of that layer), and of the constant prediction; for several labels, of pairs of a target and a label.
    Mixes, optional
        The mix of all layers; None with fewer than two numbered layers.

    Raises
    ------
    UsageError
        For too few labelled targets, one label set only, and layers of different widths.
    NonFiniteError
        If a layer contains NaN or infinity.
    """
    (spans, train, left_out), (spans_dev, dev, left_out_dev) = _labelled(spans, train), _labelled(spans_dev, dev)
    if len(dev.y) == 0 or len(np.unique(train.y)) < 2:
        raise UsageError(
            "edge probes need labelled targets in dev, and at least two different labels in train; there are "
            f"{len(dev.y)} labelled targets in dev, and {len(np.unique(train.y))} labels in train."
        )
    if len({x.shape[1] for x in spans.layers}) > 1:
        widths = ", ".join(f"{name} has {x.shape[1]}" for name, x in zip(layers, spans.layers, strict=True))
        raise UsageError(f"the layers have different widths ({widths}); choose some of one width with --layers.")
    control = ProbeOptions(controls=options.controls, seed=options.seed)
    targets, codes, codes_dev = with_controls(train, dev, question, control)
    held = held_out(train.y, options.held_out, groups=train.groups, seed=options.seed)
    spans, spans_dev = _standardised(spans, spans_dev, list(layers), raw=options.raw)
    names, count = list(layers), len(layers)
    work = _Work(
        spans, codes, spans_dev, codes_dev, sets, held, several, options, progress, lambda i, w: keep(names[i], w)
    )
    numbered = np.array([i for i, name in enumerate(names) if layers[name] is not None], dtype=np.int64)
    target = np.repeat(np.arange(len(targets)), count)
    reads = np.tile(np.eye(count, dtype=bool), (len(targets), 1))
    done = work.done(Probes(reads, target, np.full(len(target), options.seed), mixed=False))
    fits = [
        {"layer": names[i % count], "representation": ATTENTION, **targets[i // count], **about}
        for i, about in enumerate(done.about)
    ]
    parts, mixes = [work.constant(), done], None
    gold = [codes_dev[0], *codes_dev.repeat(count, 0)]
    if len(numbered) > 1:
        of = [t for t, about in enumerate(targets) if about["target"] in ("gold", "shuffled")]
        of_mixes, mixes = _mixed(work, numbered, count, np.array([layers[names[i]] for i in numbered]), of)
        for t, some in zip(of, of_mixes, strict=True):
            first = done.some([t * count + numbered[0]])  # the mix of one layer
            parts += [first, some]
            fits += [
                {"layer": names[i], "representation": MIX, **targets[t], **about}
                for i, about in zip(numbered, [*first.about, *some.about], strict=True)
            ]
            gold += [codes_dev[t]] * len(numbered)
    base = {**question.about, "estimator": str(options.probe), "seed": options.seed, "labels": sets.shape[1]}
    base |= {"n": len(dev.y), "n_train": len(train.y), "left_out_train": left_out, "left_out_dev": left_out_dev}
    base |= {"seen_in_train": None if dev.seen is None else int(dev.seen.sum())}
    constant = {"layer": None, "representation": "none", "estimator": "majority", **targets[0], "converged": True}
    table = [base | one for one in (constant, *fits)]
    return _predictions(table, work.gold(np.stack(gold)), parts, dev, question, several=several), mixes


def _labelled(spans: SpanLayers, labels: Labels) -> tuple[SpanLayers, Labels, int]:
    """The labelled targets, and the number of the others."""
    rows = np.flatnonzero(labels.known)
    return spans.some(rows), labels[rows], len(labels.y) - len(rows)


def _standardised(
    spans: SpanLayers, spans_dev: SpanLayers, names: Sequence[str], *, raw: bool
) -> tuple[SpanLayers, SpanLayers]:
    """Both with the moments of train; NonFiniteError for vectors that are not finite, in either."""
    centre, scale = spans.moments(names, "train")
    spans_dev.moments(names, "dev")
    if raw:
        return spans, spans_dev
    return replace(spans, centre=centre, scale=scale), replace(spans_dev, centre=centre, scale=scale)


@dataclass(frozen=True, slots=True)
class _Done:
    """Some trained probes: their columns, predictions (F, n) or (F, n · labels), log losses, and weights of mixes."""

    about: list[dict[str, Any]]
    predicted: np.ndarray
    loss: np.ndarray | None
    shares: np.ndarray | None = None
    gamma: np.ndarray | None = None

    def some(self, at: Sequence[int]) -> _Done:
        loss = None if self.loss is None else self.loss[at]
        return _Done([self.about[i] for i in at], self.predicted[at], loss)


@dataclass(frozen=True, slots=True)
class _Work:
    """Targets, label sets (T, m) and (T, n), and how probes are trained on them."""

    spans: SpanLayers
    codes: np.ndarray
    spans_dev: SpanLayers
    codes_dev: np.ndarray
    sets: np.ndarray
    held: np.ndarray
    several: bool
    options: EdgeOptions
    progress: Progress
    keep: Callable[[int, Weights], object]

    def done(self, probes: Probes) -> _Done:
        """Train some probes, as many at once as fit, and predict dev."""
        _, spans, d = self.spans.shape
        o = self.options
        size = spans * d * (o.projection + 1) + spans * o.projection * o.hidden + o.hidden * self.sets.shape[1]
        at_once = max(1, NUMBERS // size)
        found = [
            self._of(probes.some(np.arange(at, min(at + at_once, len(probes)))))
            for at in range(0, len(probes), at_once)
        ]
        arrays = {name: [getattr(one, name) for one in found] for name in ("predicted", "loss", "shares", "gamma")}
        joined: list[Any] = [None if of[0] is None else np.concatenate(of) for of in arrays.values()]
        return _Done([about for one in found for about in one.about], *joined)

    def _of(self, probes: Probes) -> _Done:
        import torch

        fitted = fit(self.spans, self.codes, self.sets, probes, self.held, options=self.options, progress=self.progress)
        parts = [self._outcome(out, self.sets[self.codes_dev[probes.target][:, rows]])
                 for rows, out in predict(fitted, self.spans_dev)]  # fmt: skip
        joined: list[Any] = [None if of[0] is None else np.concatenate(of, 1) for of in zip(*parts, strict=True)]
        about = [
            {"held_out": fitted.loss[i], "training_steps": int(fitted.steps[i]), "converged": bool(fitted.converged[i])}
            for i in range(len(probes))
        ]
        if not probes.mixed:
            for i in np.flatnonzero(probes.target == 0):
                self._keep(int(probes.reads[i].argmax()), {name: w[i].numpy() for name, w in fitted.weights.items()})
            return _Done(about, joined[0], joined[1])
        shares = mix_weights(fitted.weights, torch.from_numpy(probes.reads)).double().numpy()
        return _Done(about, joined[0], joined[1], shares, fitted.weights["gamma"][:, 0].double().numpy())

    def _keep(self, layer: int, weights: Mapping[str, np.ndarray]) -> None:
        """Give the probe of gold labels away; without standardisation, centre and scale are one number for all."""
        mean, scale = (
            np.broadcast_to(part, (self.spans.shape[0], 1, self.spans.shape[2]))[layer, 0]
            for part in (self.spans.centre, self.spans.scale)
        )
        self.keep(layer, of_edges(weights, mean, scale))

    def _outcome(self, out: np.ndarray, gold: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Predictions and losses, (M, rows) or (M, rows · labels), from logits and gold labels (M, rows, labels)."""
        if not self.several:
            return out.argmax(-1).astype(np.int32), None
        loss = np.logaddexp(0, np.where(gold, -out, out)).astype(np.float32)
        return (out > 0).reshape(len(out), -1).astype(np.int8), loss.reshape(len(out), -1)

    def constant(self) -> _Done:
        """The most frequent label, or those that hold of more than half of train; the loss is that of frequencies."""
        share = self.sets[self.codes[0]].mean(0)
        bounded = np.clip(share, 0.5 / len(self.codes[0]), 1 - 0.5 / len(self.codes[0]))
        logit = np.log(bounded / (1 - bounded))
        gold = self.sets[self.codes_dev[:1]]
        return _Done([{}], *self._outcome(np.broadcast_to(logit, gold.shape), gold))

    def gold(self, codes: np.ndarray) -> np.ndarray:
        """The gold values of predictions, (F, n) or (F, n · labels), from label sets (F, n)."""
        return self.sets[codes].reshape(len(codes), -1).astype(np.int8) if self.several else codes


def _mixed(
    work: _Work, numbered: np.ndarray, count: int, numbers: np.ndarray, of: Sequence[int]
) -> tuple[list[_Done], Mixes]:
    """The mixes of the first two numbered layers, the first three … all, for each of some targets, gold labels first.

    The mix of all layers is trained several times for gold labels.
    """
    upto, more = len(numbered) - 1, work.options.seeds - 1
    reads = np.zeros((upto, count), dtype=bool)
    for i in range(upto):
        reads[i, numbered[: i + 2]] = True
    reads = np.concatenate([np.tile(reads, (len(of), 1)), np.tile(reads[-1:], (more, 1))])
    target = np.concatenate([np.repeat(of, upto), np.full(more, of[0])])
    seed = work.options.seed + np.concatenate([np.zeros(len(of) * upto, dtype=np.int64), 1 + np.arange(more)])
    done = work.done(Probes(reads, target, seed, mixed=True))
    assert done.shares is not None
    assert done.gamma is not None
    whole = [upto - 1, *range(len(of) * upto, len(reads))]
    mixes = Mixes(numbers, done.shares[np.ix_(whole, numbered)], done.gamma[whole])
    return [done.some(range(i * upto, (i + 1) * upto)) for i in range(len(of))], mixes


def _predictions(
    fits: list[dict[str, Any]],
    gold: np.ndarray,
    parts: Sequence[_Done],
    dev: Labels,
    question: Question,
    *,
    several: bool,
) -> Predictions:
    import pandas as pd

    n, names = len(dev.y), question.label_names
    ids = (np.arange(n) if dev.ids is None else dev.ids).astype(str)
    groups = np.arange(n) if dev.groups is None else dev.groups
    predicted = np.concatenate([one.predicted for one in parts])
    if not several:
        gold = gold if (gold != gold[0]).any() else gold[0]
        return Predictions(
            pd.DataFrame(fits), ids, gold, predicted, question.metrics, groups, None, names, None, dev.sentences
        )
    pairs = np.char.add(np.repeat(np.char.add(ids, "/"), len(names)), np.tile(np.array(names), n))
    loss = np.concatenate([one.loss for one in parts if one.loss is not None])
    metrics = tuple(dict.fromkeys((*question.metrics, "log-loss")))
    return Predictions(
        pd.DataFrame(fits), pairs, gold, predicted, metrics, np.repeat(groups, len(names)), loss, ("no", "yes")
    )
