"""Diagnostic classifiers on each layer of caches: the analysis of ``probekit probe``."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.options import VectorOptions
from probekit.analyses.train_dev import (
    Pairs,
    check_layers,
    check_match,
    check_splits,
    labels_of_pair,
    named_metrics,
    numbered_alike,
)
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors, read_of
from probekit.errors import UsageError
from probekit.metrics import unfit
from probekit.probes.protocol.baselines import Baselines
from probekit.probes.protocol.diagnostic import evaluate_layers
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.multilabel import evaluate_label_sets
from probekit.probes.protocol.options import Estimator, ProbeOptions
from probekit.probes.protocol.pieces import bag_of_pieces, length
from probekit.probes.protocol.rows import probe_rows
from probekit.public import public
from probekit.recipe import Read
from probekit.rows import Result
from probekit.runtime import Progress, no_progress
from probekit.statistics.predictions import Predictions, by_split
from probekit.tasks.task import Task

__all__ = ["probe", "probe_pair"]

log = logging.getLogger(__name__)


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
    caches = Pairs((train, dev, *more))
    names, found, reads = named_metrics(metrics), [], list[Read]()
    with caches:
        for pair in caches.opened(task, data_dir):
            found.append(probe_pair(*pair, names, vectors, options, progress))
            reads += map(read_of, pair)
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
