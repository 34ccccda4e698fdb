"""Diagnostic classifiers on each layer of caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.cards import Fitted, check_keep, check_work, probes_of, rows_read, shared_card
from probekit.analyses.features import read_of_dictionary
from probekit.analyses.options import VectorOptions
from probekit.analyses.train_dev import Pairs, check_pair, labels_of_pair, numbered_alike
from probekit.analyses.vectors import columns_of, layer_vectors, with_label_sets
from probekit.analyses.verdict.words import layers
from probekit.errors import UsageError
from probekit.monitors.probe import Probe, save_probes
from probekit.notes import logger
from probekit.probes.protocol.baselines import Baselines
from probekit.probes.protocol.diagnostic import evaluate_layers
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.multilabel import evaluate_label_sets
from probekit.probes.protocol.options import Estimator, ProbeOptions
from probekit.probes.protocol.pieces import bag_of_pieces, length, tfidf_of_pieces
from probekit.probes.protocol.rows import probe_rows
from probekit.rows import Result
from probekit.runtime import Progress, no_progress
from probekit.statistics.predictions import Predictions
from probekit.tasks.task import Task, TaskKind

log = logger(__name__)


def measure(
    caches: Pairs,
    metrics: tuple[str, ...] | str | None,
    task: str | Task | None,
    data_dir: str | Path | None,
    keep: Path | None,
    vectors: VectorOptions,
    options: ProbeOptions,
    progress: Progress,
) -> Result:
    """The rows, predictions and probes of :func:`probekit.probe`."""
    if keep is not None and vectors.through is not None:
        raise UsageError(
            "--keep keeps probes of the vectors of a model, not of features of a dictionary; leave out --keep or "
            "--through."
        )
    check_keep(keep, caches.count)
    kept = list[Probe]()
    of_pair = partial(probe_pair, vectors=vectors, options=options, keep=kept.extend, folder=keep)
    result = caches.result(of_pair, progress, metrics, task, data_dir)
    result = replace(result, probes=tuple(kept), reads=(*result.reads, *read_of_dictionary(vectors)))
    if keep is not None and not kept:
        log.warning("nothing is kept: of several labels, only linear probes can be.")
    elif keep is not None:
        save_probes(kept, keep)
        if weak := _no_better(kept, 1 - options.level):
            log.warning(
                "no probe of %s is shown to beat permuted labels (p > %.2g): the scores may be chance.",
                layers(weak), 1 - options.level,
            )  # fmt: skip
    return result


def _no_better(kept: Sequence[Probe], alpha: float) -> list[str]:
    """The layers whose main metric is not shown to beat permuted labels, of those where it was tested."""
    p = ((one.layer, one.card["metrics"][0]["p_adjusted"]) for one in kept)
    return [layer for layer, value in p if value is not None and value > alpha]


def probe_pair(
    train: ActivationCache,
    dev: ActivationCache,
    metrics: tuple[str, ...] | None = None,
    vectors: VectorOptions = VectorOptions(),
    options: ProbeOptions = ProbeOptions(),
    progress: Progress = no_progress,
    keep: Callable[[tuple[Probe, ...]], object] = lambda probes: None,
    folder: Path | None = None,
) -> tuple[pd.DataFrame, Predictions]:
    """The rows and predictions of one pair of caches; CacheMismatch if the two do not match.

    ``keep`` gets the probes; with ``folder``, where they will be kept, those of classes are calibrated whatever the
    options say.
    """
    check_pair(train, dev, vectors.layers, metrics, any_split=options.any_split)
    attends = options.estimator in (Estimator.ATTENTION, Estimator.MONITOR)
    of_train = layer_vectors(train, vectors, pieces=attends)
    check_work(folder, train, of_train.layers)
    same = replace(vectors, pooling=of_train.pooling, layers=tuple(of_train.layers))
    of_dev = layer_vectors(dev, same, pieces=attends)
    of_train, of_dev = with_label_sets(of_train, train), with_label_sets(of_dev, dev)
    labels = labels_of_pair(train, dev, of_train, of_dev, options, ungrouped=vectors.groups == "none")
    for cache in (train, dev):
        if cut := int(cache.truncated.sum()):
            log.warning(
                "%s %s: %s of %s examples exceed the model's maximum length and were truncated.",
                cache.spec["task"], cache.spec["split"], f"{cut:,}", f"{len(cache.truncated):,}",
            )  # fmt: skip
    cosines = of_train.cosines if options.cosine else {}
    cosine = [(name, of, of_dev.cosines[name]) for name, of in cosines.items()]
    baselines = Baselines(cosine=cosine)
    if not of_train.words and options.controls != 0:
        pieces = train.pieces, dev.pieces
        tfidf = tfidf_of_pieces(*pieces) if options.tfidf else None
        baselines = Baselines(bag_of_pieces(*pieces), (length(pieces[0]), length(pieces[1])), cosine, tfidf)
    question = Question(
        train.spec["kind"],
        tuple(train.spec["metrics"]) if metrics is None else metrics,
        tuple(train.spec["label_names"]),
        {"analysis": "probe", **columns_of(dev, of_train.representation), **of_dev.group_columns},
    )
    fitted = list[Fitted]()
    if folder is not None and of_train.label_sets is None and question.classify:
        options = replace(options, calibrate=True)
    if of_train.label_sets is not None:
        sets, of_sets, of_dev_sets = numbered_alike(of_train, of_dev, labels)
        found = evaluate_label_sets(
            of_train.layers, of_sets, of_dev.layers, of_dev_sets, sets, question,
            baselines=baselines, options=options, progress=progress, keep=lambda *one: fitted.append(Fitted(*one)),
        )  # fmt: skip
    else:
        found = evaluate_layers(
            of_train.layers, labels[0], of_dev.layers, labels[1], question,
            baselines=baselines, options=options, progress=progress, keep=lambda *one: fitted.append(Fitted(*one)),
        )  # fmt: skip
    seen = labels[1].seen[labels[1].known]  # type: ignore[index]
    seen = np.repeat(seen, len(question.label_names)) if of_train.label_sets is not None else seen
    how = {name: getattr(options, name) for name in ("resamples", "level", "seed", "by_label")}
    rows = probe_rows(found, seen=seen, **how)
    if vectors.through is not None:  # what is kept reads the vectors of a model
        return rows, found
    of_spans = of_train.targets is not None and of_train.label_sets is not None
    more = {"kind": str(TaskKind.MULTI_LABEL)} if of_spans else {}
    shared = shared_card((train, dev), rows_read(of_train, vectors), options, balanced=options.balanced, **more)
    inner = sorted(fitted, key=lambda one: train.layers.index(one.layer))
    keep(probes_of(inner, shared, rows, found, options, seen))
    return rows, found
