"""Diagnostic classifiers on each layer of caches: the analysis of ``probekit probe``."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.activations.description import check_same
from probekit.activations.targets import span_pieces
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors, read_of
from probekit.errors import CacheMismatch, UsageError
from probekit.metrics import metric, unfit
from probekit.probes.protocol.baselines import Baselines
from probekit.probes.protocol.diagnostic import evaluate_layers
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.multilabel import evaluate_label_sets
from probekit.probes.protocol.options import Estimator, ProbeOptions
from probekit.probes.protocol.pieces import bag_of_pieces, keys, length, word_types
from probekit.probes.protocol.rows import probe_rows
from probekit.public import public
from probekit.rows import Result
from probekit.runtime import Progress, no_progress
from probekit.statistics.duplicates import related
from probekit.statistics.folds import duplicates
from probekit.statistics.predictions import Predictions, by_split
from probekit.tasks.load import load_task
from probekit.tasks.task import Task

__all__ = ["check_layers", "check_match", "check_splits", "labels_of_pair", "numbered_alike", "probe", "probe_pair"]

log = logging.getLogger(__name__)

SAME = (
    *("task", "kind", "label_names", "random_weights", "weights_digest", "tokenizer_digest"),
    *("cut_at", "stateful", "dtype", "store", "pairs"),
)
"""The keys of the spec in which a train and a dev cache must agree."""


@public(vectors=VectorOptions, options=ProbeOptions)
def probe(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    metrics: tuple[str, ...] | str | None = None,
    task: str | Task | None = None,
    data_dir: str | Path | None = None,
    vectors: VectorOptions,
    options: ProbeOptions,
    progress: Progress = no_progress,
) -> Result:
    """Fit a diagnostic classifier on each layer of one cache and evaluate it on another.

    Features are standardised on train, the L2 penalty is chosen by cross-validation on train, the probe (logistic
    regression, or ridge for numbers) is fitted again on all of train, and evaluated once on dev, with a bootstrap
    interval. Shuffled labels, control tasks (for labelled words), a bag of word pieces and the length of the texts go
    through the same procedure.

    Parameters
    ----------
    train, dev : path or ActivationCache
        Files or open caches of the same task and model; if they hold different layers, ``layers`` names shared ones.
    *more : path or ActivationCache
        Further pairs, train and dev alternating, whose rows follow.
    metrics : tuple of str, optional
        Names in :data:`probekit.metrics.METRICS`, the main one first (default: those of the task).
    task, data_dir : str or Task, and path, optional
        For caches of the sentences of several tasks (``--task A+B``): the task to take labels from, and the folder of
        its files, as for :func:`probekit.load_task`.
    vectors : VectorOptions
        ``pooling`` and ``layers``; each may be given as a keyword.
    options : ProbeOptions
        ``estimator``, ``penalties``, ``controls``, ``folds``, ``seed`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        A row for each layer and metric, and for each control; the predictions of each probe for each example.

    Raises
    ------
    CacheMismatch
        If the two caches of a pair do not match.
    NonFiniteError
        If a layer contains NaN; the message names the layer.
    UsageError
        For an odd number of caches, an unknown layer, pooling or metric.

    Examples
    --------
    >>> result = probekit.probe("cola.train.h5", "cola.dev.h5")  # doctest: +SKIP
    >>> probekit.plots.layer_curve(result)  # doctest: +SKIP
    """
    caches = (train, dev, *more)
    if len(caches) % 2:
        raise UsageError(f"caches must be given in pairs, TRAIN.h5 DEV.h5; {len(caches)} were given.")
    names = None if metrics is None else (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in names or ():
        metric(name)
    found, reads = [], []
    of_task = load_task(task, data_dir) if isinstance(task, str) else task
    with ExitStack() as stack:
        for pair in zip(caches[::2], caches[1::2], strict=True):
            a, b = (c if isinstance(c, ActivationCache) else stack.enter_context(ActivationCache(c)) for c in pair)
            if of_task is not None:
                a, b = (c.for_task(of_task, c.spec["split"]) for c in (a, b))
            found.append(probe_pair(a, b, names, vectors, options, progress))
            reads += [read_of(a), read_of(b)]
    rows = pd.concat([table for table, _ in found], ignore_index=True)
    return Result(rows, tuple(by_split(predictions for _, predictions in found)), reads=tuple(reads))


def probe_pair(
    train: ActivationCache,
    dev: ActivationCache,
    metrics: tuple[str, ...] | None = None,
    vectors: VectorOptions = VectorOptions(),
    options: ProbeOptions = ProbeOptions(),
    progress: Progress = no_progress,
) -> tuple[pd.DataFrame, Predictions]:
    """The rows and predictions of one pair of caches; CacheMismatch if the two do not match."""
    check_match(train, dev)
    check_layers(train, dev, vectors.layers)
    if not options.any_split:
        check_splits(train.spec, dev.spec)
    if wrong := unfit(metrics or (), train.spec["kind"]):
        raise UsageError(f"metrics must fit the labels: {wrong}")
    attends = options.estimator in (Estimator.ATTENTION, Estimator.MONITOR)
    of_train = layer_vectors(train, vectors, pieces=attends)
    pooling = None if of_train.words or attends else of_train.representation
    same = replace(vectors, pooling=pooling, layers=tuple(of_train.layers))
    of_dev = layer_vectors(dev, same, pieces=attends)
    labels = labels_of_pair(train, dev, of_train, of_dev, options, ungrouped=vectors.groups == "none")
    for cache in (train, dev):
        if cut := int(cache.truncated.sum()):
            log.warning(
                "%s %s: %s of %s examples exceed the model's maximum length and were truncated.",
                cache.spec["task"], cache.spec["split"], f"{cut:,}", f"{len(cache.truncated):,}",
            )  # fmt: skip
    baselines = Baselines()
    if not of_train.words and options.controls != 0:
        bag = bag_of_pieces(train.pieces, dev.pieces)
        baselines = Baselines(bag, (length(train.pieces), length(dev.pieces)))
    question = Question(
        train.spec["kind"],
        tuple(train.spec["metrics"]) if metrics is None else metrics,
        tuple(train.spec["label_names"]),
        {"analysis": "probe", **columns_of(dev, of_train.representation), **of_dev.group_columns},
    )
    if of_train.label_sets is not None:
        found = _of_label_sets(of_train, of_dev, labels, question, options, progress)
        seen = np.repeat(labels[1].seen, len(question.label_names))  # type: ignore[arg-type]
        return probe_rows(found, seen=seen, resamples=options.resamples, level=options.level, seed=options.seed), found
    found = evaluate_layers(
        of_train.layers, labels[0], of_dev.layers, labels[1], question,
        baselines=baselines, options=options, progress=progress,
    )  # fmt: skip
    known = labels[1].seen[labels[1].known]  # type: ignore[index]
    return probe_rows(found, seen=known, resamples=options.resamples, level=options.level, seed=options.seed), found


def _of_label_sets(
    of_train: LayerVectors,
    of_dev: LayerVectors,
    labels: tuple[Labels, Labels],
    question: Question,
    options: ProbeOptions,
    progress: Progress,
) -> Predictions:
    """Where several labels can hold at once."""
    sets, train, dev = numbered_alike(of_train, of_dev, labels)
    return evaluate_label_sets(
        of_train.layers, train, of_dev.layers, dev, sets, question, options=options, progress=progress
    )


def numbered_alike(
    of_train: LayerVectors, of_dev: LayerVectors, labels: tuple[Labels, Labels]
) -> tuple[np.ndarray, Labels, Labels]:
    """The label sets of two caches, bool (sets, label names), and the labels as their numbers: each has its own."""
    own = [np.asarray(of.label_sets) for of in (of_train, of_dev)]
    sets, number = np.unique(np.concatenate(own), axis=0, return_inverse=True)
    places = np.split(number.reshape(-1), [len(own[0])])
    train, dev = (replace(given, y=place[given.y]) for given, place in zip(labels, places, strict=True))
    return sets, train, dev


def labels_of_pair(
    train: ActivationCache,
    dev: ActivationCache,
    of_train: LayerVectors,
    of_dev: LayerVectors,
    options: ProbeOptions,
    *,
    ungrouped: bool,
) -> tuple[Labels, Labels]:
    """The labels, with word types, domains as groups, and the examples of dev that train contains too."""
    words, train_labels, dev_labels = of_train.words, of_train.labels, of_dev.labels
    if words:
        types, types_dev = _types(train, dev, of_train, of_dev)
        train_labels, dev_labels = replace(train_labels, types=types), replace(dev_labels, types=types_dev)
    seen = duplicates(keys(train.pieces), keys(dev.pieces)) if ungrouped else _shared(train, dev)
    dev_labels = replace(dev_labels, seen=seen[_sentences(dev, of_dev)] if words else seen)
    if options.hold_out_domains:
        if words or train.domains is None:
            raise UsageError(
                f"hold_out_domains needs the domain of each example, and the task {train.spec['task']} has none. "
                'Name their column in the task file (domain = "COLUMN") and make both caches again, or leave out '
                "hold_out_domains."
            )
        train_labels = replace(
            train_labels, groups=np.unique(train.domains, return_inverse=True)[1]
        )  # dev is resampled by example
    return train_labels, dev_labels


def _types(
    train: ActivationCache, dev: ActivationCache, of_train: LayerVectors, of_dev: LayerVectors
) -> tuple[np.ndarray, np.ndarray]:
    """The type of each word; of a span or a pair of spans, its words, or those of both."""
    if of_train.targets is None or of_dev.targets is None:
        types, types_dev = word_types(train.word_pieces, dev.word_pieces)
        return types, types_dev
    pieces = zip(span_pieces(train, of_train.targets), span_pieces(dev, of_dev.targets), strict=True)
    by_span = [np.concatenate(word_types(*both)) for both in pieces]
    codes = np.unique(np.stack(by_span, 1), axis=0, return_inverse=True)[1].reshape(-1)
    return codes[: len(of_train.targets)], codes[len(of_train.targets) :]


def _sentences(cache: ActivationCache, of: LayerVectors) -> np.ndarray:
    return cache.word_sentence if of.targets is None else of.targets.example


def _shared(train: ActivationCache, dev: ActivationCache) -> np.ndarray:
    """Which examples of dev share a text, a near copy or a declared group with train, bool (n_dev,)."""
    found = {"have the same or a nearly equal text in": related(train.pieces, dev.pieces)}
    if train.group_names is not None and dev.group_names is not None and dev.groups is not None:
        same_group = np.isin(dev.group_names, [name for name in train.group_names if name])[dev.groups]
        found["belong to groups (named in the task's group column) that also occur in"] = same_group
    for relation, shared in found.items():
        if shared.any():
            log.warning(
                "%s: %s of %s examples of %s %s %s, and say less about unseen text. "
                "The column value_unseen leaves them out.",
                dev.spec["task"], f"{int(shared.sum()):,}", f"{len(shared):,}", dev.spec["split"], relation,
                train.spec["split"],
            )  # fmt: skip
    return np.logical_or.reduce(list(found.values()))


def check_splits(train: Mapping[str, Any], dev: Mapping[str, Any]) -> None:
    """Raise UsageError if the splits of two caches do not fit their roles as train and dev."""
    fitted, evaluated = train["split"].lower(), dev["split"].lower()
    for_evaluation = re.match(r"(dev|valid|val|test|eval)", fitted) and "train" not in fitted
    if for_evaluation or ("train" in evaluated and "train" not in fitted):
        raise UsageError(
            f"the first cache (to fit probes on) holds the split {train['split']!r}, the second (to evaluate on) "
            f"{dev['split']!r}; are they swapped? TRAIN comes first; --any-split allows any splits."
        )


def check_match(train: ActivationCache, dev: ActivationCache) -> None:
    """Raise CacheMismatch if two caches hold incompatible vectors or labels, or the same examples."""
    if train.spec.get("data_digest") == dev.spec.get("data_digest") is not None:
        raise CacheMismatch(
            f"both caches hold the same examples, {train.spec['task']} {train.spec['split']}; dev needs other examples."
        )
    of_tokens = train.spec["kind"] in ("sequence-labelling", "span-labelling")
    check_same(train, dev, (*SAME, "tokens") if of_tokens else SAME)


def check_layers(train: ActivationCache, dev: ActivationCache, layers: tuple[int | str, ...] | None) -> None:
    """Raise an error if two caches hold different layers, and none are chosen, or some that one of them lacks."""
    if train.layers == dev.layers:
        return
    if layers is not None:
        dev.layer_names(train.layer_names(layers))
        return
    both = ",".join(name for name in train.layers if name in dev.layers)
    give = f"Give --layers with those both hold ({both}), or cache" if both else "Cache"
    raise CacheMismatch(
        f"{train.path} holds layers {', '.join(train.layers)}, {dev.path} {', '.join(dev.layers)}. {give} both with "
        "the same --layers."
    )
