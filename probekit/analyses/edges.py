"""Edge probes of spans in each layer, and in mixes of layers: the analysis of ``probekit edges``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.options import SpanVector, VectorOptions
from probekit.analyses.train_dev import (
    Pairs,
    check_layers,
    check_match,
    check_splits,
    labels_of_pair,
    named_metrics,
    numbered_alike,
)
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors
from probekit.errors import UsageError
from probekit.metrics import unfit
from probekit.probes.edges.depth import centre_of_gravity, expected_layer_of, over_seeds, rare_class
from probekit.probes.edges.evaluate import MIX, Mixes, evaluate_edges
from probekit.probes.edges.options import EdgeOptions
from probekit.probes.edges.spans import SpanLayers
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.public import public
from probekit.rows import Result, make_rows
from probekit.runtime import Progress, no_progress
from probekit.statistics.predictions import Predictions, by_split
from probekit.tasks.task import Task

__all__ = ["edges"]

OF_TRAINING = ["held_out", "training_steps", "converged"]


@public(vectors=VectorOptions, options=EdgeOptions)
def edges(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    metrics: tuple[str, ...] | str | None = None,
    task: str | Task | None = None,
    data_dir: str | Path | None = None,
    vectors: VectorOptions,
    options: EdgeOptions,
    progress: Progress = no_progress,
) -> Result:
    """Train edge probes of spans on each layer and on mixes of layers: what is where in the model.

    The probe is that of Tenney et al. (2019): the pieces of one or two spans are projected and pooled with trained
    attention, and a perceptron says of each label whether it holds. It reads one layer, or a mix of the first layer up
    to another, with trained weights (Tenney, Das & Pavlick 2019). All probes are trained on the same batches, and
    stopped by their loss on a held-out part of train.

    Parameters
    ----------
    train, dev : path or ActivationCache
        Caches with token vectors, of a task about spans, pairs of spans or words.
    *more : path or ActivationCache
        Further pairs, train and dev alternating, whose rows follow; such as those of random weights.
    metrics : tuple of str, optional
        Names in :data:`probekit.metrics.METRICS`, the main one first (default: those of the task).
    task, data_dir : str or Task, and path, optional
        For caches of the sentences of several tasks (``--task A+B``): the task to take labels from, and the folder of
        its files, as for :func:`probekit.load_task`.
    vectors : VectorOptions
        ``layers`` and ``groups``; each may be given as a keyword.
    options : EdgeOptions
        ``probe``, ``steps``, ``controls``, ``seeds``, ``seed`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        As of :func:`probekit.probe`, a row for each metric and probe: of a layer (representation "attention"), for gold
        labels and controls, and of the mix up to a layer ("mix"). "mix-weight": the share of each layer in the mix of
        all layers, for each of ``seeds`` trainings, and its factor ``gamma``. "centre-of-gravity": the mean layer under
        these weights, averaged over trainings, with Student's interval if there are several. "expected-layer": where
        the ``of_metric`` of mixes rises on average, with an interval over resampled groups of sentences. Predictions
        of each probe for each target; where several labels can hold at once, for each target and label.

    Raises
    ------
    CacheMismatch
        If the two caches of a pair do not match.
    NonFiniteError
        If a layer contains NaN; the message names the layer.
    UsageError
        For an odd number of caches, a task without spans, one label only, an unknown layer or metric.

    References
    ----------
    Tenney et al. 2019, What Do You Learn from Context?, section 3 and appendix C; Tenney, Das & Pavlick 2019, BERT
    Rediscovers the Classical NLP Pipeline, section 3.

    Examples
    --------
    >>> result = probekit.edges("ud.train.h5", "ud.dev.h5", seeds=3)  # doctest: +SKIP
    """
    caches = Pairs((train, dev, *more))
    if vectors.pooling is not None or vectors.span is not None:
        raise UsageError("edge probes train their own pooling of spans; leave out pooling and span.")
    names = named_metrics(metrics)
    with caches:
        found = [_of_pair(*pair, names, vectors, options, progress) for pair in caches.opened(task, data_dir)]
    rows = pd.concat([table for table, _ in found], ignore_index=True)
    return Result(rows, tuple(by_split(predictions for _, predictions in found)), reads=tuple(caches.reads))


def _of_pair(
    train: ActivationCache,
    dev: ActivationCache,
    metrics: tuple[str, ...] | None,
    vectors: VectorOptions,
    options: EdgeOptions,
    progress: Progress,
) -> tuple[pd.DataFrame, Predictions]:
    """The rows and predictions of one pair of caches."""
    check_match(train, dev)
    check_layers(train, dev, vectors.layers)
    if not options.any_split:
        check_splits(train.spec, dev.spec)
    if wrong := unfit(metrics or (), train.spec["kind"]):
        raise UsageError(f"metrics must fit the labels: {wrong}")
    of_train = layer_vectors(train, replace(vectors, span=SpanVector.ENDS))
    of_dev = layer_vectors(dev, replace(vectors, span=SpanVector.ENDS, layers=tuple(of_train.layers)))
    if len(train.spec["label_names"]) < 2 and of_train.label_sets is None:
        raise UsageError(f"{train.spec['task']} has one label only; a probe needs at least two.")
    y, y_dev = labels_of_pair(train, dev, of_train, of_dev, ProbeOptions(), ungrouped=vectors.groups == "none")
    question = Question(
        train.spec["kind"],
        tuple(train.spec["metrics"]) if metrics is None else metrics,
        tuple(train.spec["label_names"]),
        {"analysis": "edges", **columns_of(dev, ""), **of_dev.group_columns},
    )
    several = of_train.label_sets is not None
    sets = np.eye(len(question.label_names), dtype=bool)
    if several:
        sets, y, y_dev = numbered_alike(of_train, of_dev, (y, y_dev))
    found, mixes = evaluate_edges(
        {name: _number(name) for name in of_train.layers},
        _spans(train, of_train),
        y,
        _spans(dev, of_dev),
        y_dev,
        sets,
        question,
        several=several,
        options=options,
        progress=progress,
    )
    assert y_dev.seen is not None
    seen = np.repeat(y_dev.seen[y_dev.known], len(question.label_names) if several else 1)
    rows = probe_rows(found, seen=seen, resamples=options.resamples, level=options.level, seed=options.seed)
    of_mixes = [] if mixes is None else list(_of_mixes(found, mixes, options))
    return make_rows(pd.concat([rows, pd.DataFrame(of_mixes)], ignore_index=True) if of_mixes else rows), found


def _number(layer: str) -> int | None:
    return int(layer) if layer.isdigit() else None


def _spans(cache: ActivationCache, of: LayerVectors) -> SpanLayers:
    assert of.targets is not None
    return SpanLayers([cache.tokens(name).values for name in of.layers], of.targets.first, of.targets.last)


def _of_mixes(found: Predictions, mixes: Mixes, options: EdgeOptions) -> Iterator[dict[Any, Any]]:
    """Rows of the weights of the mix of all layers, its centre of gravity, and the expected layer of each metric."""
    of_mix = found.take(found.is_gold & (found.fits["representation"] == MIX).to_numpy(dtype=bool))
    about = of_mix.fits.iloc[-1].drop(labels=[*OF_TRAINING, "layer", "site"]).to_dict()
    for i, (weights, gamma) in enumerate(zip(mixes.weights, mixes.gamma, strict=True)):
        for layer, weight in zip(mixes.layers, weights, strict=True):
            yield about | {
                "layer": str(layer), "metric": "mix-weight", "value": weight, "gamma": gamma, "seed": options.seed + i
            }  # fmt: skip
    ends = over_seeds(centre_of_gravity(mixes.layers, mixes.weights), options.level)
    ends = tuple(np.clip(ends, mixes.layers[0], mixes.layers[-1]))
    base = about | {"layer": None, "runs": len(mixes.weights)}
    yield base | {"metric": "centre-of-gravity", **dict(zip(("value", "ci_low", "ci_high"), ends, strict=True))}
    for name in found.metrics:
        ends = expected_layer_of(of_mix, name, resamples=options.resamples, level=options.level, seed=options.seed)
        numbers = dict(zip(("value", "ci_low", "ci_high"), ends, strict=True))
        why = {"why": why} if (why := rare_class(of_mix, name)) else {}
        yield about | {"layer": None, "metric": "expected-layer", "of_metric": name, **numbers, **why}
