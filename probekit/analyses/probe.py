"""Diagnostic classifiers on each layer of caches: the analysis behind ``probekit probe``."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors, read_of
from probekit.errors import CacheMismatch, UsageError
from probekit.metrics import unfit
from probekit.probes.protocol.baselines import Baselines
from probekit.probes.protocol.diagnostic import evaluate_layers
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.pieces import bag_of_pieces, keys, length, word_types
from probekit.probes.protocol.rows import probe_rows
from probekit.public import public
from probekit.rows import Result
from probekit.runtime import Progress, no_progress
from probekit.statistics.duplicates import related
from probekit.statistics.folds import duplicates
from probekit.statistics.predictions import Predictions, join

__all__ = ["by_split", "probe"]

log = logging.getLogger(__name__)

SAME = (
    *("task", "kind", "label_names", "random_weights", "weights_digest", "tokenizer_digest"),
    *("cut_at", "stateful", "dtype", "store", "layers", "width", "pairs"),
)
"""What two caches have in common that are probed together."""


@public(vectors=VectorOptions, options=ProbeOptions)
def probe(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    metrics: tuple[str, ...] | str | None = None,
    vectors: VectorOptions,
    options: ProbeOptions,
    progress: Progress = no_progress,
) -> Result:
    """Fit a diagnostic classifier on each layer of one cache and evaluate it on another.

    Features are standardised on train, the L2 penalty is chosen by cross-validation in train, the probe is fitted
    again on all of train (logistic regression, or ridge for numbers), and dev is looked at once, with a bootstrap
    interval. Shuffled labels, and control tasks where words are labelled, go the same way; so do a bag of pieces and
    the length of the texts.

    Parameters
    ----------
    train, dev : path or ActivationCache
        Files or open caches of the same task, model and layers.
    *more : path or ActivationCache
        Further pairs, train and dev in turn, whose rows follow.
    metrics : tuple of str, optional
        Names in :data:`probekit.metrics.METRICS`, the main one first; the task's own for None.
    vectors : VectorOptions
        ``pooling`` and ``layers``; they may be given one by one.
    options : ProbeOptions
        ``estimator``, ``penalties``, ``controls``, ``folds``, ``seed`` …; they may be given one by one.
    progress : callable
        Told how far the work is.

    Returns
    -------
    Result
        A row for each layer and metric, and for each control; what each probe said of each example.

    Raises
    ------
    CacheMismatch
        Where two caches do not belong together.
    NonFiniteError
        Naming a layer with NaN.
    UsageError
        For an odd number of caches, an unknown layer, pooling or metric.

    Examples
    --------
    >>> result = probekit.probe("cola.train.h5", "cola.dev.h5")  # doctest: +SKIP
    >>> probekit.plots.layer_curve(result)  # doctest: +SKIP
    """
    caches = (train, dev, *more)
    if len(caches) % 2:
        raise UsageError(f"caches come in pairs, TRAIN.h5 DEV.h5; {len(caches)} were given.")
    names = None if metrics is None else (metrics,) if isinstance(metrics, str) else tuple(metrics)
    found, reads = [], []
    with ExitStack() as stack:
        for pair in zip(caches[::2], caches[1::2], strict=True):
            a, b = (c if isinstance(c, ActivationCache) else stack.enter_context(ActivationCache(c)) for c in pair)
            found.append(probe_pair(a, b, names, vectors, options, progress))
            reads += [read_of(a), read_of(b)]
    rows = pd.concat([own for own, _ in found], ignore_index=True)
    return Result(rows, tuple(by_split(said for _, said in found)), reads=tuple(reads))


def probe_pair(
    train: ActivationCache,
    dev: ActivationCache,
    metrics: tuple[str, ...] | None = None,
    vectors: VectorOptions = VectorOptions(),
    options: ProbeOptions = ProbeOptions(),
    progress: Progress = no_progress,
) -> tuple[pd.DataFrame, Predictions]:
    """Rows of one pair of caches, and what they rest on; CacheMismatch where the two do not belong together."""
    check_match(train.spec, dev.spec)
    if not options.any_split:
        _check_splits(train.spec, dev.spec)
    own = layer_vectors(train, vectors)
    same = VectorOptions(None if own.words else own.representation, tuple(own.layers), vectors.groups)
    other = layer_vectors(dev, same)
    labels = _labels(train, dev, own, other, options, alone=vectors.groups == "none")
    for cache in (train, dev):
        if cut := int(cache.truncated.sum()):
            log.warning(
                "%s %s: %s of %s examples are longer than the model reads and were cut off.",
                cache.spec["task"], cache.spec["split"], f"{cut:,}", f"{len(cache.truncated):,}",
            )  # fmt: skip
    baselines = Baselines()
    if not own.words and options.controls != 0:
        bag = bag_of_pieces(train.pieces, dev.pieces)
        baselines = Baselines(bag, (length(train.pieces), length(dev.pieces)))
    if wrong := unfit(metrics or (), train.spec["kind"]):
        raise UsageError(wrong)
    question = Question(
        train.spec["kind"],
        tuple(train.spec["metrics"]) if metrics is None else metrics,
        tuple(train.spec["label_names"]),
        {"analysis": "probe", **columns_of(dev, own.representation), **other.told},
    )
    found = evaluate_layers(
        own.layers, labels[0], other.layers, labels[1], question,
        baselines=baselines, options=options, progress=progress,
    )  # fmt: skip
    known = labels[1].seen[labels[1].known]  # type: ignore[index]
    return probe_rows(found, seen=known, resamples=options.resamples, level=options.level, seed=options.seed), found


def _labels(
    train: ActivationCache,
    dev: ActivationCache,
    of_train: LayerVectors,
    of_dev: LayerVectors,
    options: ProbeOptions,
    *,
    alone: bool,
) -> tuple[Labels, Labels]:
    """Labels with what belongs together: the types of words, domains, and the examples of dev that train holds too."""
    words, own, other = of_train.words, of_train.labels, of_dev.labels
    if words:
        types, types_dev = word_types(train.word_pieces, dev.word_pieces)
        own, other = replace(own, types=types), replace(other, types=types_dev)
    seen = duplicates(keys(train.pieces), keys(dev.pieces)) if alone else _shared(train, dev)
    other = replace(other, seen=seen[dev.word_sentence] if words else seen)
    if options.hold_out_domains:
        if words or train.domains is None:
            raise UsageError(f"{train.spec['task']} has no domains of examples; leave hold_out_domains off.")
        own = replace(own, groups=np.unique(train.domains, return_inverse=True)[1])  # of dev, examples are drawn
    return own, other


def _shared(train: ActivationCache, dev: ActivationCache) -> np.ndarray:
    """Which examples of dev belong to a group of train, bool (n_dev,): a text, a near copy, a declared group."""
    found = {"have a text, or a near copy of one, in": related(train.pieces, dev.pieces)}
    if train.group_names is not None and dev.group_names is not None and dev.groups is not None:
        told = np.isin(dev.group_names, [name for name in train.group_names if name])[dev.groups]
        found["are of groups whose names (the task's column of groups) are also those of groups in"] = told
    for what, shared in found.items():
        if shared.any():
            log.warning(
                "%s: %s of %s examples of %s %s %s: they tell less of unseen text. "
                "The column value_unseen leaves them out.",
                dev.spec["task"], f"{int(shared.sum()):,}", f"{len(shared):,}", dev.spec["split"], what,
                train.spec["split"],
            )  # fmt: skip
    return np.logical_or.reduce(list(found.values()))


def _check_splits(train: Mapping[str, Any], dev: Mapping[str, Any]) -> None:
    """Raise UsageError where two caches were made as other splits than they are given for."""
    fitted, evaluated = train["split"].lower(), dev["split"].lower()
    for_evaluation = re.match(r"(dev|valid|val|test|eval)", fitted) and "train" not in fitted
    if for_evaluation or ("train" in evaluated and "train" not in fitted):
        raise UsageError(
            f"the first cache is fitted on and was made as {train['split']!r}, the second is evaluated on and was made "
            f"as {dev['split']!r}; are they swapped? TRAIN comes first; with --any-split they are taken as they are."
        )


def check_match(train: Mapping[str, Any], dev: Mapping[str, Any]) -> None:
    """Raise CacheMismatch where two specs describe vectors or labels that do not go together."""
    words = train["kind"] == "sequence-labelling"
    if train.get("data_digest") == dev.get("data_digest") is not None:
        raise CacheMismatch(
            f"both caches hold the same examples, {train['task']} {train['split']}; dev must be others."
        )
    for name in (*SAME, "tokens") if words else SAME:
        if train.get(name) != dev.get(name):
            raise CacheMismatch(
                f"the two caches do not belong together: {name} is {train.get(name)!r} in train ({train['split']}, "
                f"{train['model']}) and {dev.get(name)!r} in dev ({dev['split']}, {dev['model']})."
            )


def by_split(found: Iterable[Predictions]) -> list[Predictions]:
    """One table for each task and split, all models in it."""
    splits: dict[tuple[str, str], list[Predictions]] = {}
    for one in found:
        splits.setdefault((one.task, one.split), []).append(one)
    return [join(*same) if len(same) > 1 else same[0] for same in splits.values()]
