"""Transferability scores of the layers of caches, and their permutations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.analyses.features import read_of_dictionary
from probekit.analyses.matching import FEWEST, check_finite, drawn, opened
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors, read_of
from probekit.errors import UsageError
from probekit.probes.transferability import Vectors, check_classes, class_counts
from probekit.rows import Result, make_rows
from probekit.runtime import Progress
from probekit.similarity.chance import judged
from probekit.statistics.relabelling import shuffles
from probekit.tasks.task import check_one_label

if TYPE_CHECKING:
    from probekit.analyses.transferability import TransferabilityOptions

FOR_CLASSES = "needs classes, but the labels are numbers"
TWO_CLASSES = "the distance between the means of two equally large classes does not count"
EXACT = "labels are a linear function of the vectors: the evidence has no maximum"
EQUAL = "all vectors are equal"


def measure(
    caches: Sequence[str | Path | ActivationCache],
    vectors: VectorOptions,
    options: TransferabilityOptions,
    progress: Progress,
) -> Result:
    """The rows of :func:`probekit.transferability`."""
    with ExitStack() as stack:
        found = opened(caches, stack)
        for cache in found:
            check_one_label(cache.spec["task"], cache.spec["kind"])
        chosen = [layer_vectors(cache, vectors) for cache in found]
        sets = [_label_sets(cache, one, options) for cache, one in zip(found, chosen, strict=True)]
        total, records = sum(len(one.layers) for one in chosen), list[dict[str, Any]]()
        done = 0
        scored: list[list[dict[str, np.ndarray]]] = []
        for cache, one, labels in zip(found, chosen, sets, strict=True):
            scored.append([])
            for name in one.layers:
                progress("layers", done, total)
                scored[-1].append(_of_layer(cache, name, one, labels, options))
                done += 1
        for i, (cache, one, labels) in enumerate(zip(found, chosen, sets, strict=True)):
            head = {"analysis": "transferability", **columns_of(cache, one.representation), **one.group_columns}
            head |= {"estimator": "", "seed": options.seed, "n": len(labels.rows), "left_out": labels.left_out}
            others = [k for k in range(len(sets)) if np.array_equal(sets[k].y, labels.y)]
            family = [layer for k in others for layer in scored[k]]
            first = sum(len(scored[k]) for k in others if k < i)
            records += [head | row for row in _rows(list(one.layers), first, family, labels, options)]
        progress("layers", done, total)
        return Result(make_rows(records), reads=(*map(read_of, found), *read_of_dictionary(vectors)))


@dataclass(frozen=True, slots=True)
class _LabelSets:
    """The scored rows of a cache; their labels, the actual ones first, (1 + draws, n); classes, 0 for numbers."""

    rows: np.ndarray
    y: np.ndarray
    classes: int
    left_out: int


def _label_sets(cache: ActivationCache, chosen: LayerVectors, options: TransferabilityOptions) -> _LabelSets:
    labels, numbers = chosen.labels, cache.spec["kind"] == "regression"
    rows = np.flatnonzero(labels.known)
    what, left_out = "words" if chosen.words else "examples", len(labels.y) - len(rows)
    if len(rows) < FEWEST:
        raise UsageError(f"{cache.path} has {len(rows)} labelled {what}; a score needs {FEWEST} or more.")
    rows = drawn(rows, options.max_examples, options.seed, cache, what, "scored")
    y, classes = labels.y[rows], 0
    if numbers:
        y = y.astype(np.float64)
        if np.ptp(y) == 0:
            raise UsageError(f"{cache.path}: all {len(y):,} labels are {y[0]:g}; a score needs different labels.")
    else:
        names, y = np.unique(y, return_inverse=True)
        classes = len(names)
        try:
            check_classes(len(y), classes)
        except UsageError as error:
            raise UsageError(f"{cache.path}: {error}") from None
    groups = None if labels.groups is None else labels.groups[rows]
    orders = shuffles(len(y), groups, draws=options.draws, seed=options.seed)
    every = np.concatenate([y[None], *(y[order] for order in orders)])
    if classes:  # groups of unequal size may lose a rare class
        every = every[(class_counts(every, classes) > 0).all(1)]
    return _LabelSets(rows, every, classes, left_out)


def _of_layer(
    cache: ActivationCache, name: str, chosen: LayerVectors, labels: _LabelSets, options: TransferabilityOptions
) -> dict[str, np.ndarray]:
    """The scores of one layer, (1 + draws,) each."""
    x = np.asarray(chosen.layers[name]()[labels.rows])
    check_finite(x, cache, name, chosen.labels[labels.rows])
    measures = [m for m in options.measures if labels.classes or m == "logme"]
    if not measures:
        return {}
    found = Vectors(x).scores(labels.y, labels.classes, measures, eps=options.eps)
    return {m: np.where(np.isfinite(score), score, np.nan) for m, score in found.items()}


def _rows(
    layers: list[str], first: int, scores: list[dict[str, np.ndarray]], labels: _LabelSets,
    options: TransferabilityOptions,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The rows of one cache, by score and layer.

    scores : of all layers of the caches that have these labels, over which p is corrected; those from ``first`` on are
        this cache's
    """
    for metric in options.measures:
        if metric not in scores[0]:
            for layer in layers:
                yield {"target": "gold", "metric": metric, "layer_name": layer, "value": None, "note": FOR_CLASSES}
            continue
        null = np.stack([one[metric] for one in scores], axis=1)
        draws = len(null) - 1
        chance = judged(null[..., None], best=max(1, labels.classes - 1)) if draws else None
        for i, layer in enumerate(layers, first):
            row: dict[str, Any] = {"metric": metric, "layer_name": layer, "draws": draws}
            gold = row | {"target": "gold", "value": null[0, i], "note": _note(metric, null[0, i], labels)}
            if chance is not None:
                columns = ("p", "p_adjusted", "null_mean", "null_sd", "null_low", "null_high")
                gold |= {column: getattr(chance, column)[i, 0] for column in columns}
                gold["calibrated"] = chance.calibrated[i, 0] if metric == "h-score" else None
            yield gold
            if chance is not None:
                ends = {"ci_low": chance.null_low[i, 0], "ci_high": chance.null_high[i, 0]}
                yield row | ends | {"target": "shuffled", "value": chance.null_mean[i, 0]}


def _note(metric: str, value: float, labels: _LabelSets) -> str:
    if np.isnan(value):
        return EXACT if metric == "logme" else EQUAL
    if metric == "transrate" and labels.classes == 2:
        return TWO_CLASSES
    return ""
