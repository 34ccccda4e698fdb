"""Edge probes of spans in each layer, and in mixes of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.cards import Fitted, check_keep, check_work, probes_of, rows_read, shared_card
from probekit.analyses.features import without_dictionary
from probekit.analyses.options import PairVector, SpanVector, VectorOptions
from probekit.analyses.train_dev import Pairs, check_pair, labels_of_pair, numbered_alike
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors
from probekit.errors import UsageError
from probekit.monitors.probe import Probe, save_probes
from probekit.probes.edges.depth import centre_of_gravity, expected_layer_of, over_seeds, rare_class
from probekit.probes.edges.evaluate import ATTENTION, MIX, Mixes, evaluate_edges
from probekit.probes.edges.options import EdgeOptions
from probekit.probes.edges.spans import SpanLayers
from probekit.probes.kept import Weights
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.probes.spans import Spans
from probekit.rows import Result, make_rows
from probekit.runtime import Progress
from probekit.statistics.predictions import Predictions
from probekit.tasks.task import Task, TaskKind

OF_TRAINING = ["held_out", "training_steps", "converged"]


def measure(
    caches: Pairs,
    metrics: tuple[str, ...] | str | None,
    task: str | Task | None,
    data_dir: str | Path | None,
    keep: Path | None,
    vectors: VectorOptions,
    options: EdgeOptions,
    progress: Progress,
) -> Result:
    """The rows and predictions of :func:`probekit.edges`."""
    without_dictionary(vectors, "edges")
    if vectors.pooling is not None or vectors.span is not None:
        raise UsageError("edge probes train their own pooling of spans; leave out pooling and span.")
    check_keep(keep, caches.count)
    kept = list[Probe]()
    of_pair = partial(_of_pair, vectors=vectors, options=options, keep=kept.extend, folder=keep)
    result = replace(caches.result(of_pair, progress, metrics, task, data_dir), probes=tuple(kept))
    if keep is not None:
        save_probes(kept, keep)
    return result


def _of_pair(
    train: ActivationCache,
    dev: ActivationCache,
    metrics: tuple[str, ...] | None,
    vectors: VectorOptions,
    options: EdgeOptions,
    progress: Progress,
    keep: Callable[[tuple[Probe, ...]], object],
    folder: Path | None,
) -> tuple[pd.DataFrame, Predictions]:
    """The rows and predictions of one pair of caches.

    ``keep`` gets the probes of single layers; ``folder`` is where they will be kept.
    """
    check_pair(train, dev, vectors.layers, metrics, any_split=options.any_split)
    of_ends = replace(vectors, span=SpanVector.ENDS, span_pair=PairVector.SIDES)
    of_train = layer_vectors(train, of_ends)
    check_work(folder, train, of_train.layers)
    of_dev = layer_vectors(dev, replace(of_ends, layers=tuple(of_train.layers)))
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
    fitted = dict[str, Weights]()
    found, mixes = evaluate_edges(
        {name: _number(name) for name in of_train.layers}, _spans(train, of_train), y, _spans(dev, of_dev), y_dev, sets,
        question, several=several, options=options, progress=progress, keep=fitted.__setitem__,
    )  # fmt: skip
    assert y_dev.seen is not None
    seen = np.repeat(y_dev.seen[y_dev.known], len(question.label_names) if several else 1)
    rows = probe_rows(found, seen=seen, resamples=options.resamples, level=options.level, seed=options.seed)
    more = {"kind": str(TaskKind.MULTI_LABEL)} if several else {}
    read = rows_read(of_train, vectors) | {"representation": ATTENTION}
    shared = shared_card((train, dev), read, options, **more)
    known = [Fitted(name, w, _logits(w, dev, of_dev, name, y_dev.known)) for name, w in fitted.items()]
    keep(probes_of(known, shared, rows[rows["representation"] == ATTENTION], found, options, seen))
    of_mixes = [] if mixes is None else list(_of_mixes(found, mixes, options))
    return make_rows(pd.concat([rows, pd.DataFrame(of_mixes)], ignore_index=True) if of_mixes else rows), found


def _number(layer: str) -> int | None:
    return int(layer) if layer.isdigit() else None


def _spans(cache: ActivationCache, of: LayerVectors) -> SpanLayers:
    assert of.targets is not None
    return SpanLayers([cache.tokens(name).values for name in of.layers], of.targets.first, of.targets.last)


def _logits(weights: Weights, cache: ActivationCache, of: LayerVectors, layer: str, known: np.ndarray) -> np.ndarray:
    """The logits of the labelled targets at a layer, (n, labels)."""
    assert of.targets is not None
    spans = Spans(cache.tokens(layer).values, of.targets.first, of.targets.last)
    return weights.logits(spans, np.flatnonzero(known))


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
